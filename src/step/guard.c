#include "step/guard.h"

#include "base/json.h"
#include "base/mem.h"
#include "mpi/wait.h"
#include "nn/elementwise.h"
#include "nn/model_spec.h"

#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- looking ---- */

#define INFINITE 0x7f800000u /* magnitudes from here on are no finite binary32 */

static uint32_t guard_magnitude(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits & 0x7fffffffu;
}

/* The greatest magnitude by its bits, in which NaN is above infinity: one pass without a branch, at
 * the speed at which the cache delivers. */
GW_CLONES static uint32_t guard_greatest(const float *x, size_t n) {
    uint32_t most = 0;
    for (size_t i = 0; i < n; i++) {
        uint32_t m = guard_magnitude(x[i]);
        most = m > most ? m : most;
    }
    return most;
}

static bool guard_all_finite(const float *x, size_t n) {
    int threads = n < GW_PARALLEL_ELEMENTS ? 1 : omp_get_max_threads();
    uint32_t most = 0;
    if (threads == 1)
        return guard_greatest(x, n) < INFINITE;
#pragma omp parallel for num_threads(threads) schedule(static, 1) reduction(max : most)
    for (int t = 0; t < threads; t++) {
        gw_span s = gw_span_part((gw_span){0, n}, t, threads);
        most = guard_greatest(x + s.off, s.n);
    }
    return most < INFINITE;
}

/* Slow, and rare. */
static void guard_describe(gw_fault *f, const float *x, size_t n) {
    f->count = 0;
    for (size_t i = 0; i < n; i++) {
        if (guard_magnitude(x[i]) < INFINITE)
            continue;
        if (f->count++ == 0) {
            f->at = (int64_t)i;
            f->value = (double)x[i];
        }
    }
}

/* ---- in a step ---- */

static void guard_note(gw_guard *g, gw_fault f) {
    g->bad = true;
    if (g->counted == g->step)
        return;
    g->counted = g->step;
    g->bad_steps++;
    if (g->first.step == 0)
        g->first = f;
}

void gw_guard_loss(gw_guard *g, double loss) {
    g->bad = g->out = false;
    if (!isfinite(loss))
        guard_note(g, (gw_fault){g->step, g->rank, GW_GUARD_LOSS, 0, 1, loss});
}

void gw_guard_layer(gw_guard *g, float *grad, int l) {
    gw_span s = g->layers[l];
    float *x = grad + s.off;
    if (!g->bad) {
        if (guard_all_finite(x, s.n))
            return;
        gw_fault f = {.step = g->step, .rank = g->rank, .layer = g->number ? g->number[l] : l};
        guard_describe(&f, x, s.n);
        guard_note(g, f);
    }
    memset(x, 0, s.n * sizeof *x);
}

gw_err gw_guard_agree(gw_guard *g) {
    int out = g->bad;
    if (!g->skip)
        return GW_OK; /* the run ends soon */
    if (g->together)
        GW_TRY(gw_allreduce(MPI_IN_PLACE, &out, 1, MPI_INT, MPI_MAX, g->comm));
    g->out = out;
    if (out && g->left != g->step) {
        g->left = g->step;
        g->out_steps += !g->together || g->rank == 0;
    }
    return GW_OK;
}

/* ---- of all ranks ---- */

/* Less is earlier. */
static long guard_order(const gw_fault *f) {
    long after = f->layer == GW_GUARD_LOSS ? 0 : GW_MAX_LAYERS - f->layer;
    return f->step == 0 ? LONG_MAX : (long)f->step * (GW_MAX_LAYERS + 1) + after;
}

bool gw_fault_before(const gw_fault *a, const gw_fault *b) {
    return guard_order(a) < guard_order(b);
}

