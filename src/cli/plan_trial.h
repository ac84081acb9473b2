/** What `gradwire plan` measures beside its predictions: the steps of a run with these options. */
#ifndef GW_CLI_PLAN_TRIAL_H
#define GW_CLI_PLAN_TRIAL_H

#include "cli/bench/step_rig.h"
#include "play/play.h"
#include "predict/placed.h"

#include <stdio.h>

enum { GW_PLAN_VERIFIED = 16 };

/** A candidate, or with --mesh a layout. */
typedef struct gw_plan_trial {
    int of; /* which */
    const double *predicted_s;
    double *measured_s; /* mean over the ranks, as a run's step time has it */
    gw_placed placed;   /* a layout's */
    gw_rig rig;
} gw_plan_trial;

/** One more, whose figures lie there; NULL: it is one already. A command has one list of them. */
gw_plan_trial *gw_plan_trials_add(int of, const double *predicted_s, double *measured_s);
int gw_plan_trials_count(void);

/** Collective: open a layout, ready to step; `t` stays where it is. */
gw_err gw_plan_trial_open(gw_plan_trial *t, const gw_place_setup *s, const gw_layout *l,
                          bool yield);

/** Collective: open t->rig, which has its session unless `e` says why not, ready to step. */
gw_err gw_plan_trial_start(gw_plan_trial *t, const gw_rig_setup *s, bool lazy, gw_err e);

/** Collective: measure the steps of a profile, replayed on real ranks as `of` plays them, with this
 *  strategy, algorithm and codec. *own as below. */
gw_err gw_plan_trial_replay(gw_plan_trial *t, const gw_sim_play *of, const gw_train_config *c,
                            const char *const way[3], const gw_bench_place *place, bool *own);

/** Collective: measure all, which are ready to step, by --steps and --block. *own: the error is
 *  this rank's alone. */
gw_err gw_plan_trials_measure(const gw_args *args, const gw_bench_place *place, uint64_t seed,
                              bool *own);

/** Print what the user gave that `train` takes, too, except `but`: rows above `codecs`. */
void gw_plan_print_given(const gw_args *args, const char *but, FILE *to);

/** Print the command that trains so, or replays --profile so. algo NULL: `comm` says which. */
void gw_plan_print_command(const gw_args *args, int ranks, const char *comm, const char *algo,
                           const char *codec);

/** Print how far off predictions were, if there are any. */
void gw_plan_trials_print(void);

void gw_plan_trials_close(void); /* collective */

#endif
