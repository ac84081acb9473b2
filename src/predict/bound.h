/** The bound of a step: the least time that a mode of communication allows on this machine.
 *  docs/measurement.md has the definitions. Its parts are measured on the ranks with the run's own
 *  model, batch and session: the step without exchange, the exchange without step, and what the
 *  transport takes of a core. With these it is played (play/play.h) by two ranks and the mode's own
 *  strategy, over a link that is never idle while a bucket is ready: each bucket is one message,
 *  which takes its share of the exchange's measured time; messages have no latency and no overhead,
 *  and ranks poll all the time.
 *
 *  blocking  one exchange behind the backward pass
 *  eager     a bucket starts when the backward pass has completed it; the update waits for all
 *  lazy      the same, each layer waited for in the next forward pass
 *  priority  lazy, of the complete buckets the one nearest the input first
 *  sharded   lazy: each layer's reduce-scatter like a bucket, its allgather when its shard is
 *            updated, half of the wire's time each
 *  delayed   max(computation + transport, wire): not played, for the strategy starts the next
 *            exchange behind the update, and the gradient is ready before it
 *
 *  What the core does for a bucket, it does while the bucket is on its way: the bound is no later
 *  for a codec whose first bytes leave early. In all but the first mode the transport's own time on
 *  the computing core is computation, too. (A blocking exchange contains it: nobody computes
 *  meanwhile.) */
#ifndef GW_PREDICT_BOUND_H
#define GW_PREDICT_BOUND_H

#include "predict/profile.h"
#include "step/step.h"

#include <jansson.h>

typedef enum gw_bound_mode {
    GW_BOUND_BLOCKING,
    GW_BOUND_EAGER,
    GW_BOUND_LAZY,
    GW_BOUND_PRIORITY,
    GW_BOUND_SHARDED,
    GW_BOUND_DELAYED,
    GW_BOUND_MODES
} gw_bound_mode;

/** "blocking", "eager", ... Static string. */
const char *gw_bound_name(gw_bound_mode mode);

/** Seconds of one step on the slowest rank. */
typedef struct gw_bound_parts {
    gw_layer_times local; /* measured without exchange */
    double codec_s;       /* encoding, decoding and summing, all parts together */
    double wire_s;        /* the exchange alone, less codec_s */
    double transport_s;   /* of the computing core, moving messages; NaN: not measured, and then the
                           bound leaves it out */
    const gw_span *layers;
    int n_layers;
    size_t bucket;                 /* floats; 0: a layer each */
    double update_share;           /* sharded: what of the update a rank does; else 1 */
    double step_s[GW_BOUND_MODES]; /* the bounds, once they are played */
} gw_bound_parts;

/** Play all modes: p->step_s, to a thousandth of the computation. Local, without MPI. */
gw_err gw_bound_play(gw_bound_parts *p);

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

/** The parts and the bounds of all modes by name, for run.json and the benchmarks; null: not
 *  measured. */
json_t *gw_bound_json(const gw_bound_run *run);

#endif
