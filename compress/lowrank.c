#include "compress/lowrank.h"

#include "base/mem.h"
#include "base/rng.h"
#include "compress/kernel/lowrank.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Rows of a chunk: whole blocks, enough to be worth a thread. At most MOST_CHUNKS chunks, so that
 * their sums stay small beside the matrix. */
enum { CHUNK_FLOATS = 65536, MOST_CHUNKS = 32, ROW_BLOCK = 8, DOUBLES = 8 };
#define LEFT_OVER 0x1p-20

static size_t lowrank_divide(size_t a, size_t b) {
    return (a + b - 1) / b;
}

gw_err gw_lowrank_open(gw_lowrank *l, size_t rows, size_t cols, int rank, bool feedback, float *p,
                       float *q) {
    *l = (gw_lowrank){.rows = rows, .cols = cols, .rank = rank, .p = p, .q = q};
    if (rank < 1 || rank > GW_LOWRANK_MOST || rows == 0 || cols == 0)
        return gw_fail(GW_ERR_INTERNAL, "lowrank: rank %d of %zu x %zu", rank, rows, cols);
    static const gw_lowrank_kernels *const levels[] = GW_SIMD_TABLE(gw_lowrank);
    gw_simd level;
    GW_TRY(gw_simd_pick(&level));
    l->kernels = levels[level];
    size_t work = lowrank_divide(CHUNK_FLOATS, cols), few = lowrank_divide(rows, MOST_CHUNKS);
    l->chunk = lowrank_divide(work > few ? work : few, ROW_BLOCK) * ROW_BLOCK;
    size_t wide = (size_t)rank * cols;
    gw_err e = gw_alloc(&l->parts, (lowrank_divide(rows, l->chunk) - 1) * wide, sizeof *l->parts);
    if (e == GW_OK && feedback)
        e = gw_alloc(&l->m, rows * cols, sizeof *l->m);
    if (e == GW_OK && feedback)
        e = gw_alloc(&l->own, wide, sizeof *l->own);
    if (e != GW_OK)
        gw_lowrank_close(l);
    return e;
}

void gw_lowrank_close(gw_lowrank *l) {
    free(l->m);
    free(l->own);
    free(l->parts);
    memset(l, 0, sizeof *l);
}

static void lowrank_draw_column(gw_lowrank *l, uint64_t key, int j) {
    uint64_t stream = gw_rng_key(key, (uint64_t)j);
    float *q = l->q + (size_t)j * l->cols;
    for (size_t c = 0; c < l->cols; c++)
        q[c] = (float)gw_rng_normal(stream, c);
}

void gw_lowrank_draw(gw_lowrank *l, uint64_t key) {
    for (int j = 0; j < l->rank; j++)
        lowrank_draw_column(l, key, j);
}

void gw_lowrank_warm(gw_lowrank *l, uint64_t key) {
    for (int j = 0; j < l->rank; j++) {
        float *q = l->q + (size_t)j * l->cols, most = 0;
        bool nan = false; /* it stays where it is, whatever the scale */
        for (size_t c = 0; c < l->cols; c++) {
            most = fabsf(q[c]) > most ? fabsf(q[c]) : most;
            nan |= isnan(q[c]);
        }
        if (most == 0 && !nan) {
            lowrank_draw_column(l, key, j);
            continue;
        }
        int exponent = 0;
        frexpf(most, &exponent);
        exponent = exponent > 126 ? 126 : exponent; /* 2^-exponent must be a normal float */
        exponent = exponent < -126 ? -126 : exponent;
        float scale = ldexpf(1.0f, -exponent);
        for (size_t c = 0; c < l->cols; c++)
            q[c] *= scale;
    }
}

static gw_skinny lowrank_skinny(const gw_lowrank *l) {
    return (gw_skinny){
        .m = l->m, .rows = l->rows, .cols = l->cols, .rank = l->rank, .p = l->p, .q = l->q};
}

typedef struct pass {
    gw_skinny k;
    const gw_lowrank *l;
} pass;

static void lowrank_absorb_part(void *ctx, size_t lo, size_t hi) {
    const pass *t = ctx;
    t->l->kernels->absorb(&t->k, lo / t->k.cols, hi / t->k.cols);
}

static void lowrank_expand_part(void *ctx, size_t lo, size_t hi) {
    const pass *t = ctx;
    t->l->kernels->expand(&t->k, lo / t->k.cols, hi / t->k.cols);
}

