/* The tape of a paced run: a step's arithmetic without messages, in the pieces that it is computed
 * in. */
#include "step/exec/measure.h"

#include "base/mem.h"
#include "base/stats.h"
#include "nn/gemm.h"
#include "prof/clock.h"
#include "step/exec/naive.h"
#include "step/paced_pipeline.h"
#include "watch/watchdog.h"

#include <stdlib.h>

enum {
    WARMUP = 3,
    LEAST_STEPS = 7,
    MOST_STEPS = 201,
    MOST_PIECES = 1 << 16 /* of a step; a product is rarely cut into more than some dozens */
};

/* Steps of one size of batch. */
typedef struct take {
    gw_stepper *t;
    gw_tape *tape;
    int segment, piece; /* of the present step */
    gw_phase *phase;    /* of each segment; of the naive backend NULL */
    int step;           /* 0: it finds the pieces */
    uint64_t since;
    gw_samples update;
    gw_samples *by_piece; /* seconds in each step */
    bool odd;             /* a step had other pieces than the first */
    gw_err failed;
} take;

/* A piece ended. */
static void take_piece(void *ctx) {
    take *k = ctx;
    double s = gw_clock_since(k->since);
    if (k->step == 0)
        GW_THEN(k->failed, gw_samples_add(&k->tape->s, s));
    else if (k->piece < k->tape->s.n)
        GW_THEN(k->failed, gw_samples_add(&k->by_piece[k->piece], s));
    else
        k->odd = true;
    k->piece++;
    k->tape->pieces[k->segment] += k->step == 0;
    k->since = gw_clock_ticks();
}

static void take_segment(void *ctx) {
    take *k = ctx;
    take_piece(k);
    k->segment++;
}

static bool take_begin(void *ctx, gw_phase phase) {
    take *k = ctx;
    (void)phase;
    k->since = gw_clock_ticks();
    return true;
}

static void take_end(void *ctx, gw_phase phase) {
    take *k = ctx;
    k->phase[k->segment] = phase;
    take_segment(k);
}

static void take_between(void *ctx, void (*poll)(void *of), void *of) {
    (void)of;
    gw_gemm_between(poll ? take_piece : NULL, ctx);
}

static gw_err take_arithmetic(take *k, const gw_batch *batch) {
    gw_stepper *t = k->t;
    gw_paced_onto onto = {gw_model_grads(t->model), t->is.adds};
    gw_exec exec = {.ctx = k,
                    .begin = take_begin,
                    .end = take_end,
                    .between = take_between,
                    .alone = true,
                    .aside = true};
    double loss;
    if (!t->naive)
        return gw_paced_walk(t, batch, onto, &exec, &loss);
    take_begin(k, GW_PHASE_BACKWARD);
    gw_exec_naive_compute(t, batch);
    take_segment(k);
    return GW_OK;
}

/* At rate 0, so that no parameter moves. */
static void take_update(take *k) {
    gw_span all = {0, gw_model_size(k->t->model)};
    uint64_t start = gw_clock_ticks();
    if (k->t->naive)
        gw_naive_descend(k->t->naive, 0);
    else
        gw_optimizer_update(k->t->optimizer, gw_model_params(k->t->model),
                            gw_model_grads(k->t->model), all, 0, 1);
    GW_THEN(k->failed, gw_samples_add(&k->update, gw_clock_since(start)));
}

static gw_err take_step(take *k, const gw_batch *batch) {
    k->segment = k->piece = 0;
    GW_TRY(take_arithmetic(k, batch));
    if (k->step == 0 && k->tape->s.n <= MOST_PIECES)
        GW_THEN(k->failed, gw_alloc(&k->by_piece, (size_t)k->tape->s.n, sizeof *k->by_piece));
    take_update(k);
    GW_THEN(k->failed, gw_gemm_check());
    if (k->failed == GW_OK && (k->odd || k->piece != k->tape->s.n || !k->by_piece))
        k->failed = gw_fail(GW_ERR_INTERNAL, "pace: a step of %d samples had %d pieces, then %d",
                            k->tape->samples, k->tape->s.n, k->piece);
    k->step++;
    gw_watchdog_beat();
    return k->failed;
}

