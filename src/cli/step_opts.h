/** The options of step_opts.def, which `train` and `bench step` share: what the one measures is
 * what the other runs. */
#ifndef GW_CLI_STEP_OPTS_H
#define GW_CLI_STEP_OPTS_H

#include "train/config.h"

/** Fill the model, optimizer, batch, seed, threads and communication of *c, which keeps texts of
 *  `a`. GW_ERR_USAGE, in the name of `owner`. */
gw_err gw_step_opts_read(gw_train_config *c, const gw_args *a, const char *owner);

#endif
