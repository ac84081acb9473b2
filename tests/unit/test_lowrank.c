/* Low-rank compression: the passes against sums in double, what a step promises, and the same bits
 * everywhere. Several ranks are played by one process, which forms the sums between the calls. */
#include "base/mem.h"
#include "base/rng.h"
#include "compress/kernel/simd.h"
#include "compress/lowrank.h"

#include "unit.h"

#include <math.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_RANKS = 3 };

typedef struct world {
    int ranks;
    size_t rows, cols;
    gw_lowrank l[MOST_RANKS];
    float *grad[MOST_RANKS]; /* of exactly rows * cols floats: what is beyond is a sanitizer's */
} world;

static float *floats(size_t n) {
    float *x = malloc(n * sizeof *x);
    assert_non_null(x);
    memset(x, 0, n * sizeof *x);
    return x;
}

static world begin(int ranks, size_t rows, size_t cols, int rank, bool feedback) {
    world w = {.ranks = ranks, .rows = rows, .cols = cols};
    for (int k = 0; k < ranks; k++) {
        float *p = floats((size_t)rank * rows), *q = floats((size_t)rank * cols);
        assert_int_equal(gw_lowrank_open(&w.l[k], rows, cols, rank, feedback, p, q), GW_OK);
        gw_lowrank_draw(&w.l[k], 11);
        w.grad[k] = floats(rows * cols);
    }
    return w;
}

static void end(world *w) {
    for (int k = 0; k < w->ranks; k++) {
        free(w->l[k].p);
        free(w->l[k].q);
        free(w->grad[k]);
        gw_lowrank_close(&w->l[k]);
    }
}

/* All ranks get the sum. */
static void allreduce(float *const *x, int ranks, size_t n) {
    for (size_t i = 0; i < n; i++) {
        float sum = 0;
        for (int k = 0; k < ranks; k++)
            sum += x[k][i];
        for (int k = 0; k < ranks; k++)
            x[k][i] = sum;
    }
}

/* A step; the gradients become the update, on each rank. */
static void step(world *w, uint64_t number) {
    float *p[MOST_RANKS], *q[MOST_RANKS];
    for (int k = 0; k < w->ranks; k++) {
        p[k] = w->l[k].p, q[k] = w->l[k].q;
        if (number > 0)
            gw_lowrank_warm(&w->l[k], 100 + number);
        gw_lowrank_project(&w->l[k], w->grad[k]);
    }
    allreduce(p, w->ranks, (size_t)w->l[0].rank * w->rows);
    for (int k = 0; k < w->ranks; k++) {
        gw_lowrank_orthonormalise(p[k], w->rows, w->l[k].rank);
        gw_lowrank_gather(&w->l[k], w->grad[k]);
    }
    allreduce(q, w->ranks, (size_t)w->l[0].rank * w->cols);
    for (int k = 0; k < w->ranks; k++)
        gw_lowrank_expand(&w->l[k], w->grad[k]);
}

/* Uniform, of variance 1. */
static float noise(uint64_t key, size_t i) {
    return (float)(sqrt(3.0) * (2 * gw_rng_unit(key, i) - 1));
}

static void fill(world *w, uint64_t key) {
    for (int k = 0; k < w->ranks; k++)
        for (size_t i = 0; i < w->rows * w->cols; i++)
            w->grad[k][i] = noise(gw_rng_key(key, (uint64_t)k), i);
}

static double norm(const float *x, size_t n) {
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += (double)x[i] * x[i];
    return sqrt(sum);
}

static const size_t shapes[][2] = {{1, 1},   {3, 1},   {1, 9},    {5, 10},   {33, 16},
                                   {16, 33}, {37, 31}, {128, 10}, {784, 47}, {64, 1040}};
static const int some_ranks[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 17, 32};
#define COUNT(a) (sizeof(a) / sizeof *(a))

/* ---- the passes ---- */

