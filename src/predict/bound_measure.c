#include "predict/bound_measure.h"

#include "base/json.h"
#include "base/mem.h"
#include "base/stats.h"
#include "machine/transport.h"
#include "mpi/wait.h"
#include "prof/ledger.h"
#include "step/snapshot.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { WARMUP = 1, LEAST = 3, MOST = 51 };
#define ENOUGH_S 0.3

/* ---- modes ---- */

static bool bound_by_priority(const gw_inside_facts *s) {
    return gw_args_has(s->plan.args, "order") &&
           strcmp(gw_args_text(s->plan.args, "order"), "priority") == 0;
}

static bool bound_known(const gw_strategy_ops *ops) {
    return ops->shape != GW_SHAPE_OTHER || ops->gives == GW_GIVES_PARTS;
}

gw_err gw_bound_of(const gw_inside_facts *s, bool lazy, gw_bound_mode *mode) {
    char names[GW_STRATEGY_NAMES];
    if (!bound_known(&(gw_strategy_ops){.shape = s->shape, .gives = s->gives}))
        return gw_fail(GW_ERR_UNSUPPORTED,
                       "no bound is known for a step with --comm %s, only with %s", s->strategy,
                       gw_strategy_names(bound_known, names));
    if (s->gives == GW_GIVES_LATE)
        *mode = GW_BOUND_DELAYED;
    else if (s->gives == GW_GIVES_PARTS)
        *mode = lazy ? GW_BOUND_SHARDED : GW_BOUND_BLOCKING;
    else if (s->shape == GW_SHAPE_WHOLE)
        *mode = GW_BOUND_BLOCKING;
    else if (!lazy)
        *mode = GW_BOUND_EAGER;
    else
        *mode = bound_by_priority(s) ? GW_BOUND_PRIORITY : GW_BOUND_LAZY;
    return GW_OK;
}

/* Floats; 0: a layer each, or all at once. */
static size_t bound_bucket(const gw_inside_facts *s) {
    return s->shape == GW_SHAPE_BUCKETS ? gw_args_bytes(s->plan.args, "bucket") / sizeof(float) : 0;
}

/* ---- the exchange without a step ---- */

typedef struct exchange {
    gw_stepper *stepper;
    MPI_Comm comm;
    float *gradient;
    size_t owned; /* floats that this rank would update */
} exchange;

/* As a blocking step has it, but nothing is computed. */
static gw_err bound_time_once(exchange *x, gw_batch_cost *cost) {
    GW_TRY(gw_step_offer(x->stepper, x->gradient));
    GW_TRY(gw_barrier(x->comm));
    gw_ledger_begin();
    gw_err e = gw_step_exchange(x->stepper, &x->owned);
    gw_ledger_end(cost);
    return e;
}

static gw_err bound_time_exchange(exchange *x, gw_bound_run *out) {
    double wall[MOST], codec[MOST], spent = 0, start = MPI_Wtime();
    int n = 0;
    for (int k = -WARMUP; n < MOST && (n < LEAST || spent < ENOUGH_S); k++) {
        gw_batch_cost c;
        GW_TRY(bound_time_once(x, &c));
        double s[] = {c.wall_s, c.phase_s[GW_PHASE_ENCODE] + c.phase_s[GW_PHASE_DECODE],
                      MPI_Wtime() - start};
        GW_TRY(gw_allreduce(MPI_IN_PLACE, s, 3, MPI_DOUBLE, MPI_MAX, x->comm));
        spent = s[2];
        if (k < 0)
            continue;
        out->wire_bytes = (double)c.wire_bytes;
        wall[n] = s[0];
        codec[n++] = s[1];
    }
    out->parts.codec_s = gw_stats_typical(codec, n);
    out->parts.wire_s = fmax(0, gw_stats_typical(wall, n) - out->parts.codec_s);
    return GW_OK;
}

/* ---- all parts ---- */

static gw_err bound_put_together(exchange *x, bool oversubscribed, gw_bound_run *out) {
    double byte_s, size = (double)gw_model_size(x->stepper->model);
    int ranks;
    GW_MPI(MPI_Comm_size(x->comm, &ranks));
    GW_TRY(bound_time_exchange(x, out));
    GW_TRY(gw_transport_byte(oversubscribed, x->comm, &byte_s));
    double mean[2] = {out->wire_bytes / ranks, (double)x->owned / size / ranks};
    GW_TRY(gw_allreduce(MPI_IN_PLACE, mean, 2, MPI_DOUBLE, MPI_SUM, x->comm));
    out->wire_bytes = mean[0];
    out->parts.update_share = mean[1] > 0 ? mean[1] : 1; /* delayed: the first step updates none */
    /* An algorithm that sends nothing (shm) moves bytes in a way that was not measured. */
    out->parts.transport_s = out->wire_bytes > 0 ? byte_s * out->wire_bytes : NAN;
    return gw_agree(x->comm, gw_bound_play(&out->parts));
}

/* The gradient of the last step without exchange is what is exchanged. */
static gw_err bound_measure_parts(exchange *x, const gw_layer_job *steps, bool oversubscribed,
                                  bool *own, gw_bound_run *out) {
    gw_model *model = x->stepper->model;
    gw_layer_job job = *steps;
    job.warmup = 2;
    job.least = 5;
    job.most = 99;
    job.enough_s = 0.5;
    job.shortest = true;
    GW_TRY(gw_layers_time(&job, &out->parts.local));
    memcpy(x->gradient, gw_model_grads(model), gw_model_size(model) * sizeof(float));
    gw_err e = bound_put_together(x, oversubscribed, out);
    *own = e != GW_OK;
    return e;
}

gw_err gw_bound_measure(gw_bound_run *out, gw_stepper *stepper, const gw_layer_job *steps,
                        bool oversubscribed, bool *own) {
    exchange x = {.stepper = stepper, .comm = steps->comm};
    const gw_model *model = stepper->model;
    gw_snapshot before = {0};
    *out = (gw_bound_run){.parts = {.layers = gw_model_spans(model),
                                    .n_layers = gw_model_layers(model),
                                    .bucket = bound_bucket(&stepper->is)}};
    GW_TRY(gw_bound_of(&stepper->is, stepper->lazy, &out->mode));
    gw_err e = gw_alloc(&x.gradient, gw_model_size(model), sizeof *x.gradient);
    GW_THEN(e, gw_snapshot_take(&before, stepper));
    e = gw_agree(x.comm, e);
    GW_THEN(e, bound_measure_parts(&x, steps, oversubscribed, own, out));
    GW_THEN(e, gw_agree(x.comm, gw_snapshot_put(&before, stepper)));
    out->measured = e == GW_OK;
    gw_snapshot_free(&before);
    free(x.gradient);
    return e;
}

json_t *gw_bound_run_json(const gw_bound_run *run) {
    if (!run->measured)
        return json_null();
    return gw_json_add(gw_bound_json(&run->parts), "mode:s bound_s:f wire_bytes:f how:s",
                       gw_bound_name(run->mode), run->parts.step_s[run->mode], run->wire_bytes,
                       "measured before the first step: the step without exchange, the exchange "
                       "without step, the transport on a busy core; the bounds are played by "
                       "docs/measurement.md, bound of a step");
}
