#include "mpi/guard.h"

#include "base/json.h"
#include "base/mem.h"
#include "base/norm.h"
#include "mpi/wait.h"

#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <omp.h>
#include <stdio.h>
#include <string.h>

/* ---- looking ---- */

#define INFINITE 0x7f800000u /* magnitudes from here on are no finite binary32 */
enum { SHARED = 1 << 15 };   /* floats that are worth several threads */
enum { MOST_LAYERS = 1 << 14, GIVEN_UP = 2 };

static uint32_t guard_magnitude(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits & 0x7fffffffu;
}

static bool guard_all_below(const float *x, size_t n, uint32_t limit) {
    int threads = n < SHARED ? 1 : omp_get_max_threads();
    uint32_t most = 0;
    if (threads == 1)
        return gw_norm_greatest(x, n) < limit;
#pragma omp parallel for num_threads(threads) schedule(static, 1) reduction(max : most)
    for (int t = 0; t < threads; t++) {
        gw_span s = gw_span_part((gw_span){0, n}, t, threads);
        most = gw_norm_greatest(x + s.off, s.n);
    }
    return most < limit;
}

/* The least magnitude that is too large. A limit divided by a small share may be infinite. */
static uint32_t guard_limit(const gw_guard *g) {
    return g->most > 0 && isfinite(g->most) ? guard_magnitude(g->most) + 1 : INFINITE;
}

