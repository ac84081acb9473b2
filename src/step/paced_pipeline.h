/** Inside step/paced.c: the walk of a step outside the clock, and what there is to do where ranks
 *  hold parts of the model: each has a share of its own, measured on one rank at a time. */
#ifndef GW_STEP_PACED_PIPELINE_H
#define GW_STEP_PACED_PIPELINE_H

#include "step/step.h"

/** Where gradients go. */
typedef struct gw_paced_onto {
    float *grads;
    bool add;
} gw_paced_onto;

/** A step's arithmetic on `batch` by `exec`, outside the clock. Collective over a replica, unless
 *  it is alone. *loss: as of gw_pipeline_step. */
gw_err gw_paced_walk(gw_stepper *t, const gw_batch *batch, gw_paced_onto onto, const gw_exec *exec,
                     double *loss);

/** Whose turn it is to measure: ranks of one replica have other shares. Those of one replica group
 *  have the same: *group is theirs, of the ranks of which one measures. */
void gw_paced_turns(const gw_stepper *t, int *turn, int *turns, MPI_Comm *group);

/** Collective over the pacer's ranks, once all tapes are there: t->pacer->shares at rank 0. */
gw_err gw_paced_tell_shares(gw_stepper *t);

#endif
