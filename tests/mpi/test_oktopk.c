/* oktopk, step by step against the published algorithm, written down here in doubles for all ranks
 * at once; and what it sends, by the ledger. */
#include "prof/ledger.h"

#include "strategy_bench.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { N = 1003, LAYERS = 2, MOST_RANKS = 8, LARGE = 30011 };

static const gw_span layers[LAYERS] = {{0, 330}, {330, N - 330}}, large = {0, LARGE};
static const gw_env shape = {.n = N, .layers = layers, .n_layers = LAYERS};
static const gw_env large_shape = {.n = LARGE, .layers = &large, .n_layers = 1};

/* Ranks have their large elements in different places and of different sizes; in some steps all of
 * them are much larger or smaller. */
static float gradient(int rank, int step, size_t i, size_t n) {
    static const double scale[] = {1, 1, 1, 1, 8, 8, 8, 0.2, 0.2, 0.2, 1, 1};
    uint64_t key = gw_rng_key(gw_rng_key(9, (uint64_t)rank), (uint64_t)step);
    double near = fabs((double)i / (double)n - 0.2 * (rank + 1)) < 0.1 ? 3 : 1;
    return (float)(gw_rng_normal(key, i) * near * (1 + 0.5 * rank) * scale[step % 12]);
}

static void make_gradient(bench *b, int step) {
    for (size_t i = 0; i < b->env.n; i++)
        b->env.grad[i] = gradient(me, step, i, b->env.n);
}

/* ---- the algorithm ---- */

typedef struct algorithm {
    double ratio;
    int every, boundaries;
    double v[MOST_RANKS][N], local[LAYERS][MOST_RANKS], whole[LAYERS], update[N];
    size_t from[LAYERS][MOST_RANKS + 1];
} algorithm;

static int falling(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x < y) - (x > y);
}

/* The magnitude that the k largest of x[0..n) reach where `of` is set. */
static double largest(const double *x, const bool *of, size_t n, size_t k) {
    static double all[N];
    size_t m = 0;
    for (size_t i = 0; i < n; i++)
        if (of[i])
            all[m++] = fabs(x[i]);
    qsort(all, m, sizeof *all, falling);
    return m == 0 ? 0 : all[k < m ? k - 1 : m - 1];
}

/* Keep those of `of` that reach `least`; how many. */
static size_t reach(const double *x, bool *of, size_t n, double least) {
    size_t m = 0;
    for (size_t i = 0; i < n; i++)
        m += of[i] = of[i] && fabs(x[i]) >= least;
    return m;
}

static double moved(double least, size_t found, size_t k) {
    return (double)found < 0.8 * (double)k    ? least / 1.025
           : (double)found > 1.25 * (double)k ? least * 1.025
                                              : least;
}

/* By a threshold, or exactly if that is due or more than 2k reach it. */
static size_t choose(const double *x, bool *of, size_t n, size_t k, bool due, double *least) {
    static bool by_threshold[N];
    memcpy(by_threshold, of, n * sizeof *of);
    size_t m = due ? 0 : reach(x, by_threshold, n, *least);
    if (due || m > 2 * k) {
        *least = largest(x, of, n, k);
        return reach(x, of, n, *least);
    }
    memcpy(of, by_threshold, n * sizeof *of);
    return m;
}

static void cut(algorithm *a, int part, const bool chosen[MOST_RANKS][N], size_t n) {
    for (int j = 1; j < ranks; j++) {
        double sum = 0;
        for (int r = 0; r < ranks; r++) {
            size_t place[N], m = 0;
            for (size_t i = 0; i < n; i++)
                if (chosen[r][i])
                    place[m++] = i;
            size_t even = n * (size_t)j / (size_t)ranks;
            sum += (double)(m ? place[m * (size_t)j / (size_t)ranks] : even);
        }
        a->from[part][j] = (size_t)(sum / ranks);
    }
    a->from[part][0] = 0;
    a->from[part][ranks] = n;
}

