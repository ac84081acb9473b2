/* Matrix products: which library computes which, on which threads, and in which pieces. All of it
 * follows from a product's shape, the number of threads, the CPU and the libraries, so that the
 * same command has the same bits whatever is timed, cached or connected. */
#include "nn/gemm.h"

#include "nn/gemm_backend.h"

#include <math.h>
#include <omp.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

/* Work that pays for waking one more thread: some microseconds of arithmetic. */
#define FLOPS_PER_THREAD 5e5

/* Cuts of C's rows and columns are multiples of these, near the tiles of the libraries' innermost
 * kernels. */
enum { ROWS = 8, COLS = 16 };

/* Pieces are to be as short as this: 20 to 50 ms of a core, in which a link of 500 Mbit/s sends
 * what its buffer holds. */
#define PIECE_FLOPS 0x1p31
/* Extra cost of pieces, in multiply-adds for each element of an operand that is packed once more
 * (10 to 60, by library, instruction set and transposition; see docs/measurement-compute.md). */
#define PACKING   40.0
#define MOST_LOST 0.02 /* share of a product's time that pieces may cost */
enum { MOST_CUTS = 32 };

/* Where oneDNN's kernels are AVX2's and C has few rows, it reads B, or packs it, by addresses that
 * lie multiples of 2 KiB apart if n is a multiple of 512, and these meet in few sets of the cache.
 * On a Zen 3 core, of 307 products of a million operations and more, 291 took at most 5% longer by
 * this rule than by the better library, and all together 1.4%; the worst took 2.4 times as long. Of
 * the 30 that the rule gives to OpenBLAS 0.3.21, oneDNN 2.6 took 0.4 to 1.9 times as long
 * (2026-11-29). */
enum { STRIDE_ROWS = 512, STRIDE = 512, STRIDE_SMALL = 128 };

/* Products that gemm_turn is worth while for: rows of C, and the least elements of B. It takes so
 * many columns of C at a time. */
enum { TURN_FROM = 12, TURN_TO = 64, TURN_B = 1 << 17, TURN_COLS = 512 };

static const gw_gemm_backend *const linked[] = {
#ifdef GW_HAVE_DNNL
    &gw_gemm_dnnl,
#endif
#ifdef GW_HAVE_CBLAS
    &gw_gemm_cblas,
#endif
};

enum { LINKED = sizeof linked / sizeof *linked };

static pthread_once_t gemm_once = PTHREAD_ONCE_INIT;
static gw_gemm_identity gemm_identity[LINKED];
static char libraries[LINKED * (GW_GEMM_TEXT + 3)]; /* names of those in use */
static int gemm_first, gemm_end = LINKED;           /* [first, end): those in use */

static _Atomic(const char *) failure[LINKED]; /* each one's first failure */

static void gemm_list_libraries(void) {
    size_t len = 0;
    for (int i = gemm_first; i < gemm_end; i++)
        len += (size_t)snprintf(libraries + len, sizeof libraries - len, "%s%s",
                                i > gemm_first ? " + " : "", gemm_identity[i].library);
}

static void gemm_setup(void) {
    for (int i = 0; i < LINKED; i++)
        linked[i]->setup(&gemm_identity[i]);
    gemm_list_libraries();
}

void gw_gemm_mend(char **argv) {
    for (int i = 0; i < LINKED; i++)
        if (linked[i]->mend)
            linked[i]->mend(argv);
}

gw_err gw_gemm_allow(const char *library) {
    int from = 0, to = LINKED;
    if (strcmp(library, "auto") != 0) {
        while (from < LINKED && strcmp(linked[from]->name, library) != 0)
            from++;
        if (from == LINKED)
            return gw_fail(GW_ERR_UNSUPPORTED,
                           "--gemm %s: this program was built without it: use --gemm %s, or "
                           "configure with -DGW_GEMM=auto",
                           library, linked[0]->name);
        to = from + 1;
    }
    pthread_once(&gemm_once, gemm_setup);
    gemm_first = from;
    gemm_end = to;
    gemm_list_libraries();
    return GW_OK;
}

const char *gw_gemm_library(void) {
    pthread_once(&gemm_once, gemm_setup);
    return libraries;
}

const char *gw_gemm_warning(void) {
    pthread_once(&gemm_once, gemm_setup);
    for (int i = gemm_first; i < gemm_end; i++)
        if (!*gemm_identity[i].warning)
            return NULL;
    return gemm_identity[gemm_first].warning;
}

/* ---- which library ---- */

