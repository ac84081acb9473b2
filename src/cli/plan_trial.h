/** A layout that `gradwire plan --mesh` measures: the steps of a run with its options. */
#ifndef GW_CLI_PLAN_TRIAL_H
#define GW_CLI_PLAN_TRIAL_H

#include "cli/bench/step_rig.h"
#include "select/placed.h"

typedef struct gw_plan_trial {
    int of; /* which layout */
    gw_placed placed;
    gw_rig rig;
    gw_samples wall; /* mean over the ranks, as a run's step time has it */
} gw_plan_trial;

/** Collective: open it, ready to step; `t` stays where it is. */
gw_err gw_plan_trial_open(gw_plan_trial *t, const gw_place_setup *s, const gw_layout *l,
                          bool yield);
void gw_plan_trial_close(gw_plan_trial *t); /* collective */

/** Let gw_gemm compute as the trial's run would. */
gw_rig *gw_plan_trial_turn(gw_plan_trial *t);

#endif
