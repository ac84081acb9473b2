/** The executor that measures: a step's arithmetic, by itself. */
#ifndef GW_STEP_EXEC_MEASURE_H
#define GW_STEP_EXEC_MEASURE_H

#include "step/step.h"

/** Fill in the tape of steps of tape->samples samples, measured on this rank alone in about
 *  `budget_s` seconds, and some least number of steps. Parameters keep their values, but for the
 *  sign of a zero; the optimizer's state does not. The sampler is left at an epoch of its own.
 *  Errors are this rank's own. */
gw_err gw_exec_measure(gw_stepper *t, gw_tape *tape, gw_sampler *sampler, double budget_s);

#endif