/* oneDNN if it may be used, but for the products that it is slow at. */
static int gemm_library_for(const gw_product *p) {
    bool small =
        p->ta && p->m % STRIDE_SMALL == 0 && p->n % STRIDE_SMALL == 0 && p->k >= STRIDE_SMALL;
    bool strided =
        p->m <= STRIDE_ROWS && !(p->tb && p->m <= TURN_TO) && (p->n % STRIDE == 0 || small);
    return gemm_identity[gemm_first].slow_strides && strided ? gemm_end - 1 : gemm_first;
}

double gw_product_flops(const gw_product *p) {
    return 2.0 * p->m * p->n * p->k;
}

/* ---- tiles and pieces ---- */

/* Multiples of `unit` nearest to part `i` of `parts` of [0, n). */
static int gemm_cut(int n, int i, int parts, int unit) {
    long long units = (n + unit - 1) / unit;
    long long at = units * i / parts * unit;
    return at < n ? (int)at : n;
}

/* Width of the widest part. */
static double gemm_widest(int n, int parts, int unit) {
    int units = (n + unit - 1) / unit;
    double width = (double)((units + parts - 1) / parts) * unit;
    return width < n ? width : n;
}

/* Cost of the largest tile when C is cut into pm x pn: its products, and packing its operands,
 * which each tile repeats. */
static double gemm_cost(int m, int n, int pm, int pn) {
    double tm = gemm_widest(m, pm, ROWS), tn = gemm_widest(n, pn, COLS);
    return tm * tn + 8 * (tm + tn);
}

static int gemm_most_cuts(int n, int unit) {
    int units = (n + unit - 1) / unit;
    return units < MOST_CUTS ? units : MOST_CUTS;
}

gw_gemm_cuts gw_gemm_pieces(const gw_product *p) {
    gw_gemm_cuts best = {1, 1};
    double size = gw_product_flops(p), cost = 0;
    int rows = gemm_most_cuts(p->m, ROWS), cols = gemm_most_cuts(p->n, COLS);
    if (size <= PIECE_FLOPS)
        return best;
    for (int c = 1; c <= cols; c++)
        for (int r = 1; r <= rows; r++) {
            gw_gemm_cuts cuts = {r, c};
            double largest = 2 * gemm_widest(p->m, r, ROWS) * gemm_widest(p->n, c, COLS) * p->k;
            /* Cost of cutting, as a share of the product's time. */
            double costs = PACKING * (r - 1.0) / p->m + PACKING * (c - 1.0) / p->n;
            if (costs > MOST_LOST)
                break; /* more cuts cost more */
            if (size > PIECE_FLOPS ? largest < size : largest <= PIECE_FLOPS && costs < cost) {
                size = largest;
                cost = costs;
                best = cuts;
            }
        }
    return best;
}

/* A product and where its matrices are. */
typedef struct job {
    gw_product p;
    const float *a, *b;
    float *c, beta;
    int lda, ldb, ldc;
} job;

/* Rows [i, i + m) and columns [j, j + n) of C. */
static job gemm_part_of(const job *all, int i, int m, int j, int n) {
    job part = *all;
    part.p.m = m;
    part.p.n = n;
    part.a += all->p.ta ? (size_t)i : (size_t)i * (size_t)all->lda;
    part.b += all->p.tb ? (size_t)j * (size_t)all->ldb : (size_t)j;
    part.c += (size_t)i * (size_t)all->ldc + (size_t)j;
    return part;
}

static const char *gemm_call(const job *j, int library) {
    return linked[library]->product(j->p.ta, j->p.tb, j->p.m, j->p.n, j->p.k, j->a, j->lda, j->b,
                                    j->ldb, j->beta, j->c, j->ldc);
}

static void gemm_transpose(const float *from, int rows, int cols, float *to, int ldto) {
    enum { LINE = 8 };
    for (int j = 0; j < cols; j += LINE)
        for (int i = 0; i < rows; i++)
            for (int l = j; l < cols && l < j + LINE; l++)
                to[(size_t)l * (size_t)ldto + (size_t)i] =
                    from[(size_t)i * (size_t)cols + (size_t)l];
}

/* C' = B A' instead of C = A B', by parts of C's columns: oneDNN packs a large transposed B so
 * slowly that C' and its transposition take half to nine tenths of the time. */
