/** Measuring the step without exchange, of which a bound is made (select/bound.h). */
#ifndef GW_SELECT_SURVEY_H
#define GW_SELECT_SURVEY_H

#include "select/local.h"
#include "step/step.h"

/** A step to be measured. `stepper` is not changed; `step` runs one, with learning rate 0, by the
 *  stepper that it is given. */
typedef struct gw_rehearsal {
    gw_stepper *stepper;
    gw_err (*step)(void *ctx, gw_stepper *by);
    void *ctx;
    MPI_Comm comm;
} gw_rehearsal;

/** Collective: run some steps on every rank for itself, by a stepper of its own on the same model,
 *  and time them with the ledger. Afterwards the model works on params[0..n), which hold its
 *  parameters as they were, and gradient[0..n), which hold the last gradient; gw_step_use makes it
 *  work for the other stepper again. Starts the ledger anew. */
gw_err gw_survey_step(const gw_rehearsal *r, float *params, float *gradient, gw_local *out);

#endif
