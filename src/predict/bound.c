#include "predict/bound.h"

#include "base/json.h"
#include "base/mem.h"
#include "base/text.h"
#include "comm/strategy/plain.h"
#include "links/transport.h"
#include "mpi/wait.h"
#include "play/options.h"
#include "prof/ledger.h"
#include "step/snapshot.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { RANKS = 2, STEPS = 6 };
enum { PARTS = 256 };                      /* of a model, where layers are the parts */
enum { POLLS = 32768 };                    /* of a step in which buckets wait for the link */
enum { WARMUP = 1, LEAST = 3, MOST = 51 }; /* exchanges that are timed */
#define ENOUGH_S 0.3

const char *gw_bound_name(gw_bound_mode mode) {
    static const char *const names[GW_BOUND_MODES] = {
        [GW_BOUND_BLOCKING] = "blocking", [GW_BOUND_EAGER] = "eager",
        [GW_BOUND_LAZY] = "lazy",         [GW_BOUND_PRIORITY] = "priority",
        [GW_BOUND_SHARDED] = "sharded",   [GW_BOUND_DELAYED] = "delayed",
    };
    return names[mode];
}

/* ---- the step, as a profile ---- */

static size_t bound_floats(const gw_bound_parts *p) {
    return gw_span_end(p->layers[p->n_layers - 1]);
}

/* Computation and codec: what the core has to do whatever the mode. */
static double bound_computation(const gw_bound_parts *p) {
    return gw_layers_sum(&p->local) + p->codec_s;
}

/* What the core does for the buckets that are on their way. */
static double bound_beside(const gw_bound_parts *p, gw_bound_mode mode) {
    bool moves = mode != GW_BOUND_BLOCKING && !isnan(p->transport_s);
    return p->codec_s + (moves ? p->transport_s : 0);
}

/* A tensor for each layer that has parameters. Its gradient is there when the layers above have
 * computed their input's and it has computed its own; what lies above it in the forward pass, up to
 * the next tensor, follows it. */
static void bound_profile(const gw_bound_parts *p, gw_bound_mode mode, gw_step_profile *out) {
    const gw_layer_times *t = &p->local;
    double floats = (double)bound_floats(p), beside_s = bound_beside(p, mode);
    double since_s = 0, follows_s = 0; /* the tensor above was ready; forward passes without one */
    int polls = mode == GW_BOUND_PRIORITY ? POLLS : 1; /* others begin all that is ready */
    *out = (gw_step_profile){.model = "measured",
                             .batch = 1,
                             .n = bound_floats(p),
                             .tensor = out->tensor,
                             .ahead = true,
                             .poll_s = fmax(bound_computation(p) / polls, 1e-9)};
    for (int l = 0; l < p->n_layers; l++)
        out->groups = out->n_tensors += p->layers[l].n > 0;
    for (int l = p->n_layers - 1, group = out->n_tensors; l >= 0; l--) {
        size_t n = p->layers[l].n;
        follows_s += t->forward_s[l];
        if (n > 0) {
            group--;
            out->tensor[group] = (gw_step_tensor){.name = "layer",
                                                  .group = group,
                                                  .n = n,
                                                  .forward_s = follows_s,
                                                  .backward_s = since_s + t->weights_s[l],
                                                  .std = 1};
            since_s = beside_s * (double)n / floats;
            follows_s = 0;
        }
        since_s += t->input_s[l];
    }
    out->rest_s = since_s;
    out->data_s = t->data_s + t->other_s + follows_s;
    /* Of two ranks each updates half where they share it. */
    out->optimizer_s = t->update_s * p->update_share * (mode == GW_BOUND_SHARDED ? RANKS : 1);
}

/* ---- the exchange ---- */

