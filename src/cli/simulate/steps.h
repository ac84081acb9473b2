/** What simulated ranks play: the options of steps_opts.def, for the commands that have them. */
#ifndef GW_CLI_SIMULATE_STEPS_H
#define GW_CLI_SIMULATE_STEPS_H

#include "base/args.h"
#include "cli/simulate/play.h"

/** Put their values into *p, which points to *profile; one is there already where neither `profile`
 *  nor `bytes` is given. gw_step_profile_free it, also after an error. GW_ERR_USAGE: there is
 *  nothing to play; the message names `owner`. GW_ERR_INPUT. */
gw_err gw_sim_steps_read(gw_sim_play *p, gw_step_profile *profile, const gw_args *args,
                         const char *owner);

/** That coding any float takes so long. */
void gw_sim_coding(double coded_s[GW_CODINGS], double seconds);

#endif
