/** What simulated ranks play: the options of steps_opts.def, for the commands that have them. */
#ifndef GW_CLI_SIMULATE_STEPS_H
#define GW_CLI_SIMULATE_STEPS_H

#include "base/args.h"
#include "cli/simulate/play.h"

/** What is played. */
typedef struct gw_sim_steps {
    gw_step_profile profile;
    gw_step_tensor whole; /* of --bytes */
} gw_sim_steps;

/** Put their values into *p, which points into *s; *s has a profile already where neither
 *  `profile` nor `bytes` is given. gw_sim_steps_free also after an error. GW_ERR_USAGE: there is
 *  nothing to play; the message names `owner`. GW_ERR_INPUT. */
gw_err gw_sim_steps_read(gw_sim_play *p, gw_sim_steps *s, const gw_args *args, const char *owner);
void gw_sim_steps_free(gw_sim_steps *s);

/** That coding any float takes so long. */
void gw_sim_coding(double coded_s[GW_CODINGS], double seconds);

#endif