static void step_of_part(algorithm *a, int step, int part, gw_span s) {
    static bool chosen[MOST_RANKS][N], in[N];
    static double sum[N];
    size_t n = s.n, k = (size_t)fmax(1, floor(a->ratio * (double)n + 0.5));
    bool due = step % a->every == 0;
    memset(chosen, 1, sizeof chosen);
    memset(sum, 0, sizeof sum);
    for (int r = 0; r < ranks; r++) {
        size_t m = choose(a->v[r] + s.off, chosen[r], n, k, due, &a->local[part][r]);
        a->local[part][r] = moved(a->local[part][r], m, k);
    }
    if (step % a->boundaries == 0)
        cut(a, part, chosen, n);
    for (size_t i = 0; i < n; i++) {
        in[i] = false;
        for (int r = 0; r < ranks; r++) {
            sum[i] += chosen[r][i] ? a->v[r][s.off + i] : 0;
            in[i] = in[i] || chosen[r][i];
        }
    }
    for (int r = 0; r < ranks; r++) {
        double least = a->whole[part];
        size_t lo = a->from[part][r];
        choose(sum + lo, in + lo, a->from[part][r + 1] - lo, k, due, &least);
    }
    size_t all = reach(sum, in, n, 0);
    if (due || all > 2 * k) {
        a->whole[part] = largest(sum, in, n, k);
        all = reach(sum, in, n, a->whole[part]);
    }
    a->whole[part] = moved(a->whole[part], all, k);
    for (size_t i = 0; i < n; i++) {
        a->update[s.off + i] = in[i] ? sum[i] : 0;
        for (int r = 0; r < ranks; r++)
            a->v[r][s.off + i] = in[i] && chosen[r][i] ? 0 : a->v[r][s.off + i];
    }
}

static void algorithm_step(algorithm *a, int step, bool lazy) {
    for (int r = 0; r < ranks; r++)
        for (size_t i = 0; i < N; i++)
            a->v[r][i] += (double)gradient(r, step, i, N);
    if (!lazy)
        step_of_part(a, step, 0, (gw_span){0, N});
    for (int l = 0; lazy && l < LAYERS; l++)
        step_of_part(a, step, l, layers[l]);
}

/* The residual of this rank, which its state begins with. */
static void read_residual(const bench *b, float *out) {
    gw_io_memory m = {0};
    gw_io *io;
    CHECK_OK(gw_io_keep(&io, &m));
    CHECK_OK(b->strategy.ops->state(b->self, io));
    CHECK_OK(gw_io_close(io));
    CHECK_OK(gw_io_recall(&io, &m));
    CHECK_OK(gw_io_field(io, "residual", out, N * sizeof *out));
    gw_io_abandon(io);
    free(m.data);
}

/* What was sent and what all ranks keep is what there was. */
static void check_nothing_lost(const bench *b, const double *gradients, const double *sent) {
    static float mine[N], all[N];
    read_residual(b, mine);
    CHECK_MPI(MPI_Allreduce(mine, all, N, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD));
    for (size_t i = 0; i < N; i++)
        CHECK(fabs(gradients[i] - sent[i] - (double)all[i]) < 1e-3,
              "element %zu: of %g, %g was sent and %g kept", i, gradients[i], sent[i],
              (double)all[i]);
}

