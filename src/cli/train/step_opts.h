/** The options of step_opts.def, which `train` and `bench step` share: what the one measures is
 * what the other runs. */
#ifndef GW_CLI_TRAIN_STEP_OPTS_H
#define GW_CLI_TRAIN_STEP_OPTS_H

#include "comm/strategy/plain.h"
#include "config/config.h"
#include "config/opts.h"

/** The row of --gemm, which gw_gemm_allow takes over; `automatic` says what auto means. */
#define GW_GEMM_OPT(automatic)                                                                     \
    {                                                                                              \
        "gemm", GW_OPT_CHOICE, "auto", 0, 0, "auto|dnnl|cblas", NULL,                              \
            "library of the matrix products (auto: " automatic ")"                                 \
    }

/** Where an option's value goes. */
#define TO(member) GW_OPT_INTO(gw_train_config, member)

/** Fill *c with all values of `a` that have a place in it, and with those that follow from them; it
 *  keeps texts of `a`. GW_ERR_USAGE, in the name of `owner`. */
gw_err gw_step_opts_read(gw_train_config *c, const gw_args *a, const char *owner);

#endif