static void lowrank_gather_part(void *ctx, size_t lo, size_t hi) {
    const pass *t = ctx;
    const gw_lowrank *l = t->l;
    for (size_t row = lo / l->cols; row < hi / l->cols; row += l->chunk) {
        size_t end = row + l->chunk < l->rows ? row + l->chunk : l->rows, i = row / l->chunk;
        float *out = i == 0 ? l->q : l->parts + (i - 1) * (size_t)l->rank * l->cols;
        l->kernels->gather(&t->k, row, end, out);
    }
}

static void lowrank_run(pass *t, size_t rows, void (*part)(void *ctx, size_t lo, size_t hi)) {
    gw_simd_split(t->k.rows * t->k.cols, rows * t->k.cols, part, t);
}

void gw_lowrank_project(gw_lowrank *l, float *grad) {
    pass t = {lowrank_skinny(l), l};
    if (l->m) {
        t.k.add = grad;
        t.k.own = l->own;
    } else {
        t.k.m = grad; /* read only: nothing is subtracted or added */
    }
    lowrank_run(&t, ROW_BLOCK, lowrank_absorb_part);
}

void gw_lowrank_gather(gw_lowrank *l, float *grad) {
    pass t = {lowrank_skinny(l), l};
    size_t wide = (size_t)l->rank * l->cols, chunks = lowrank_divide(l->rows, l->chunk);
    if (!l->m)
        t.k.m = grad;
    lowrank_run(&t, l->chunk, lowrank_gather_part);
    for (size_t i = 1; i < chunks; i++)
        for (size_t c = 0; c < wide; c++)
            l->q[c] += l->parts[(i - 1) * wide + c];
    for (size_t c = 0; c < wide && l->own; c++)
        l->own[c] = (1 - l->keep) * l->q[c];
}

void gw_lowrank_expand(const gw_lowrank *l, float *grad) {
    pass t = {lowrank_skinny(l), l};
    t.k.m = grad;
    lowrank_run(&t, ROW_BLOCK, lowrank_expand_part);
}

void gw_lowrank_settle(gw_lowrank *l) {
    if (!l->m)
        return;
    pass t = {lowrank_skinny(l), l};
    t.k.own = l->own;
    t.k.q = NULL;
    lowrank_run(&t, ROW_BLOCK, lowrank_absorb_part);
    memset(l->own, 0, (size_t)l->rank * l->cols * sizeof *l->own);
}

/* Partial sums that a compiler can vectorise, added in a fixed order. */
static double lowrank_dot(const float *a, const float *b, size_t n) {
    double sum[DOUBLES] = {0};
    size_t i = 0;
    for (; i + DOUBLES <= n; i += DOUBLES)
        for (size_t k = 0; k < DOUBLES; k++)
            sum[k] += (double)a[i + k] * (double)b[i + k];
    for (size_t k = 0; i < n; i++, k++)
        sum[k] += (double)a[i] * (double)b[i];
    return ((sum[0] + sum[4]) + (sum[2] + sum[6])) + ((sum[1] + sum[5]) + (sum[3] + sum[7]));
}

static void lowrank_take_off(float *x, const float *unit, size_t n) {
    double along = lowrank_dot(unit, x, n);
    for (size_t i = 0; i < n; i++)
        x[i] = (float)((double)x[i] - along * (double)unit[i]);
}

static void lowrank_fill(float *x, size_t n, float value) {
    for (size_t i = 0; i < n; i++)
        x[i] = value;
}

static void lowrank_scale(float *x, size_t n, double by) {
    for (size_t i = 0; i < n; i++)
        x[i] = (float)((double)x[i] * by);
}

void gw_lowrank_orthonormalise(float *p, size_t rows, int rank) {
    for (int j = 0; j < rank; j++) {
        float *x = p + (size_t)j * rows;
        double before = sqrt(lowrank_dot(x, x, rows));
        for (int turn = 0; turn < 2; turn++)
            for (int k = 0; k < j; k++)
                lowrank_take_off(x, p + (size_t)k * rows, rows);
        double after = sqrt(lowrank_dot(x, x, rows));
        if (!isfinite(after)) {
            lowrank_fill(x, rows, NAN);
        } else if (after <= LEFT_OVER * before) {
            lowrank_fill(x, rows, 0);
        } else {
            lowrank_scale(x, rows, 1 / after);
        }
    }
}

void gw_lowrank_normalise(float *q, size_t n, int count, double to) {
    for (float *x = q; x < q + n * (size_t)count; x += n)
        lowrank_scale(x, n, to / (sqrt(lowrank_dot(x, x, n)) + 1e-8));
}
