/** What `gradwire plan` measures beside its predictions: the steps of a run with these options. */
#ifndef GW_CLI_PLAN_TRIAL_H
#define GW_CLI_PLAN_TRIAL_H

#include "cli/bench/step_rig.h"
#include "select/placed.h"

enum { GW_PLAN_VERIFIED = 16 };

/** A candidate, or with --mesh a layout. */
typedef struct gw_plan_trial {
    int of; /* which */
    const double *predicted_s;
    double *measured_s; /* mean over the ranks, as a run's step time has it */
    gw_placed placed;   /* a layout's */
    gw_rig rig;
} gw_plan_trial;

typedef struct gw_plan_trials {
    gw_plan_trial at[GW_PLAN_VERIFIED + 1]; /* the choice is the first */
    int n;
} gw_plan_trials;

/** One more, whose figures lie there. */
gw_plan_trial *gw_plan_trials_add(gw_plan_trials *t, int of, const double *predicted_s,
                                  double *measured_s);

/** Collective: open a layout, ready to step; `t` stays where it is. */
gw_err gw_plan_trial_open(gw_plan_trial *t, const gw_place_setup *s, const gw_layout *l,
                          bool yield);

/** Collective: open t->rig, which has its session unless `e` says why not, ready to step. */
gw_err gw_plan_trial_start(gw_plan_trial *t, const gw_rig_setup *s, bool lazy, gw_err e);

/** Collective: measure all, which are ready to step, by --steps and --block. *own: the error is
 *  this rank's alone. */
gw_err gw_plan_trials_measure(gw_plan_trials *t, const gw_args *args, const gw_bench_place *place,
                              uint64_t seed, bool *own);

/** Print what the user gave that `train` takes, too, but for --comm: rows above `codecs`. */
void gw_plan_print_given(const gw_args *args);

/** Print how far off predictions were, if there are any. */
void gw_plan_trials_print(const gw_plan_trials *t);

void gw_plan_trials_close(gw_plan_trials *t); /* collective */

#endif
