/** Inside step/paced.c: the arithmetic of a paced step whose model lies on several ranks, or whose
 *  batch passes in microbatches. Outside the clock all ranks of a replica do it together, and what
 *  they send each other is sent again in the clock. It is measured on one rank at a time, without
 *  messages: each has a share of its own. */
#ifndef GW_STEP_PACED_PIPELINE_H
#define GW_STEP_PACED_PIPELINE_H

#include "step/step.h"

/** Where gradients go. */
typedef struct gw_paced_onto {
    float *grads;
    bool add;
} gw_paced_onto;

/** A step's arithmetic on `batch`, as `pacing` says but for its hooks. Collective over a replica,
 *  unless it is GW_PIPELINE_ALONE. *loss: as of gw_pipeline_step. */
gw_err gw_paced_pipeline(gw_stepper *t, const gw_batch *batch, gw_paced_onto onto,
                         gw_pipeline_pacing pacing, double *loss);

/** How many segments its tape has. Errors are this rank's own. */
gw_err gw_paced_count(gw_stepper *t, const gw_batch *batch, int *segments);

/** Whose turn it is to measure: ranks of one replica have other shares. Those of one replica group
 *  have the same: *group is theirs, of the ranks of which one measures. */
void gw_paced_turns(const gw_stepper *t, int *turn, int *turns, MPI_Comm *group);

/** Collective over the pacer's ranks, once all tapes are there: t->pacer->shares at rank 0. */
gw_err gw_paced_tell_shares(gw_stepper *t);

#endif
