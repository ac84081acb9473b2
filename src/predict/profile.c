/* Timing a model's layers on the ranks, and the profile made of the times. */
#include "predict/profile.h"

#include "base/json.h"
#include "base/mem.h"
#include "base/stats.h"
#include "base/text.h"
#include "folder/history.h"
#include "machine/host.h"
#include "mpi/wait.h"
#include "nn/gemm.h"
#include "prof/clock.h"
#include "prof/ledger.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- measuring ---- */

enum { KERNELS = GW_COMPUTED_UPDATE + 1 };

typedef struct timer {
    const gw_layer_job *job;
    gw_pipeline *walk, *own; /* own: the job has none */
    gw_optimizer *optimizer;
    gw_samples of[KERNELS][GW_MAX_LAYERS], step;
    /* of the present step: */
    double now_s[KERNELS][GW_MAX_LAYERS];
    bool timed;
    uint64_t since; /* arithmetic began */
    gw_err failed;
} timer;

static void layers_begin(void *ctx) {
    ((timer *)ctx)->since = gw_clock_ticks();
}

static void layers_spend(void *ctx, gw_computed what, int l, size_t n) {
    timer *t = ctx;
    (void)n;
    t->now_s[what][l] += gw_clock_since(t->since);
    t->since = gw_clock_ticks();
}

static void layers_add(timer *t, gw_samples *of, double seconds) {
    if (t->timed)
        GW_THEN(t->failed, gw_samples_add(of, seconds));
}

/* At rate 0, so that every step is the same. */
static gw_err layers_step(timer *t, double *loss) {
    gw_model *m = t->job->model;
    gw_pipeline_job pass = t->job->pass;
    gw_batch_cost cost;
    if (t->job->next)
        t->job->next(t->job->ctx, &pass);
    gw_exec exec = {
        .ctx = t, .begin = layers_begin, .spend = layers_spend, .alone = true, .aside = true};
    pass.exec = &exec;
    memset(t->now_s, 0, sizeof t->now_s);
    uint64_t start = gw_clock_ticks();
    gw_ledger_begin();
    GW_TRY(gw_pipeline_step(t->walk, &pass, loss));
    gw_optimizer_begin(t->optimizer);
    for (int l = 0; l < gw_model_layers(m); l++) {
        layers_begin(t);
        gw_optimizer_update(t->optimizer, gw_model_params(m), gw_model_grads(m),
                            gw_model_spans(m)[l], 0, 1);
        layers_spend(t, GW_COMPUTED_UPDATE, l, 0);
    }
    gw_ledger_end(&cost);
    layers_add(t, &t->step, gw_clock_since(start));
    for (int w = 0; w < KERNELS; w++)
        for (int l = 0; l < gw_model_layers(m); l++)
            layers_add(t, &t->of[w][l], t->now_s[w][l]);
    GW_TRY(gw_gemm_check());
    return t->failed;
}

static gw_err layers_steps(timer *t, gw_layer_times *out) {
    const gw_layer_job *job = t->job;
    double spent_s = 0, start_s = MPI_Wtime();
    gw_err e = GW_OK;
    gw_ledger_start();
    for (int k = -job->warmup; k < job->most && (k < job->least || spent_s < job->enough_s); k++) {
        t->timed = k >= 0;
        out->steps += t->timed;
        GW_TRY(gw_barrier(job->comm));
        GW_THEN(e, layers_step(t, &out->loss));
        spent_s = MPI_Wtime() - start_s;
        GW_TRY(gw_allreduce(MPI_IN_PLACE, &spent_s, 1, MPI_DOUBLE, MPI_MAX, job->comm));
    }
    return e;
}

static double layers_of_steps(const timer *t, gw_samples *s) {
    return s->n == 0          ? 0
           : t->job->shortest ? gw_stats_typical(s->x, s->n)
                              : gw_stats_median(s->x, s->n);
}

