/** The parts of the bound of a step (predict/bound.h), measured on the ranks with the run's own
 *  model, batch and session: the step without exchange, the exchange without step, and what the
 *  transport takes of a core. */
#ifndef GW_PREDICT_BOUND_MEASURE_H
#define GW_PREDICT_BOUND_MEASURE_H

#include "predict/bound.h"
#include "step/step.h"

/** The bound of a run; zeroed: not asked for. */
typedef struct gw_bound_run {
    bool measured;
    gw_bound_mode mode; /* of the session */
    gw_bound_parts parts;
    double wire_bytes; /* that a rank sends in a step, mean */
} gw_bound_run;

/** No MPI call: the mode of an exchange. GW_ERR_UNSUPPORTED: no bound is known for its strategy. */
gw_err gw_bound_of(const gw_inside_facts *s, bool lazy, gw_bound_mode *mode);

/** Collective over the ranks of `steps`, while nothing is pending: measure with the stepper, whose
 *  session is open and which takes such steps; all that a step changes is put back. `steps` need
 *  not say how many. Starts the ledger anew. *own: the error is this rank's alone. */
gw_err gw_bound_measure(gw_bound_run *out, gw_stepper *stepper, const gw_layer_job *steps,
                        bool oversubscribed, bool *own);

/** For run.json and the benchmarks; null: not measured. */
json_t *gw_bound_run_json(const gw_bound_run *run);

#endif
