#include "nn/gemm.h"

#include "nn/gemm_backend.h"

#include <omp.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>

/* What one more thread must be given to pay for its wake-up: some microseconds of arithmetic. */
#define FLOPS_PER_THREAD 1e6

/* Where somebody polls, longer products are done in pieces of about this much a thread, some 0.2
 * ms; each packs its operands anew, so that elsewhere a product is whole. */
#define FLOPS_PER_PIECE 2.5e7

/* Rows and columns of C are cut at these, near what the libraries' innermost kernels work on. */
enum { ROWS = 8, COLS = 16 };

static pthread_once_t once = PTHREAD_ONCE_INIT;
static gw_gemm_identity identity;

static _Atomic(const char *) failure; /* of the first product that failed */

static void setup(void) {
    gw_gemm_backend_setup(&identity);
}

void gw_gemm_mend(char **argv) {
    gw_gemm_backend_mend(argv);
}

const char *gw_gemm_library(void) {
    pthread_once(&once, setup);
    return identity.library;
}

const char *gw_gemm_warning(void) {
    pthread_once(&once, setup);
    return identity.warning[0] ? identity.warning : NULL;
}

/* Multiples of `unit` nearest to part `i` of `parts` of [0, n). */
static int cut(int n, int i, int parts, int unit) {
    long long units = (n + unit - 1) / unit;
    long long at = units * i / parts * unit;
    return at < n ? (int)at : n;
}

/* The largest tile's cost when C is cut into pm x pn: products, and the packing of its operands,
 * which each tile repeats. */
static double cost(int m, int n, int pm, int pn) {
    int units_m = (m + ROWS - 1) / ROWS, units_n = (n + COLS - 1) / COLS;
    double tm = (double)((units_m + pm - 1) / pm) * ROWS;
    double tn = (double)((units_n + pn - 1) / pn) * COLS;
    return tm * tn + 8 * (tm + tn);
}

static void choose_grid(int m, int n, int threads, int *pm, int *pn) {
    *pm = *pn = 1;
    double best = cost(m, n, 1, 1);
    for (int rows = 1; rows <= threads; rows++) {
        int cols = threads / rows;
        double c = cost(m, n, rows, cols);
        if (c < best) {
            best = c;
            *pm = rows;
            *pn = cols;
        }
    }
}

static int wanted_threads(int m, int n, int k) {
    int threads = omp_in_parallel() ? 1 : omp_get_max_threads();
    double worth = 2.0 * m * n * k / FLOPS_PER_THREAD;
    if (worth < threads)
        threads = worth < 1 ? 1 : (int)worth;
    return threads;
}

static void scale(int m, int n, float beta, float *c, int ldc) {
    for (int i = 0; i < m; i++) {
        float *row = c + (size_t)i * (size_t)ldc;
        if (beta == 0) /* must not read C: 0 * NaN is NaN */
            memset(row, 0, (size_t)n * sizeof *row);
        else
            for (int j = 0; j < n; j++)
                row[j] *= beta;
    }
}

/* The library alone on this thread, whatever this thread's OpenMP setting says. */
static void single(bool ta, bool tb, int m, int n, int k, const float *a, int lda, const float *b,
                   int ldb, float beta, float *c, int ldc) {
    int threads = omp_get_max_threads();
    if (threads != 1)
        omp_set_num_threads(1);
    const char *why = gw_gemm_backend_product(ta, tb, m, n, k, a, lda, b, ldb, beta, c, ldc);
    const char *none = NULL;
    if (why)
        atomic_compare_exchange_strong(&failure, &none, why);
    if (threads != 1)
        omp_set_num_threads(threads);
}

static void tiled(bool ta, bool tb, int m, int n, int k, const float *a, int lda, const float *b,
                  int ldb, float beta, float *c, int ldc) {
    int pm, pn;
    choose_grid(m, n, wanted_threads(m, n, k), &pm, &pn);
    int tiles = pm * pn;
    if (tiles == 1) {
        single(ta, tb, m, n, k, a, lda, b, ldb, beta, c, ldc);
        return;
    }
#pragma omp parallel for num_threads(tiles) schedule(static, 1)
    for (int t = 0; t < tiles; t++) {
        int i = cut(m, t / pn, pm, ROWS), rows = cut(m, t / pn + 1, pm, ROWS) - i;
        int j = cut(n, t % pn, pn, COLS), cols = cut(n, t % pn + 1, pn, COLS) - j;
        size_t at_a = ta ? (size_t)i : (size_t)i * (size_t)lda;
        size_t at_b = tb ? (size_t)j * (size_t)ldb : (size_t)j;
        if (rows > 0 && cols > 0)
            single(ta, tb, rows, cols, k, a + at_a, lda, b + at_b, ldb, beta,
                   c + (size_t)i * (size_t)ldc + (size_t)j, ldc);
    }
}

static _Thread_local struct {
    void (*f)(void *ctx);
    void *ctx;
} between;

void gw_gemm_between(void (*f)(void *ctx), void *ctx) {
    between.f = f;
    between.ctx = ctx;
}

void gw_gemm(bool ta, bool tb, int m, int n, int k, const float *a, int lda, const float *b,
             int ldb, float beta, float *c, int ldc) {
    pthread_once(&once, setup);
    if (m == 0 || n == 0)
        return;
    if (k == 0) {
        scale(m, n, beta, c, ldc);
        return;
    }
    double work = 2.0 * m * n * k / wanted_threads(m, n, k);
    int pieces = between.f && work > FLOPS_PER_PIECE ? (int)(work / FLOPS_PER_PIECE) : 1;
    bool rows = m > n; /* the longer side of C is cut */
    for (int p = 0; p < pieces; p++) {
        int lo = cut(rows ? m : n, p, pieces, rows ? ROWS : COLS);
        int hi = cut(rows ? m : n, p + 1, pieces, rows ? ROWS : COLS);
        size_t at_a = !rows ? 0 : ta ? (size_t)lo : (size_t)lo * (size_t)lda;
        size_t at_b = rows ? 0 : tb ? (size_t)lo * (size_t)ldb : (size_t)lo;
        size_t at_c = rows ? (size_t)lo * (size_t)ldc : (size_t)lo;
        if (hi == lo)
            continue;
        tiled(ta, tb, rows ? hi - lo : m, rows ? n : hi - lo, k, a + at_a, lda, b + at_b, ldb, beta,
              c + at_c, ldc);
        if (p + 1 < pieces)
            between.f(between.ctx);
    }
}

gw_err gw_gemm_check(void) {
    const char *why = atomic_load_explicit(&failure, memory_order_acquire);
    if (!why)
        return GW_OK;
    return gw_fail(GW_ERR_INTERNAL,
                   "%s failed at a matrix product (%s): is memory short? fewer ranks or threads, a "
                   "smaller batch or narrower layers need less",
                   gw_gemm_library(), why);
}