static void near(double have, double want, double size) {
    if (!(fabs(have - want) <= 1e-5 * (size + 1e-30)))
        fail_msg("%g, expected %g of terms that sum to %g", have, want, size);
}

static void check_project(const world *w, const float *q) {
    const gw_lowrank *l = &w->l[0];
    for (int j = 0; j < l->rank; j++)
        for (size_t i = 0; i < w->rows; i++) {
            double want = 0, size = 0;
            for (size_t c = 0; c < w->cols; c++) {
                double t = (double)w->grad[0][i * w->cols + c] * q[(size_t)j * w->cols + c];
                want += t, size += fabs(t);
            }
            near(l->p[(size_t)j * w->rows + i], want, size);
        }
}

static void check_gather(const world *w) {
    const gw_lowrank *l = &w->l[0];
    for (int j = 0; j < l->rank; j++)
        for (size_t c = 0; c < w->cols; c++) {
            double want = 0, size = 0;
            for (size_t i = 0; i < w->rows; i++) {
                double t = (double)w->grad[0][i * w->cols + c] * l->p[(size_t)j * w->rows + i];
                want += t, size += fabs(t);
            }
            near(l->q[(size_t)j * w->cols + c], want, size);
        }
}

static void check_expand(const world *w, const float *to) {
    const gw_lowrank *l = &w->l[0];
    for (size_t i = 0; i < w->rows; i++)
        for (size_t c = 0; c < w->cols; c++) {
            double want = 0, size = 0;
            for (int j = 0; j < l->rank; j++) {
                double t = (double)l->p[(size_t)j * w->rows + i] * l->q[(size_t)j * w->cols + c];
                want += t, size += fabs(t);
            }
            near(to[i * w->cols + c], want, size);
        }
}

/* What is left in m: grad - p q^T, when all of q is this rank's own. */
static void check_residual(world *w) {
    gw_lowrank *l = &w->l[0];
    gw_lowrank_settle(l);
    for (size_t i = 0; l->m && i < w->rows * w->cols; i++) {
        double want = w->grad[0][i], size = fabs(want);
        for (int j = 0; j < l->rank; j++) {
            double t = (double)l->p[(size_t)j * w->rows + i / w->cols] *
                       l->q[(size_t)j * w->cols + i % w->cols];
            want -= t, size += fabs(t);
        }
        near(l->m[i], want, size);
    }
}

static void test_passes(void **state) {
    for (size_t s = 0; s < COUNT(shapes); s++)
        for (size_t r = 0; r < 2 * COUNT(some_ranks); r++) {
            world w = begin(1, shapes[s][0], shapes[s][1], some_ranks[r / 2], r % 2);
            gw_lowrank *l = &w.l[0];
            float *to = floats(w.rows * w.cols);
            fill(&w, 3);
            gw_lowrank_project(l, w.grad[0]);
            check_project(&w, l->q);
            for (size_t i = 0; i < (size_t)l->rank * w.rows; i++)
                l->p[i] = noise(5, i); /* any p will do */
            gw_lowrank_gather(l, w.grad[0]);
            check_gather(&w);
            gw_lowrank_expand(l, to);
            check_expand(&w, to);
            check_residual(&w);
            free(to);
            end(&w);
        }
}

static void test_bad_rank(void **state) {
    gw_lowrank l;
    assert_int_equal(gw_lowrank_open(&l, 3, 3, 0, true, NULL, NULL), GW_ERR_INTERNAL);
    assert_int_equal(gw_lowrank_open(&l, 3, 3, 33, true, NULL, NULL), GW_ERR_INTERNAL);
    assert_int_equal(gw_lowrank_open(&l, 0, 3, 2, true, NULL, NULL), GW_ERR_INTERNAL);
    assert_true(gw_lowrank_pays(784, 256, 2) && gw_lowrank_pays(128, 10, 2));
    assert_false(gw_lowrank_pays(4, 4, 2) || gw_lowrank_pays(1, 100, 1));
}

/* ---- orthonormal columns ---- */

