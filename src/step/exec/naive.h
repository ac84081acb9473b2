/** The executor that is a whole step of its own: the naive backend computes, exchanges and updates
 *  all of the model at once (naive/naive.h). The guard sees
 *  the loss only: a gradient that is not finite shows in the next loss, or in the parameters when
 *  replicas are compared. */
#ifndef GW_STEP_EXEC_NAIVE_H
#define GW_STEP_EXEC_NAIVE_H

#include "step/step.h"

/** A step within the caller's ledger batch. */
gw_err gw_exec_naive(gw_stepper *t, const gw_batch *batch, float lr, double *loss_sum);

#endif
