/* Measuring a step's arithmetic without messages: the walk over the model tells what it has just
 * computed, and the machine's clock how long that took. */
#include "step/times.h"

#include "base/mem.h"
#include "base/stats.h"
#include "nn/gemm.h"
#include "prof/clock.h"
#include "step/snapshot.h"

#include <stdlib.h>
#include <string.h>

enum { WARMUP = 2, LEAST_STEPS = 7, MOST_STEPS = 101, KERNELS = GW_COMPUTED_UPDATE };

typedef struct taking {
    gw_stepper *t;
    uint64_t since;                      /* the present region's begin */
    double now[KERNELS][GW_MAX_LAYERS];  /* seconds of this step, */
    size_t rows[KERNELS][GW_MAX_LAYERS]; /* and samples */
    gw_samples of[KERNELS][GW_MAX_LAYERS], update;
    gw_err failed;
} taking;

static bool times_begin(void *ctx, gw_phase phase) {
    taking *k = ctx;
    (void)phase;
    k->since = gw_clock_ticks();
    return true;
}

static void times_spend(void *ctx, gw_computed what, int l, size_t n) {
    taking *k = ctx;
    k->now[what][l] += gw_clock_since(k->since);
    k->rows[what][l] += n;
    k->since = gw_clock_ticks();
}

static void times_onto(void *ctx, float **grads, bool *add) {
    taking *k = ctx;
    *grads = gw_model_grads(k->t->model);
    *add = false;
}

/* At rate 0, so that no parameter moves. */
static void times_update(taking *k) {
    gw_stepper *t = k->t;
    gw_span all = {0, gw_model_size(t->model)};
    uint64_t start = gw_clock_ticks();
    gw_optimizer_begin(t->optimizer);
    gw_optimizer_update(t->optimizer, gw_model_params(t->model), gw_model_grads(t->model), all, 0,
                        1);
    GW_THEN(k->failed, gw_samples_add(&k->update, gw_clock_since(start) / (double)all.n));
}

static gw_err times_step(taking *k, const gw_batch *batch) {
    gw_exec exec = {
        .ctx = k, .begin = times_begin, .spend = times_spend, .alone = true, .aside = true};
    gw_pipeline_hooks hooks = {.ctx = k, .begin = times_onto};
    gw_pipeline_job job = gw_step_job(k->t, batch);
    double loss;
    memset(k->now, 0, sizeof k->now);
    memset(k->rows, 0, sizeof k->rows);
    GW_TRY(gw_pipeline_step_by(k->t->pipeline, &job, &exec, &hooks, &loss));
    times_update(k);
    for (int w = 0; w < KERNELS; w++)
        for (int l = 0; l < gw_model_layers(k->t->model); l++)
            if (k->rows[w][l] > 0)
                GW_THEN(k->failed,
                        gw_samples_add(&k->of[w][l], k->now[w][l] / (double)k->rows[w][l]));
    GW_THEN(k->failed, gw_gemm_check());
    return k->failed;
}

static void times_forget(taking *k) {
    k->update.n = 0;
    for (int w = 0; w < KERNELS; w++)
        for (int l = 0; l < GW_MAX_LAYERS; l++)
            k->of[w][l].n = 0;
}

static gw_err times_take(taking *k, gw_sampler *sampler, double budget_s) {
    uint64_t start = gw_clock_ticks();
    for (int i = 0; i < WARMUP + MOST_STEPS; i++) {
        gw_batch batch = gw_sampler_batch(sampler, i % gw_sampler_full(sampler));
        if (i == WARMUP) {
            times_forget(k);
            start = gw_clock_ticks();
        }
        GW_TRY(times_step(k, &batch));
        if (i - WARMUP + 1 >= LEAST_STEPS && gw_clock_since(start) > budget_s)
            break;
    }
    return GW_OK;
}

static double times_median(const gw_samples *s) {
    return s->n > 0 ? gw_stats_median(s->x, s->n) : 0;
}

gw_err gw_step_times_measure(gw_step_times *out, gw_stepper *t, gw_sampler *sampler,
                             double budget_s) {
    gw_snapshot kept = {.alone = true};
    taking *k = NULL;
    *out = (gw_step_times){0};
    GW_TRY(gw_alloc(&k, 1, sizeof *k));
    k->t = t;
    gw_sampler_epoch(sampler, 0);
    gw_err e = gw_snapshot_take(&kept, t);
    GW_THEN(e, times_take(k, sampler, budget_s));
    GW_THEN(e, gw_snapshot_put(&kept, t));
    gw_snapshot_free(&kept);
    memset(gw_model_grads(t->model), 0, gw_model_size(t->model) * sizeof(float));
    out->update_s = times_median(&k->update);
    gw_samples_free(&k->update);
    for (int w = 0; w < KERNELS; w++)
        for (int l = 0; l < GW_MAX_LAYERS; l++) {
            out->of[w][l] = times_median(&k->of[w][l]);
            gw_samples_free(&k->of[w][l]);
        }
    free(k);
    return e;
}