static void orthonormal(const float *p, size_t rows, int rank, int zeros) {
    int found = 0;
    for (int a = 0; a < rank; a++) {
        const float *x = p + (size_t)a * rows;
        bool zero = norm(x, rows) == 0;
        found += zero;
        for (int b = 0; b <= a && !zero; b++) {
            double dot = 0, want = a == b;
            for (size_t i = 0; i < rows; i++)
                dot += (double)x[i] * p[(size_t)b * rows + i];
            if (!(fabs(dot - want) < 1e-6))
                fail_msg("columns %d, %d of %d x %zu: product %g", a, b, rank, rows, dot);
        }
    }
    assert_int_equal(found, zeros);
}

static void test_orthonormalise(void **state) {
    enum { ROWS = 301 };
    static float p[GW_LOWRANK_MOST * ROWS];
    for (int size = -1; size <= 1; size++)
        for (int rank = 1; rank <= GW_LOWRANK_MOST; rank++) {
            for (size_t i = 0; i < (size_t)rank * ROWS; i++) /* columns that nearly agree */
                p[i] = (noise(1, i % ROWS) + 1e-3f * noise(2, i)) * powf(10, 30.0f * (float)size);
            gw_lowrank_orthonormalise(p, ROWS, rank);
            orthonormal(p, ROWS, rank, 0);
        }
}

static void test_dependent_columns_become_zero(void **state) {
    enum { ROWS = 100, RANK = 5 };
    static float p[RANK * ROWS];
    for (size_t i = 0; i < ROWS; i++) {
        p[i] = noise(1, i);
        p[ROWS + i] = 0;
        p[2 * ROWS + i] = -3.7f * p[i];
        p[3 * ROWS + i] = noise(2, i);
        p[4 * ROWS + i] = 0.3f * p[i] - 1e3f * p[3 * ROWS + i];
    }
    gw_lowrank_orthonormalise(p, ROWS, RANK);
    orthonormal(p, ROWS, RANK, 3);
    assert_true(norm(p + ROWS, ROWS) == 0 && norm(p + 2 * ROWS, ROWS) == 0 &&
                norm(p + 4 * ROWS, ROWS) == 0);
}

static void test_bad_values_show(void **state) {
    const float bad[] = {NAN, INFINITY, -INFINITY};
    for (int i = 0; i < 3; i++)
        for (int feedback = 0; feedback < 2; feedback++) {
            world w = begin(2, 40, 30, 2, feedback);
            fill(&w, 8);
            w.grad[1][17 * 30 + 4] = bad[i];
            step(&w, 0);
            for (int k = 0; k < 2; k++)
                for (size_t x = 0; x < 40 * 30; x++)
                    assert_true(isnan(w.grad[k][x]));
            fill(&w, 9); /* and it does not go away by itself: the residual holds it */
            step(&w, 1);
            assert_true(isnan(w.grad[0][0]));
            end(&w);
        }
}

/* ---- a step ---- */

/* Gradients whose sum has as many independent columns as there are factors are not approximated. */
static void test_low_rank_is_exact(void **state) {
    for (size_t s = 0; s < COUNT(shapes); s++)
        for (size_t r = 0; r < COUNT(some_ranks); r++) {
            size_t rows = shapes[s][0], cols = shapes[s][1];
            int rank = some_ranks[r], ranks = rank < 3 ? rank : 3;
            bool full = (size_t)rank >= rows || (size_t)rank >= cols;
            world w = begin(ranks, rows, cols, rank, true);
            float *sum = floats(rows * cols);
            if (full)
                fill(&w, 21);
            for (int k = 0; k < ranks; k++)
                for (size_t i = 0; i < rows * cols; i++) {
                    if (!full)
                        w.grad[k][i] =
                            noise((uint64_t)k, i / cols) * noise(50, i % cols + (size_t)k);
                    sum[i] += w.grad[k][i];
                }
            step(&w, 0);
            double size = norm(sum, rows * cols);
            for (size_t i = 0; i < rows * cols; i++)
                sum[i] -= w.grad[0][i];
            if (!(norm(sum, rows * cols) < 2e-5 * size))
                fail_msg("%zu x %zu, rank %d: off by %g of %g", rows, cols, rank,
                         norm(sum, rows * cols), size);
            free(sum);
            end(&w);
        }
}

