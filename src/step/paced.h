/** A paced run (--pace): the arithmetic of each step is done outside the clock, for real, and in
 *  the clock the rank sleeps for the time that it takes on a free core (machine/pacer.h): the same
 *  walk, by two executors (step/exec/sleep.h). Losses, gradients and what is sent are those of the
 *  same run without --pace, to the bit.
 *
 *  Gradients are computed to where a step would put them, and announced layer by layer when the
 *  clock gets there. Nothing that an exchange still needs lies there, unless an exchange may last
 *  longer than its step (GW_STRATEGY_LATE): then they are computed elsewhere, copied within their
 *  layer's time, and what a step starts when it is over starts with the clock of the next one, lest
 *  it be exchanged while the clock stands still.
 *
 *  Over a mesh a step's arithmetic takes messages. They are sent outside the clock, too, and then
 *  again within it, with the same contents.
 *
 *  The update is done outside the clock, too, unless others get what it computes, or it comes as
 *  lists: then it is done in the clock, and its time is topped up. */
#ifndef GW_STEP_PACED_H
#define GW_STEP_PACED_H

#include "step/step.h"

/** GW_ERR_UNSUPPORTED: what --pace cannot be combined with. */
gw_err gw_paced_refuse(const gw_train_config *c, const gradwire *g);

/** Collective, before the first step: measure the times of the local batches that occur, on one
 *  rank while all others sleep (one of each share of the model), and set t->pacer. The run's state
 *  stays as it is, but the sampler is left at an epoch of its own. */
gw_err gw_paced_open(gw_stepper *t, double factor, gw_sampler *sampler, MPI_Comm comm);
void gw_paced_close(gw_stepper *t);

/** Collective, outside the clock, before gw_step on this batch: compute it, and wait until this
 *  rank's clock starts. Errors are this rank's own. */
gw_err gw_paced_prepare(gw_stepper *t, const gw_batch *batch);

#endif