static gw_err layers_summarize(timer *t, gw_layer_times *out) {
    const gw_shard *held = gw_model_shard(t->job->model);
    gw_stats s = gw_stats_of(t->step.x, t->step.n);
    double sums[] = {0, 0, layers_of_steps(t, &t->step), s.min / s.median, s.p95 / s.median};
    MPI_Comm comm = t->job->comm;
    for (int l = 0; l < held->n_layers; l++) {
        int number = held->layers[l].number;
        out->moved_s[number] = layers_of_steps(t, &t->of[GW_COMPUTED_UPDATE][l]);
        sums[0] += layers_of_steps(t, &t->of[GW_COMPUTED_DATA][l]);
        sums[1] += out->moved_s[number];
        out->forward_s[number] = layers_of_steps(t, &t->of[GW_COMPUTED_FORWARD][l]) +
                                 layers_of_steps(t, &t->of[GW_COMPUTED_LOSS][l]);
        out->input_s[number] = layers_of_steps(t, &t->of[GW_COMPUTED_INPUT][l]);
        out->weights_s[number] = layers_of_steps(t, &t->of[GW_COMPUTED_WEIGHTS][l]);
    }
    GW_TRY(gw_allreduce(MPI_IN_PLACE, out->forward_s, GW_MAX_LAYERS, MPI_DOUBLE, MPI_MAX, comm));
    GW_TRY(gw_allreduce(MPI_IN_PLACE, out->input_s, GW_MAX_LAYERS, MPI_DOUBLE, MPI_MAX, comm));
    GW_TRY(gw_allreduce(MPI_IN_PLACE, out->weights_s, GW_MAX_LAYERS, MPI_DOUBLE, MPI_MAX, comm));
    GW_TRY(gw_allreduce(MPI_IN_PLACE, out->moved_s, GW_MAX_LAYERS, MPI_DOUBLE, MPI_MAX, comm));
    GW_TRY(gw_allreduce(MPI_IN_PLACE, sums, 5, MPI_DOUBLE, MPI_MAX, comm));
    out->data_s = sums[0];
    out->update_s = sums[1];
    out->step_s = sums[2];
    out->other_s = sums[2] - sums[0] - sums[1];
    for (int l = 0; l < GW_MAX_LAYERS; l++)
        out->other_s -= out->forward_s[l] + gw_layer_backward_s(out, l);
    out->other_s = fmax(0, out->other_s);
    out->spread[0] = sums[3];
    out->spread[1] = sums[4];
    return GW_OK;
}

gw_err gw_layers_time(const gw_layer_job *job, gw_layer_times *out) {
    timer *t = NULL;
    *out = (gw_layer_times){0};
    GW_TRY(gw_agree(job->comm, gw_alloc(&t, 1, sizeof *t)));
    t->job = job;
    t->walk = job->walk;
    gw_err e = gw_optimizer_like(&t->optimizer, job->optimizer, gw_model_size(job->model));
    if (!job->walk) {
        GW_THEN(e, gw_pipeline_open_whole(&t->own, job->model, NULL));
        t->walk = t->own;
    }
    e = gw_agree(job->comm, e);
    if (e == GW_OK)
        e = gw_agree(job->comm, layers_steps(t, out));
    GW_THEN(e, layers_summarize(t, out));
    gw_pipeline_close(t->own);
    gw_pipeline_free(t->own);
    gw_optimizer_close(t->optimizer);
    for (int w = 0; w < KERNELS; w++)
        for (int l = 0; l < GW_MAX_LAYERS; l++)
            gw_samples_free(&t->of[w][l]);
    gw_samples_free(&t->step);
    free(t);
    return e;
}

static void layers_passes(const gw_layer_times *t, double *forward_s, double *backward_s) {
    *forward_s = *backward_s = 0;
    for (int l = 0; l < GW_MAX_LAYERS; l++) {
        *forward_s += t->forward_s[l];
        *backward_s += gw_layer_backward_s(t, l);
    }
}

double gw_layers_sum(const gw_layer_times *t) {
    double forward_s, backward_s;
    layers_passes(t, &forward_s, &backward_s);
    return t->data_s + forward_s + backward_s + t->update_s + t->other_s;
}

json_t *gw_layers_json(const gw_layer_times *t) {
    double forward_s, backward_s;
    layers_passes(t, &forward_s, &backward_s);
    return gw_json_object("data_s:f forward_s:f backward_s:f update_s:f other_s:f", t->data_s,
                          forward_s, backward_s, t->update_s, t->other_s);
}

/* ---- the profile ---- */

static double layers_deviation(const float *x, size_t n) {
    double sum = 0, squares = 0;
    for (size_t i = 0; x && i < n; i++) {
        sum += x[i];
        squares += (double)x[i] * x[i];
    }
    return x ? sqrt(fmax(0, squares / (double)n - sum / (double)n * (sum / (double)n))) : 1;
}

static int layers_tensor_count(const gw_shard *whole, int l) {
    return gw_shard_unit(whole, &whole->layers[l]).n_tensors;
}