/* Slow, and rare. */
static void guard_describe(gw_fault *f, const float *x, size_t n, uint32_t limit) {
    f->count = 0;
    for (size_t i = 0; i < n; i++) {
        if (guard_magnitude(x[i]) < limit)
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
    g->bad = g->given_up = g->out = false;
    if (!isfinite(loss))
        guard_note(g, (gw_fault){g->step, g->rank, GW_GUARD_LOSS, 0, 1, loss});
}

static gw_fault guard_fault(const gw_guard *g, int l) {
    return (gw_fault){.step = g->step, .rank = g->rank, .layer = g->number ? g->number[l] : l};
}

void gw_guard_most(gw_guard *g, uint32_t most, int l) {
    gw_fault f = guard_fault(g, l);
    float value;
    if (g->bad || most < guard_limit(g))
        return;
    memcpy(&value, &most, sizeof value);
    f.value = (double)value;
    guard_note(g, f);
}

void gw_guard_values(gw_guard *g, float *x, size_t n, int l) {
    uint32_t limit = guard_limit(g);
    if (!g->bad) {
        if (guard_all_below(x, n, limit))
            return;
        gw_fault f = guard_fault(g, l);
        guard_describe(&f, x, n, limit);
        guard_note(g, f);
    }
    memset(x, 0, n * sizeof *x);
}

gw_err gw_guard_agree(gw_guard *g) {
    int out = g->given_up ? GIVEN_UP : g->bad;
    if (g->together)
        GW_TRY(gw_allreduce(MPI_IN_PLACE, &out, 1, MPI_INT, MPI_MAX, g->comm));
    g->out = out;
    g->given_up = out == GIVEN_UP;
    if (out && g->left != g->step) {
        g->left = g->step;
        g->out_steps += !g->together || g->rank == 0;
    }
    return GW_OK;
}

/* ---- of all ranks ---- */

/* Less is earlier. */
static long guard_order(const gw_fault *f) {
    long after = f->layer == GW_GUARD_LOSS ? 0 : MOST_LAYERS - f->layer;
    return f->step == 0 ? LONG_MAX : (long)f->step * (MOST_LAYERS + 1) + after;
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

void gw_fault_text(char *out, size_t cap, const gw_fault *f, const char *const *names) {
    char where[128];
    const char *of = names ? "tensor" : "layer";
    const char *how =
        isfinite(f->value) ? "larger than exchange and update carry" : "no longer finite";
    double value = isnan(f->value) ? (double)NAN : f->value; /* without a sign */
    if (names && f->layer != GW_GUARD_LOSS)
        snprintf(where, sizeof where, "%.100s", names[f->layer]);
    else
        snprintf(where, sizeof where, "%d", f->layer);
    if (f->layer == GW_GUARD_LOSS)
        snprintf(out, cap, "step %" PRId64 ", rank %d: the loss is no longer finite (%g)", f->step,
                 f->rank, value);
    else if (f->count == 0)
        snprintf(out, cap, "step %" PRId64 ", rank %d, %s %s: the gradient is %s (%g)", f->step,
                 f->rank, of, where, how, value);
    else
        snprintf(out, cap,
                 "step %" PRId64 ", rank %d, %s %s: the gradient is %s (%g at float %" PRId64
                 " of the %s, %" PRId64 " such in all)",
                 f->step, f->rank, of, where, how, value, f->at, of, f->count);
}

static gw_err guard_fail(const gw_guard *g, const gw_fault *f, const char *advice) {
    char text[400];
    gw_fault_text(text, sizeof text, f, g->names);
    return gw_fail(GW_ERR_DIVERGED, "%s: %s", text, advice);
}

gw_err gw_guard_check(const gw_guard *g) {
    gw_fault first;
    if (g->how != GW_ON_NAN_STOP)
        return GW_OK;
    GW_TRY(guard_find_first(g, &g->first, &first));
    if (first.rank < 0)
        return GW_OK;
    return guard_fail(g, &first, "try a smaller --lr, or --on-nan skip");
}

gw_err gw_guard_fail(const gw_guard *g, const char *advice) {
    gw_fault first = g->first;
    if (g->together)
        GW_TRY(guard_find_first(g, &g->first, &first));
    return guard_fail(g, &first, advice);
}

gw_err gw_guard_params(const float *params, const gw_span *layers, int n_layers, const int *number,
                       int64_t step) {
    for (int l = 0; l < n_layers; l++) {
        gw_fault f = {.step = step, .layer = l};
        const float *x = params + layers[l].off;
        if (guard_all_below(x, layers[l].n, INFINITE))
            continue;
        guard_describe(&f, x, layers[l].n, INFINITE);
        return gw_fail(GW_ERR_DIVERGED,
                       "step %" PRId64 ", layer %d: parameters are no longer finite (%" PRId64
                       " floats, the first at %" PRId64 "): an update overflowed, or memory or a "
                       "message was damaged: try a smaller --lr",
                       step, number ? number[l] : l, f.count, f.at);
    }
    return GW_OK;
}

gw_err gw_guard_collect(const gw_guard *g, int ranks, gw_guard_total *out) {
    *out = (gw_guard_total){.how = g->how, .out_steps = g->out_steps};
    gw_err e =
        g->rank == 0 ? gw_alloc(&out->bad_steps, (size_t)ranks, sizeof *out->bad_steps) : GW_OK;
    GW_TRY(gw_agree(g->comm, e));
    gw_fault mine = gw_guard_first(g);
    GW_TRY(guard_find_first(g, &mine, &out->first));
    GW_TRY(gw_allreduce(MPI_IN_PLACE, &out->out_steps, 1, MPI_INT64_T, MPI_SUM, g->comm));
    return gw_gather(&g->bad_steps, out->bad_steps, (int)sizeof g->bad_steps, g->comm);
}

json_t *gw_guard_json(const gw_guard_total *t, int ranks, const char *const *names) {
    static const char *const words[] = {"stop", "skip", "keep"};
    const gw_fault *f = &t->first;
    bool loss = f->layer == GW_GUARD_LOSS;
    const char *what = loss ? "loss" : "gradient";
    json_t *by_rank = json_array(), *first = json_null();
    for (int r = 0; r < ranks; r++)
        json_array_append_new(by_rank, json_integer((json_int_t)t->bad_steps[r]));
    if (f->rank >= 0 && names)
        first = gw_json_object("step:I rank:i tensor:s what:s", f->step, f->rank,
                               loss ? NULL : names[f->layer], what);
    else if (f->rank >= 0)
        first = gw_json_object("step:I rank:i layer:o what:s", f->step, f->rank,
                               loss ? json_null() : json_integer(f->layer), what);
    return gw_json_object("on_nan:s left_out:I by_rank:o first:o", words[t->how], t->out_steps,
                          by_rank, first);
}