/* *found: the first of all ranks' `mine`; its rank is -1 if there is none. */
static gw_err guard_find_first(const gw_guard *g, const gw_fault *mine, gw_fault *found) {
    struct {
        long order;
        int rank;
    } least = {guard_order(mine), g->rank};
    GW_TRY(gw_allreduce(MPI_IN_PLACE, &least, 1, MPI_LONG_INT, MPI_MINLOC, g->comm));
    *found = *mine; /* its rank may be one that the run had when it was started before */
    if (least.order == LONG_MAX) {
        found->rank = -1;
        return GW_OK;
    }
    return gw_bcast(found, (int)sizeof *found, MPI_BYTE, least.rank, g->comm);
}

void gw_fault_text(char *out, size_t cap, const gw_fault *f) {
    const char *what = isnan(f->value) ? "nan" : f->value < 0 ? "-inf" : "inf";
    if (f->layer == GW_GUARD_LOSS)
        snprintf(out, cap, "step %" PRId64 ", rank %d: the loss is no longer finite (%s)", f->step,
                 f->rank, what);
    else
        snprintf(out, cap,
                 "step %" PRId64 ", rank %d, layer %d: the gradient is no longer finite (%s at "
                 "float %" PRId64 " of the layer, %" PRId64 " such in all)",
                 f->step, f->rank, f->layer, what, f->at, f->count);
}

gw_err gw_guard_check(const gw_guard *g) {
    gw_fault first;
    char text[200];
    if (g->skip)
        return GW_OK;
    GW_TRY(guard_find_first(g, &g->first, &first));
    if (first.rank < 0)
        return GW_OK;
    gw_fault_text(text, sizeof text, &first);
    return gw_fail(GW_ERR_DIVERGED, "%s: try a smaller --lr%s", text,
                   g->stops ? "" : ", or --on-nan skip");
}

gw_err gw_guard_params(const float *params, const gw_span *layers, int n_layers, const int *number,
                       int64_t step) {
    for (int l = 0; l < n_layers; l++) {
        gw_fault f = {.step = step, .layer = l};
        const float *x = params + layers[l].off;
        if (guard_all_finite(x, layers[l].n))
            continue;
        guard_describe(&f, x, layers[l].n);
        return gw_fail(GW_ERR_DIVERGED,
                       "step %" PRId64 ", layer %d: parameters are no longer finite (%" PRId64
                       " floats, the first at %" PRId64 "): an update overflowed, or memory or a "
                       "message was damaged: try a smaller --lr",
                       step, number ? number[l] : l, f.count, f.at);
    }
    return GW_OK;
}

gw_err gw_guard_collect(const gw_guard *g, int ranks, gw_guard_total *out) {
    *out = (gw_guard_total){.out_steps = g->out_steps};
    gw_err e =
        g->rank == 0 ? gw_alloc(&out->bad_steps, (size_t)ranks, sizeof *out->bad_steps) : GW_OK;
    GW_TRY(gw_agree(g->comm, e));
    gw_fault mine = gw_guard_first(g);
    GW_TRY(guard_find_first(g, &mine, &out->first));
    GW_TRY(gw_allreduce(MPI_IN_PLACE, &out->out_steps, 1, MPI_INT64_T, MPI_SUM, g->comm));
    GW_MPI(MPI_Gather(&g->bad_steps, 1, MPI_INT64_T, out->bad_steps, 1, MPI_INT64_T, 0, g->comm));
    return GW_OK;
}

static json_t *guard_first_json(const gw_fault *f) {
    if (f->rank < 0)
        return json_null();
    json_t *layer = f->layer == GW_GUARD_LOSS ? json_null() : json_integer(f->layer);
    return gw_json_object("step:I rank:i layer:o what:s", f->step, f->rank, layer,
                          f->layer == GW_GUARD_LOSS ? "loss" : "gradient");
}

json_t *gw_guard_json(const gw_guard_total *t, int ranks, bool skip) {
    json_t *by_rank = json_array();
    for (int r = 0; r < ranks; r++)
        json_array_append_new(by_rank, json_integer((json_int_t)t->bad_steps[r]));
    return gw_json_object("on_nan:s left_out:I by_rank:o first:o", skip ? "skip" : "stop",
                          t->out_steps, by_rank, guard_first_json(&t->first));
}