/* Each piece's median; all of them scaled so that they add up to the median step. */
static gw_err take_medians(take *k) {
    int n = k->by_piece[0].n;
    double *steps = NULL, sum = 0;
    GW_TRY(gw_alloc(&steps, (size_t)n, sizeof *steps));
    for (int i = 0; i < k->tape->s.n; i++) {
        for (int s = 0; s < n; s++)
            steps[s] += k->by_piece[i].x[s];
        k->tape->s.x[i] = gw_stats_median(k->by_piece[i].x, n);
        sum += k->tape->s.x[i];
    }
    double whole = gw_stats_median(steps, n);
    for (int i = 0; i < k->tape->s.n; i++)
        k->tape->s.x[i] *= whole / sum;
    for (int g = 0, i = 0; k->phase && g < k->tape->segments; g++) {
        k->tape->in_phase[k->phase[g]]++;
        for (int p = 0; p < k->tape->pieces[g]; p++)
            k->tape->phase_s[k->phase[g]] += k->tape->s.x[i++];
    }
    k->tape->update_s = gw_stats_median(k->update.x, k->update.n);
    k->tape->repetitions = n;
    free(steps);
    return GW_OK;
}

/* Batches as the run has them, in turn, each epoch in an order of its own, cut to the size. A full
 * batch gathered again and again from the same places would be found in caches. */
static gw_batch take_batch(gw_sampler *sampler, int i, int samples) {
    int full = gw_sampler_full(sampler);
    if (i % full == 0)
        gw_sampler_epoch(sampler, i / full);
    gw_batch batch = gw_sampler_batch(sampler, i % full);
    if (batch.local < samples) /* parts of few samples: the last batch has a larger one */
        batch = gw_sampler_batch(sampler, gw_sampler_batches(sampler) - 1);
    batch.local = samples;
    return batch;
}

static void count_segment(void *ctx, gw_phase phase) {
    (void)phase;
    ++*(int *)ctx;
}

/* How many segments a step has. */
static gw_err take_count(gw_stepper *t, const gw_batch *batch, int *segments) {
    gw_exec counts = {.ctx = segments, .end = count_segment, .alone = true, .aside = true};
    double loss;
    *segments = 0;
    return gw_paced_walk(t, batch, (gw_paced_onto){gw_model_grads(t->model), false}, &counts,
                         &loss);
}

static gw_err take_room(take *k, gw_sampler *sampler) {
    gw_batch batch = take_batch(sampler, 0, k->tape->samples);
    k->tape->segments = 1;
    if (!k->t->naive)
        GW_TRY(take_count(k->t, &batch, &k->tape->segments));
    size_t n = (size_t)k->tape->segments;
    GW_TRY(gw_alloc(&k->tape->pieces, n, sizeof *k->tape->pieces));
    return k->t->naive ? GW_OK : gw_alloc(&k->phase, n, sizeof *k->phase);
}

static gw_err take_steps(take *k, gw_sampler *sampler, double budget_s) {
    double spent = 0;
    GW_TRY(take_room(k, sampler));
    for (int i = 0; i < WARMUP + MOST_STEPS; i++) {
        gw_batch batch = take_batch(sampler, i, k->tape->samples);
        uint64_t start = gw_clock_ticks();
        if (i == WARMUP) {
            k->update.n = 0;
            for (int p = 0; p < k->tape->s.n; p++)
                k->by_piece[p].n = 0;
        }
        GW_TRY(take_step(k, &batch));
        spent += i < WARMUP ? 0 : gw_clock_since(start);
        if (i - WARMUP + 1 >= LEAST_STEPS && spent > budget_s)
            break;
    }
    return take_medians(k);
}

gw_err gw_exec_measure(gw_stepper *t, gw_tape *tape, gw_sampler *sampler, double budget_s) {
    take k = {.t = t, .tape = tape};
    gw_err e = take_steps(&k, sampler, budget_s);
    for (int i = 0; k.by_piece && i < tape->s.n; i++)
        gw_samples_free(&k.by_piece[i]);
    free(k.by_piece);
    free(k.phase);
    gw_samples_free(&k.update);
    return e;
}