/* A layer without parameters counts to the one below that has some, and so do those below all. */
static int layers_owner(const gw_shard *whole, int l) {
    while (l > 0 && layers_tensor_count(whole, l) == 0)
        l--;
    while (layers_tensor_count(whole, l) == 0)
        l++;
    return l;
}

/* What tensor ranks divide of tensor i of a layer, and exchange at its first and last one, as
 * gw_model_join says. */
static void layers_share(json_t *row, const gw_shard *shared, int l, int i, bool columns) {
    gw_unit u = gw_shard_unit(shared, &shared->layers[l]);
    bool sums = u.cut != GW_CUT_COLUMNS, top = l + 1 == shared->n_layers;
    gw_json_add(row, "shard:i", u.tensor[i].cut == GW_CUT_COLUMNS && u.tensor[i].rows > 1);
    if (i == 0 && sums)
        gw_json_add(row, "forward_sum:i", u.out);
    if (i == 0 && u.cut != GW_CUT_ROWS && l > 0)
        gw_json_add(row, columns ? "input_parts:i" : "backward_sum:i", u.in);
    if (i + 1 == u.n_tensors && top && !sums)
        gw_json_add(row, "forward_gather:i", GW_LOSS_TOLD * gw_model_spec_targets(&shared->spec));
}

/* A layer is a group, whose gradients come together; the first pass begins with reading the
 * samples. Nothing is shared where the model cannot be. */
static json_t *layers_tensors(const gw_layers_about *of, const gw_layer_times *t) {
    double forward_s[GW_MAX_LAYERS] = {0}, backward_s[GW_MAX_LAYERS] = {0};
    const float *grads = of->grads;
    gw_shard whole, shared;
    gw_share share = gw_share_whole(of->spec);
    json_t *all = json_array(), *before = NULL;
    if (gw_shard_of(&whole, of->spec, &share) != GW_OK)
        return all;
    share.tensor = 2;
    share.split = of->columns ? GW_SPLIT_COLUMNS : GW_SPLIT_PAIRS;
    bool shares = gw_shard_of(&shared, of->spec, &share) == GW_OK;
    for (int l = 0; l < whole.n_layers; l++) {
        forward_s[layers_owner(&whole, l)] += t->forward_s[l] + (l == 0 ? t->data_s : 0);
        backward_s[layers_owner(&whole, l)] += gw_layer_backward_s(t, l);
    }
    for (int l = 0, number = 0, group = 0; l < whole.n_layers; l++) {
        gw_unit u = gw_shard_unit(&whole, &whole.layers[l]);
        if (u.n_tensors > 0 && before) /* behind a layer, what the next one reads */
            gw_json_add(before, "activation:i", gw_model_spec_width(of->spec, l - 1));
        for (int i = 0; i < u.n_tensors; i++, number++) {
            int rows = u.tensor[i].rows, cols = u.tensor[i].cols;
            size_t n = (size_t)rows * (size_t)cols;
            char name[32];
            snprintf(name, sizeof name, "layer%d.%d", l, number);
            before = gw_json_object(
                "name:s shape:o group:i forward_s:f backward_s:f std:f", name,
                rows > 1 ? json_pack("[i, i]", rows, cols) : json_pack("[i]", cols), group,
                i == 0 ? forward_s[l] : 0, i + 1 == u.n_tensors ? backward_s[l] : 0,
                layers_deviation(grads, n));
            if (shares)
                layers_share(before, &shared, l, i, of->columns);
            grads = grads ? grads + n : NULL;
            json_array_append_new(all, before);
        }
        group += u.n_tensors > 0;
    }
    return all;
}

gw_err gw_layers_profile(const gw_layers_about *of, const gw_layer_times *t, gw_step_profile *out) {
    char utc[GW_UTC], model[200];
    gw_host host;
    gw_host_facts(&host);
    gw_utc_now(utc);
    utc[strlen("2026-01-01")] = '\0';
    gw_text_print(model, sizeof model, "%s%s%s", of->name, of->layers ? " --layers " : "",
                  of->layers ? of->layers : "");
    json_t *document = gw_json_object(
        "schema:i model:s source:s device:s machine:s date:s torch:s threads:i batch:i steps:i "
        "optimizer_s:f tensors:o",
        1, model, "gradwire bench layers: random samples, first weights", "cpu",
        *host.cpu_model ? host.cpu_model : "unknown", utc, NULL, of->threads, of->batch, t->steps,
        t->update_s, layers_tensors(of, t));
    return gw_step_profile_take(out, document, "the measured step");
}
