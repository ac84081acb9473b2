/** The executor that is a whole step of its own: the naive backend computes, exchanges and updates
 *  all of the model at once (naive/naive.h), paced or not. */
#ifndef GW_STEP_EXEC_NAIVE_H
#define GW_STEP_EXEC_NAIVE_H

#include "step/step.h"

/** Compute a batch's gradient; returns the sum of its losses. The guard sees the loss alone: a
 *  gradient that is not finite shows in the next loss, or in the parameters when replicas are
 *  compared. */
double gw_exec_naive_compute(gw_stepper *t, const gw_batch *batch);

/** A step within the caller's ledger batch; of a paced run gw_paced_prepare has computed it. */
gw_err gw_exec_naive(gw_stepper *t, const gw_batch *batch, float lr, double *loss_sum);

#endif
