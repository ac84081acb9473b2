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

/* Cuts of C's rows and columns, and of its sums, are multiples of these, near the tiles of the
 * libraries' innermost kernels. */
enum { ROWS = 8, COLS = 16, TERMS = 64 };

/* Extra cost of pieces, in multiply-adds: for each element of an operand packed once more (10 to
 * 60, by library, instruction set and transposition), and for each element of C read and written
 * once more (2 to 13); see docs/measurement.md. */
#define PACKING   40.0
#define UPDATING  10.0
#define MOST_LOST 0.02 /* share of a product's time that pieces may cost */
enum { MOST_CUTS = 32 };

/* Products that gemm_turn is worth while for: rows of C, and the least elements of B. It takes so
 * many columns of C at a time. */
enum { TURN_FROM = 12, TURN_TO = 64, TURN_B = 1 << 17, TURN_COLS = 512 };

/* Prefers products with the same beta (zero or not) over any other size. */
#define OTHER_BETA 1.01f

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
static gw_gemm_plan gemm_plan = {.piece = INFINITY};

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

/* ---- ways: 2 i: library i and our tiles; 2 i + 1: library i and its own threads ---- */

typedef struct way {
    int library;
    bool own_threads;
} way;

const char *gw_gemm_way_name(int at, int threads) {
    static const char *const names[][2] = {{"dnnl", "dnnl-threads"}, {"cblas", "cblas-threads"}};
    way w = {at / 2, at % 2};
    if (at < 0 || w.library < gemm_first || w.library >= gemm_end)
        return NULL;
    if (w.own_threads && (threads == 1 || !linked[w.library]->threads))
        return NULL;
    return names[strcmp(linked[w.library]->name, "cblas") == 0][w.own_threads];
}

int gw_gemm_way_named(const char *name, int threads) {
    for (int at = 0; at < GW_GEMM_WAYS; at++)
        if (gw_gemm_way_name(at, threads) && strcmp(gw_gemm_way_name(at, threads), name) == 0)
            return at;
    return -1;
}

int gw_gemm_way_first(void) {
    return 2 * gemm_first;
}

void gw_gemm_adopt(const gw_gemm_plan *plan) {
    gemm_plan = *plan;
}

double gw_product_flops(const gw_product *p) {
    return 2.0 * p->m * p->n * p->k;
}

static float gemm_apart(int a, int b) {
    return a > b ? (float)a / (float)b : (float)b / (float)a;
}

/* The last batch of an epoch and evaluations have sizes that were not planned. */
static const gw_gemm_choice *gemm_find_choice(const gw_product *p) {
    const gw_gemm_choice *best = NULL;
    float nearest = INFINITY;
    for (int i = 0; i < gemm_plan.n; i++) {
        const gw_product *q = &gemm_plan.choice[i].of;
        if (q->ta != p->ta || q->tb != p->tb)
            continue;
        float d = gemm_apart(p->m, q->m) * gemm_apart(p->n, q->n) * gemm_apart(p->k, q->k);
        if (q->add != p->add)
            d *= OTHER_BETA;
        if (d < nearest) {
            nearest = d;
            best = &gemm_plan.choice[i];
        }
    }
    return best;
}

static way gemm_choose_way(const gw_product *p, bool pieced) {
    const gw_gemm_choice *c = gemm_find_choice(p);
    int at = !c ? gw_gemm_way_first() : pieced ? c->pieced : c->whole;
    return (way){at / 2, at % 2};
}

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

static void gemm_choose_grid(int m, int n, int threads, int *pm, int *pn) {
    *pm = *pn = 1;
    double best = gemm_cost(m, n, 1, 1);
    for (int rows = 1; rows <= threads; rows++) {
        int cols = threads / rows;
        double c = gemm_cost(m, n, rows, cols);
        if (c < best) {
            best = c;
            *pm = rows;
            *pn = cols;
        }
    }
}

/* Cost of cutting, as a share of the product's time. */
static double gemm_lost(const gw_product *p, gw_gemm_cuts c) {
    return PACKING * (c.rows - 1.0) / p->m + PACKING * (c.cols - 1.0) / p->n +
           UPDATING * (c.depth - 1.0) / p->k;
}

static double gemm_largest(const gw_product *p, gw_gemm_cuts c) {
    return 2 * gemm_widest(p->m, c.rows, ROWS) * gemm_widest(p->n, c.cols, COLS) *
           gemm_widest(p->k, c.depth, TERMS);
}

static int gemm_most_cuts(int n, int unit) {
    int units = (n + unit - 1) / unit;
    return units < MOST_CUTS ? units : MOST_CUTS;
}

typedef struct search {
    const gw_product *p;
    double piece, size, cost; /* of the best cuts so far */
    gw_gemm_cuts best;
} search;

/* True if the cuts cost little; then they become the best if they are the cheapest that are fine
 * enough or, while none are, the finest. */
static bool gemm_consider(search *s, gw_gemm_cuts c) {
    double size = gemm_largest(s->p, c), costs = gemm_lost(s->p, c);
    if (costs > MOST_LOST)
        return false;
    if (s->size > s->piece ? size < s->size : size <= s->piece && costs < s->cost) {
        s->size = size;
        s->cost = costs;
        s->best = c;
    }
    return true;
}