/* A bucket is one message: between two ranks `doubling` sends all there is, `ring` its halves. */
static void bound_comm(const gw_bound_parts *p, gw_bound_mode mode, char *text, size_t size) {
    const char *name = GW_STRATEGY_PLAIN;
    size_t bucket = p->bucket ? p->bucket : 1 + bound_floats(p) / PARTS;
    for (const gw_entry *const *e = gw_strategies.entries; *e && mode != GW_BOUND_BLOCKING; e++) {
        const gw_strategy_ops *s = (const gw_strategy_ops *)*e;
        if (mode == GW_BOUND_SHARDED ? s->gives == GW_GIVES_PARTS
                                     : s->shape == GW_SHAPE_BUCKETS && s->gives == GW_GIVES_MEAN)
            name = (*e)->name;
    }
    size_t at = gw_text_print(text, size, "%s:algo=(%s)", name,
                              mode == GW_BOUND_SHARDED ? "ring:chunk=0" : "doubling");
    if (mode != GW_BOUND_BLOCKING && mode != GW_BOUND_SHARDED)
        at += gw_text_print(text + at, size - at, ",bucket=%zu", bucket * sizeof(float));
    if (mode == GW_BOUND_PRIORITY)
        gw_text_print(text + at, size - at, ",order=priority,credit=4");
}

gw_err gw_bound_play(gw_bound_parts *p) {
    gw_step_profile profile = {0};
    gw_err e = gw_alloc(&profile.tensor, (size_t)p->n_layers, sizeof *profile.tensor);
    double bytes_per_s = (double)(bound_floats(p) * sizeof(float)) / fmax(p->wire_s, 1e-12);
    double core_s = gw_layers_sum(&p->local) - (1 - p->update_share) * p->local.update_s;
    for (int m = 0; m < GW_BOUND_DELAYED && e == GW_OK; m++) {
        gw_bound_mode mode = (gw_bound_mode)m;
        gw_sim_play play = {.world = {.ranks = RANKS, .link.bytes_per_s = bytes_per_s},
                            .script = {.profile = &profile,
                                       .lazy = mode != GW_BOUND_BLOCKING && mode != GW_BOUND_EAGER,
                                       .sleeps = true,
                                       .speed = 1},
                            .steps = STEPS};
        char comm[160];
        bound_profile(p, mode, &profile);
        bound_comm(p, mode, comm, sizeof comm);
        e = gw_sim_play_exact(&play, comm);
        p->step_s[m] = play.step_s;
    }
    free(profile.tensor);
    p->step_s[GW_BOUND_DELAYED] = fmax(core_s + bound_beside(p, GW_BOUND_DELAYED), p->wire_s);
    return e;
}

/* ---- the mode of a run ---- */

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
        *mode = gw_args_has(s->plan.args, "order") &&
                        strcmp(gw_args_text(s->plan.args, "order"), "priority") == 0
                    ? GW_BOUND_PRIORITY
                    : GW_BOUND_LAZY;
    return GW_OK;
}

/* ---- measuring all parts ---- */

/* The exchange of `gradient` without a step, as a blocking step has it, but nothing is computed;
 * and the transport. */