/* What has been sent and the residuals are together what there was to send; without feedback what
 * is not sent is gone. */
static void test_feedback_adds_up(void **state) {
    enum { STEPS = 50, ROWS = 60, COLS = 35, N = ROWS * COLS };
    for (int feedback = 0; feedback < 2; feedback++) {
        world w = begin(3, ROWS, COLS, 2, feedback);
        static double want[N], have[N];
        memset(want, 0, sizeof want);
        memset(have, 0, sizeof have);
        for (uint64_t t = 0; t < STEPS; t++) {
            fill(&w, t);
            for (size_t i = 0; i < N; i++)
                for (int k = 0; k < 3; k++)
                    want[i] += w.grad[k][i];
            step(&w, t);
            assert_memory_equal(w.grad[0], w.grad[1], N * sizeof(float));
            for (size_t i = 0; i < N; i++)
                have[i] += w.grad[0][i];
        }
        double off = 0;
        for (int k = 0; feedback && k < 3; k++) {
            gw_lowrank_settle(&w.l[k]);
            for (size_t i = 0; i < N; i++)
                have[i] += w.l[k].m[i];
        }
        for (size_t i = 0; i < N; i++)
            off = fmax(off, fabs(have[i] - want[i]));
        assert_true(feedback ? off < 2e-3 : off > 1);
        end(&w);
    }
}

/* Residual norm of rank 0 after `steps` steps of gradients with a mean that they have in common and
 * noise of their own. `averaged`: the residual is off the mean of what the ranks gave. */
static double residual_norm(int steps, bool averaged) {
    enum { ROWS = 24, COLS = 16, N = ROWS * COLS };
    world w = begin(2, ROWS, COLS, 2, true);
    for (int t = 0; t < steps; t++) {
        for (int k = 0; k < 2; k++)
            for (size_t i = 0; i < N; i++)
                w.grad[k][i] = 0.3f * noise(7, i) + noise(gw_rng_key((uint64_t)t, (uint64_t)k), i);
        step(&w, (uint64_t)t);
        for (int k = 0; averaged && k < 2; k++)
            for (int c = 0; c < 2 * COLS; c++)
                w.l[k].own[c] = w.l[k].q[c] / 2;
    }
    gw_lowrank_settle(&w.l[0]);
    double size = norm(w.l[0].m, N);
    end(&w);
    return size;
}

static void test_residual_is_bounded(void **state) {
    double early = residual_norm(200, false), late = residual_norm(2000, false);
    double early_averaged = residual_norm(200, true), late_averaged = residual_norm(2000, true);
    print_message("residual after 200, 2000 steps: %.1f, %.1f; averaged: %.1f, %.1f\n", early, late,
                  early_averaged, late_averaged);
    assert_true(late < 1.5 * early);
    assert_true(late_averaged > 2 * early_averaged && late_averaged > 3 * late);
}

static void test_settling_changes_no_bits(void **state) {
    const int ranks[] = {2, 11};
    for (size_t r = 0; r < COUNT(ranks); r++) {
        world a = begin(2, 50, 27, ranks[r], true), b = begin(2, 50, 27, ranks[r], true);
        for (uint64_t t = 0; t < 6; t++) {
            fill(&a, t);
            fill(&b, t);
            step(&a, t);
            step(&b, t);
            assert_memory_equal(a.grad[0], b.grad[0], 50 * 27 * sizeof(float));
            gw_lowrank_settle(&b.l[t % 2]);
        }
        end(&a);
        end(&b);
    }
}