gw_gemm_cuts gw_gemm_pieces(const gw_product *p, double piece) {
    search s = {p, piece, gw_product_flops(p), 0, {1, 1, 1}};
    if (s.size <= piece)
        return s.best;
    gw_gemm_cuts most = {gemm_most_cuts(p->m, ROWS), gemm_most_cuts(p->n, COLS),
                         gemm_most_cuts(p->k, TERMS)};
    for (int r = 1; r <= most.rows; r++)
        for (int c = 1; c <= most.cols; c++)
            for (int d = 1; d <= most.depth; d++)
                if (!gemm_consider(&s, (gw_gemm_cuts){r, c, d}))
                    break; /* more cuts cost more */
    return s.best;
}

static int gemm_threads(const gw_product *p) {
    int threads = omp_in_parallel() ? 1 : omp_get_max_threads();
    double worth = gw_product_flops(p) / FLOPS_PER_THREAD;
    if (worth < threads)
        threads = worth < 1 ? 1 : (int)worth;
    return threads;
}

static void gemm_scale(int m, int n, float beta, float *c, int ldc) {
    for (int i = 0; i < m; i++) {
        float *row = c + (size_t)i * (size_t)ldc;
        if (beta == 0) /* must not read C: 0 * NaN is NaN */
            memset(row, 0, (size_t)n * sizeof *row);
        else if (beta != 1)
            for (int j = 0; j < n; j++)
                row[j] *= beta;
    }
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

/* Terms [from, to) of its sums; all but the first accumulate onto C. */
static job gemm_terms_of(const job *all, int from, int to) {
    job part = *all;
    part.p.k = to - from;
    part.a += all->p.ta ? (size_t)from * (size_t)all->lda : (size_t)from;
    part.b += all->p.tb ? (size_t)from : (size_t)from * (size_t)all->ldb;
    part.beta = from > 0 ? 1.0f : all->beta;
    return part;
}

static const char *gemm_call(const job *j, int library) {
    return linked[library]->product(j->p.ta, j->p.tb, j->p.m, j->p.n, j->p.k, j->a, j->lda, j->b,
                                    j->ldb, j->beta, j->c, j->ldc);
}

static bool gemm_turns(const job *j, int library, int threads) {
    const gw_product *p = &j->p;
    return linked[library]->slow_rows && threads == 1 && !p->ta && p->tb && j->beta == 0 &&
           p->m >= TURN_FROM && p->m <= TURN_TO && (long long)p->n * p->k >= TURN_B;
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

/* Call the library on `threads` threads, whatever this thread's OpenMP setting. */
static void gemm_call_library(const job *j, int library, int threads) {
    int before = omp_get_max_threads();
    if (before != threads)
        omp_set_num_threads(threads);
    const char *why =
        gemm_turns(j, library, threads) ? gemm_turn(j, library) : gemm_call(j, library);
    const char *none = NULL;
    if (why)
        atomic_compare_exchange_strong(&failure[library], &none, why);
    if (before != threads)
        omp_set_num_threads(before);
}

static void gemm_compute(const job *all, way by) {
    int pm, pn, threads = gemm_threads(&all->p);
    gemm_choose_grid(all->p.m, all->p.n, threads, &pm, &pn);
    int tiles = pm * pn;
    if (by.own_threads || tiles == 1) {
        gemm_call_library(all, by.library, by.own_threads ? threads : 1);
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
            gemm_call_library(&tile, by.library, 1);
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

static void gemm_compute_pieces(const job *all, gw_gemm_cuts cuts) {
    way by = gemm_choose_way(&all->p, true);
    for (int piece = 0; piece < gw_gemm_cuts_pieces(cuts); piece++) {
        int tile = piece / cuts.depth, d = piece % cuts.depth;
        int r = tile / cuts.cols, c = tile % cuts.cols;
        int i = gemm_cut(all->p.m, r, cuts.rows, ROWS), j = gemm_cut(all->p.n, c, cuts.cols, COLS);
        job part = gemm_part_of(all, i, gemm_cut(all->p.m, r + 1, cuts.rows, ROWS) - i, j,
                                gemm_cut(all->p.n, c + 1, cuts.cols, COLS) - j);
        part = gemm_terms_of(&part, gemm_cut(all->p.k, d, cuts.depth, TERMS),
                             gemm_cut(all->p.k, d + 1, cuts.depth, TERMS));
        if (piece > 0)
            between.f(between.ctx);
        gemm_compute(&part, by);
    }
}

void gw_gemm(bool ta, bool tb, int m, int n, int k, const float *a, int lda, const float *b,
             int ldb, float beta, float *c, int ldc) {
    job all = {{ta, tb, m, n, k, beta != 0}, a, b, c, beta, lda, ldb, ldc};
    gw_gemm_cuts cuts = {1, 1, 1};
    pthread_once(&gemm_once, gemm_setup);
    if (m == 0 || n == 0)
        return;
    if (k == 0) {
        gemm_scale(m, n, beta, c, ldc);
        return;
    }
    if (between.f)
        cuts = gw_gemm_pieces(&all.p, gemm_plan.piece);
    if (gw_gemm_cuts_pieces(cuts) > 1)
        gemm_compute_pieces(&all, cuts);
    else
        gemm_compute(&all, gemm_choose_way(&all.p, false));
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