static gw_err bound_measure_parts(gw_stepper *stepper, const float *gradient, MPI_Comm comm,
                                  bool oversubscribed, gw_bound_run *out) {
    double byte_s, size = (double)gw_model_size(stepper->model);
    size_t owned;
    int ranks;
    GW_MPI(MPI_Comm_size(comm, &ranks));
    double wall[MOST], codec[MOST], spent = 0, start = MPI_Wtime();
    int n = 0;
    for (int k = -WARMUP; n < MOST && (n < LEAST || spent < ENOUGH_S); k++) {
        gw_batch_cost c;
        GW_TRY(gw_step_offer(stepper, gradient));
        GW_TRY(gw_barrier(comm));
        gw_ledger_begin();
        gw_err e = gw_step_exchange(stepper, &owned);
        gw_ledger_end(&c);
        GW_TRY(e);
        double s[] = {c.wall_s, c.phase_s[GW_PHASE_ENCODE] + c.phase_s[GW_PHASE_DECODE],
                      MPI_Wtime() - start};
        GW_TRY(gw_allreduce(MPI_IN_PLACE, s, 3, MPI_DOUBLE, MPI_MAX, comm));
        spent = s[2];
        if (k < 0)
            continue;
        out->wire_bytes = (double)c.wire_bytes;
        wall[n] = s[0];
        codec[n++] = s[1];
    }
    out->parts.codec_s = gw_stats_typical(codec, n);
    out->parts.wire_s = fmax(0, gw_stats_typical(wall, n) - out->parts.codec_s);
    GW_TRY(gw_transport_byte(oversubscribed, comm, &byte_s));
    double mean[2] = {out->wire_bytes / ranks, (double)owned / size / ranks};
    GW_TRY(gw_allreduce(MPI_IN_PLACE, mean, 2, MPI_DOUBLE, MPI_SUM, comm));
    out->wire_bytes = mean[0];
    out->parts.update_share = mean[1] > 0 ? mean[1] : 1; /* delayed: the first step updates none */
    /* An algorithm that sends nothing (shm) moves bytes in a way that was not measured. */
    out->parts.transport_s = out->wire_bytes > 0 ? byte_s * out->wire_bytes : NAN;
    return gw_agree(comm, gw_bound_play(&out->parts));
}

gw_err gw_bound_measure(gw_bound_run *out, gw_stepper *stepper, const gw_layer_job *steps,
                        bool oversubscribed, bool *own) {
    const gw_inside_facts *is = &stepper->is;
    const gw_model *model = stepper->model;
    gw_snapshot before = {0};
    float *gradient = NULL;
    gw_layer_job job = *steps;
    job.warmup = 2;
    job.least = 5;
    job.most = 99;
    job.enough_s = 0.5;
    job.shortest = true;
    *out = (gw_bound_run){
        .parts = {.layers = gw_model_spans(model), .n_layers = gw_model_layers(model)}};
    if (is->shape == GW_SHAPE_BUCKETS)
        out->parts.bucket = gw_args_bytes(is->plan.args, "bucket") / sizeof(float);
    GW_TRY(gw_bound_of(is, stepper->lazy, &out->mode));
    gw_err e = gw_alloc(&gradient, gw_model_size(model), sizeof *gradient);
    GW_THEN(e, gw_snapshot_take(&before, stepper));
    e = gw_agree(job.comm, e);
    GW_THEN(e, gw_layers_time(&job, &out->parts.local));
    if (e == GW_OK) {
        /* what the last of these steps leaves is exchanged */
        memcpy(gradient, gw_model_grads(stepper->model), gw_model_size(model) * sizeof *gradient);
        e = bound_measure_parts(stepper, gradient, job.comm, oversubscribed, out);
        *own = e != GW_OK;
    }
    GW_THEN(e, gw_agree(job.comm, gw_snapshot_put(&before, stepper)));
    out->measured = e == GW_OK;
    gw_snapshot_free(&before);
    free(gradient);
    return e;
}

json_t *gw_bound_json(const gw_bound_run *run) {
    const gw_bound_parts *p = &run->parts;
    if (!run->measured)
        return json_null();
    json_t *modes = json_object();
    for (int m = 0; m < GW_BOUND_MODES; m++)
        json_object_set_new(modes, gw_bound_name((gw_bound_mode)m), gw_json_number(p->step_s[m]));
    return gw_json_object(
        "local:o computation_s:f codec_s:f wire_s:f transport_s:f update_share:f bucket_floats:I "
        "modes:o mode:s bound_s:f wire_bytes:f how:s",
        gw_layers_json(&p->local), bound_computation(p), p->codec_s, p->wire_s, p->transport_s,
        p->update_share, (json_int_t)p->bucket, modes, gw_bound_name(run->mode),
        p->step_s[run->mode], run->wire_bytes,
        "measured before the first step: the step without exchange, the exchange without step, the "
        "transport on a busy core; the bounds are played by docs/measurement.md, bound of a step");
}