/* update(-2^k g) = -2^k update(g) in every bit, over steps, and at any magnitude. */
static void test_scales(void **state) {
    enum { N = 40 * 30 };
    const float scale[] = {-1, 0x1p40f, -0x1p-40f, 0x1p70f, 0x1p-90f};
    for (size_t s = 0; s < COUNT(scale); s++) {
        world a = begin(2, 40, 30, 2, true), b = begin(2, 40, 30, 2, true);
        for (uint64_t t = 0; t < 4; t++) {
            fill(&a, t);
            fill(&b, t);
            for (int k = 0; k < 2; k++)
                for (size_t i = 0; i < N; i++)
                    b.grad[k][i] *= scale[s];
            step(&a, t);
            step(&b, t);
            for (size_t i = 0; i < N; i++)
                a.grad[0][i] *= scale[s];
            assert_memory_equal(a.grad[0], b.grad[0], N * sizeof(float));
        }
        end(&a);
        end(&b);
    }
}

/* Zeros stay zeros; and directions that were lost in them are found again. */
static void test_zeros(void **state) {
    enum { N = 40 * 30 };
    world w = begin(2, 40, 30, 2, true);
    for (uint64_t t = 0; t < 3; t++) {
        step(&w, t);
        for (size_t i = 0; i < N; i++)
            assert_true(w.grad[0][i] == 0 && w.grad[1][i] == 0);
    }
    for (size_t i = 0; i < N; i++)
        w.grad[0][i] = noise(1, i / 30) * noise(2, i % 30);
    float *want = floats(N);
    memcpy(want, w.grad[0], N * sizeof *want);
    step(&w, 3);
    for (size_t i = 0; i < N; i++)
        assert_true(fabsf(w.grad[1][i] - want[i]) < 1e-5f);
    free(want);
    end(&w);
}

/* ---- the same bits everywhere ---- */

static void run_at(const char *level, int threads, int rank, float *out) {
    size_t rows = 700, cols = 331, n = rows * cols; /* long enough for three threads */
    assert_int_equal(setenv("GW_SIMD", level, 1), 0);
    omp_set_num_threads(threads);
    world w = begin(2, rows, cols, rank, true);
    for (uint64_t t = 0; t < 3; t++) {
        fill(&w, t);
        step(&w, t);
    }
    gw_lowrank_settle(&w.l[1]);
    memcpy(out, w.grad[0], n * sizeof *out);
    memcpy(out + n, w.l[1].m, n * sizeof *out);
    end(&w);
    unsetenv("GW_SIMD");
}

static void test_same_bits(void **state) {
    enum { N = 2 * 700 * 331 };
    const int ranks[] = {1, 2, 3, 6, 8, 12};
    float *want = floats(N), *have = floats(N);
    for (size_t r = 0; r < COUNT(ranks); r++)
        for (int level = 0; level < GW_SIMD_LEVELS; level++) {
            gw_simd best;
            assert_int_equal(gw_simd_pick(&best), GW_OK);
            if (level > (int)best)
                continue; /* the others must agree all the same */
            for (int threads = 1; threads <= 3; threads++) {
                bool first = level == 0 && threads == 1;
                run_at(gw_simd_name((gw_simd)level), threads, ranks[r], first ? want : have);
                if (!first && memcmp(want, have, N * sizeof *want) != 0)
                    fail_msg("rank %d: %s on %d threads gives other bits", ranks[r],
                             gw_simd_name((gw_simd)level), threads);
            }
        }
    free(want);
    free(have);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_passes),
        cmocka_unit_test(test_bad_rank),
        cmocka_unit_test(test_orthonormalise),
        cmocka_unit_test(test_dependent_columns_become_zero),
        cmocka_unit_test(test_bad_values_show),
        cmocka_unit_test(test_low_rank_is_exact),
        cmocka_unit_test(test_feedback_adds_up),
        cmocka_unit_test(test_residual_is_bounded),
        cmocka_unit_test(test_settling_changes_no_bits),
        cmocka_unit_test(test_scales),
        cmocka_unit_test(test_zeros),
        cmocka_unit_test(test_same_bits),
    };
    gw_flush_denormals();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