static const char *gemm_turn(const job *all, int library) {
    float turned[TURN_COLS * TURN_TO];
    const char *why = NULL;
    for (int j = 0; j < all->p.n && !why; j += TURN_COLS) {
        int cols = all->p.n - j < TURN_COLS ? all->p.n - j : TURN_COLS;
        job part = {.p = {.tb = true, .m = cols, .n = all->p.m, .k = all->p.k},
                    .a = all->b + (size_t)j * (size_t)all->ldb,
                    .lda = all->ldb,
                    .b = all->a,
                    .ldb = all->lda,
                    .c = turned,
                    .ldc = all->p.m};
        why = gemm_call(&part, library);
        gemm_transpose(turned, cols, all->p.m, all->c + j, all->ldc);
    }
    return why;
}

/* Call the library on this thread only, whatever its OpenMP setting. */
static void gemm_call_library(const job *j, int library) {
    const gw_product *p = &j->p;
    bool turns = linked[library]->slow_rows && !p->ta && p->tb && j->beta == 0 &&
                 p->m >= TURN_FROM && p->m <= TURN_TO && (long long)p->n * p->k >= TURN_B;
    int before = omp_get_max_threads();
    if (before != 1)
        omp_set_num_threads(1);
    const char *why = turns ? gemm_turn(j, library) : gemm_call(j, library);
    const char *none = NULL;
    if (why)
        atomic_compare_exchange_strong(&failure[library], &none, why);
    if (before != 1)
        omp_set_num_threads(before);
}

static void gemm_compute(const job *all, int library) {
    int threads = omp_in_parallel() ? 1 : omp_get_max_threads(), pm = 1, pn = 1;
    double worth = gw_product_flops(&all->p) / FLOPS_PER_THREAD;
    if (worth < threads)
        threads = worth < 1 ? 1 : (int)worth;
    double best = gemm_cost(all->p.m, all->p.n, 1, 1);
    for (int rows = 1; rows <= threads; rows++) {
        double cost = gemm_cost(all->p.m, all->p.n, rows, threads / rows);
        if (cost < best) {
            best = cost;
            pm = rows;
            pn = threads / rows;
        }
    }
    int tiles = pm * pn;
    if (tiles == 1) {
        gemm_call_library(all, library);
        return;
    }
#pragma omp parallel for num_threads(tiles) schedule(static, 1)
    for (int t = 0; t < tiles; t++) {
        int i = gemm_cut(all->p.m, t / pn, pm, ROWS),
            rows = gemm_cut(all->p.m, t / pn + 1, pm, ROWS) - i;
        int j = gemm_cut(all->p.n, t % pn, pn, COLS),
            cols = gemm_cut(all->p.n, t % pn + 1, pn, COLS) - j;
        job tile = gemm_part_of(all, i, rows, j, cols);
        if (rows > 0 && cols > 0)
            gemm_call_library(&tile, library);
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
    job all = {{ta, tb, m, n, k, beta != 0}, a, b, c, beta, lda, ldb, ldc};
    pthread_once(&gemm_once, gemm_setup);
    if (m == 0 || n == 0)
        return;
    for (int i = 0; i < m && k == 0 && beta != 1; i++)
        for (int j = 0; j < n; j++) { /* must not read C if beta is 0: 0 * NaN is NaN */
            float *to = c + (size_t)i * (size_t)ldc + (size_t)j;
            *to = beta == 0 ? 0 : beta * *to;
        }
    if (k == 0)
        return;
    gw_gemm_cuts cuts = gw_gemm_pieces(&all.p);
    int library = gemm_library_for(&all.p);
    for (int piece = 0; piece < cuts.rows * cuts.cols; piece++) {
        int r = piece / cuts.cols, s = piece % cuts.cols;
        int i = gemm_cut(m, r, cuts.rows, ROWS), j = gemm_cut(n, s, cuts.cols, COLS);
        job part = gemm_part_of(&all, i, gemm_cut(m, r + 1, cuts.rows, ROWS) - i, j,
                                gemm_cut(n, s + 1, cuts.cols, COLS) - j);
        if (piece > 0 && between.f)
            between.f(between.ctx);
        gemm_compute(&part, library);
    }
}

gw_err gw_gemm_check(void) {
    for (int i = 0; i < LINKED; i++) {
        const char *why = atomic_load_explicit(&failure[i], memory_order_acquire);
        if (why)
            return gw_fail(GW_ERR_INTERNAL,
                           "%s failed at a matrix product (%s): is memory short? fewer ranks or "
                           "threads, a smaller batch or narrower layers need less",
                           gemm_identity[i].library, why);
    }
    return GW_OK;
}