/* 24 steps, with exact thresholds and new regions in some of them. */
static void is_as_published(const char *options, double ratio, int every, int boundaries, bool lazy,
                            bool lists) {
    static algorithm a;
    static double gradients[N], sent[N];
    char comm[128];
    bench b;
    snprintf(comm, sizeof comm, "oktopk:ratio=%g,every=%d,boundaries=%d%s", ratio, every,
             boundaries, options);
    open_bench(&b, comm, "none", lazy, &shape);
    b.env.lists = lists;
    const float *update = b.env.grad;
    memset(&a, 0, sizeof a);
    memset(gradients, 0, sizeof gradients);
    memset(sent, 0, sizeof sent);
    a.ratio = ratio;
    a.every = every;
    a.boundaries = boundaries;
    for (int step = 0; step < 24; step++) {
        make_gradient(&b, step);
        exchange(&b);
        check_agreed(&b, comm);
        algorithm_step(&a, step, lazy);
        for (size_t i = 0; i < N; i++) {
            double want = a.update[i];
            for (int r = 0; r < ranks; r++)
                gradients[i] += (double)gradient(r, step, i, N);
            sent[i] += (double)update[i];
            CHECK(fabs((double)update[i] - want) < 1e-5 * (1 + fabs(want)),
                  "%s, lazy=%d, step %d: element %zu is %.9g, the algorithm says %.9g", comm, lazy,
                  step, i, (double)update[i], want);
        }
    }
    check_nothing_lost(&b, gradients, sent);
    close_bench(&b);
}

static void one_rank_drops_nothing(void) {
    bench b;
    open_bench(&b, "oktopk", "none", false, &shape);
    for (int step = 0; step < 3; step++) {
        make_gradient(&b, step);
        exchange(&b);
        for (size_t i = 0; i < N; i++)
            CHECK(b.env.grad[i] == gradient(0, step, i, N), "element %zu is %g", i,
                  (double)b.env.grad[i]);
    }
    close_bench(&b);
}

/* ---- what is sent ---- */

enum { STEPS = 60, WARM = 40 };

/* The most words of 4 bytes that a rank has sent in a step once thresholds have settled; *elements:
 * the most in an update. */
static double most_words(const char *comm, const char *codec, size_t *elements) {
    bench b;
    uint64_t most = 0;
    *elements = 0;
    open_bench(&b, comm, codec, false, &large_shape);
    for (int step = 0; step < STEPS; step++) {
        gw_batch_cost cost;
        make_gradient(&b, 12 * step);
        gw_ledger_begin();
        exchange(&b);
        gw_ledger_end(&cost);
        if (step < WARM)
            continue;
        size_t m = 0;
        for (size_t i = 0; i < LARGE; i++)
            m += b.env.grad[i] != 0;
        most = most > cost.wire_bytes ? most : cost.wire_bytes;
        *elements = *elements > m ? *elements : m;
    }
    close_bench(&b);
    CHECK_MPI(MPI_Allreduce(MPI_IN_PLACE, &most, 1, MPI_UINT64_T, MPI_MAX, MPI_COMM_WORLD));
    return (double)most / 4;
}

/* A list's element is sent in 5 bytes or a little more: here as words, of which the paper counts
 * two an element. */
static void sends_little(void) {
    size_t k = 300, elements, gathered;
    double p = ranks, bound = 6 * (double)k * (p - 1) / p;
    double words = most_words("oktopk:every=1000,boundaries=16", "none", &elements);
    double all = most_words("sparse", "topk", &gathered);
    if (me == 0)
        printf("%d ranks, k=%zu: at most %.0f words a rank and step, %zu elements in an update; "
               "bound %.0f; gathered %.0f\n",
               ranks, k, words, elements, bound, all);
    CHECK(elements >= k / 2 && elements <= 2 * k, "%zu elements in an update, k is %zu", elements,
          k);
    CHECK(words < bound, "%g words in a step, the bound is %g", words, bound);
    CHECK(all >= 5.0 / 4 * (double)k * (p - 1), "gathering took %g words", all);
    CHECK(ranks < 4 || words < all, "%g words in a step, %g by gathering", words, all);
}

int main(int argc, char **argv) {
    check_start(argc, argv);
    CHECK(ranks <= MOST_RANKS, "at most %d ranks", MOST_RANKS);
    if (ranks == 1) {
        one_rank_drops_nothing();
    } else {
        for (int lazy = 0; lazy < 2; lazy++) {
            is_as_published("", 0.05, 5, 3, lazy, false);
            is_as_published(",algo=ring", 0.02, 100, 7, lazy, true);
            is_as_published("", 0.3, 1, 1, lazy, true);
        }
        sends_little();
    }
    MPI_Finalize();
    return 0;
}
