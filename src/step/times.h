/** What the arithmetic of a step takes, kernel by kernel: for a clock that is virtual. */
#ifndef GW_STEP_TIMES_H
#define GW_STEP_TIMES_H

#include "step/step.h"

/** Plain data. */
typedef struct gw_step_times {
    double of[GW_COMPUTED_UPDATE][GW_MAX_LAYERS]; /* seconds per sample, by layer held here */
    double update_s;                              /* per parameter */
} gw_step_times;

/** Measure steps of this rank's largest local batch, on this rank alone, in about `budget_s`
 *  seconds and some least number of steps. What a step changes is put back; the sampler is left at
 *  epoch 0. Each figure is a median over the steps. */
gw_err gw_step_times_measure(gw_step_times *out, gw_stepper *t, gw_sampler *sampler,
                             double budget_s);

#endif
