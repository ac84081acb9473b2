/** `gradwire plan`: what it does in place of comparing codecs here, and what it measures beside its
 *  predictions: the steps of a run with these options. */
#ifndef GW_CLI_PLAN_H
#define GW_CLI_PLAN_H

#include "cli/bench/step_rig.h"
#include "play/play.h"

#include <stdio.h>

/** --mesh: how to spread the model over the ranks. */
extern const gw_benchmark gw_plan_mesh;

/** --ranks: does compression pay on so many ranks of a network? Strategies, algorithms and codecs
 *  are played (play/play.h), in one process; with --verify real ranks measure the fastest. */
extern const gw_benchmark gw_plan_scale;

enum { GW_PLAN_VERIFIED = 16 };

/** A candidate, or with --mesh a layout; a command has one list of those that are measured. */
typedef struct gw_plan_trial {
    int of; /* which; none twice */
    const double *predicted_s;
    double *measured_s;                     /* mean over the ranks, as a run's step time has it */
    const gw_spec *strategy, *algo, *codec; /* algo NULL: as the strategy has it */
} gw_plan_trial;

int gw_plan_trials_count(void);

/** Collective: open one more, unless there is such a one, ready to step. */
gw_err gw_plan_trial_open(gw_plan_trial t, const gw_rig_setup *s);

/** Collective: measure the steps of a profile, replayed on real ranks as `of` plays them, with this
 *  strategy, algorithm and codec, unless there is such a one. *own as below. */
gw_err gw_plan_trial_replay(gw_plan_trial t, const gw_sim_play *of, const gw_rig_setup *s,
                            bool *own);

/** Collective: measure all, which are ready to step, by --steps and --block. *own: the error is
 *  this rank's alone. */
gw_err gw_plan_trials_measure(const gw_rig_setup *s, bool *own);

/** Print what the user gave that `train` takes, too, except `but`: rows above `codecs`. */
void gw_plan_print_given(const gw_args *args, const char *but, FILE *to);

/** Print the command that trains so, or replays --profile so. */
void gw_plan_print_command(const gw_args *args, int ranks, gw_plan_trial t);

/** Print how far off predictions were, if there are any. */
void gw_plan_trials_print(void);

void gw_plan_trials_close(void); /* collective */

#endif
