/* gw_gemm against a plain product in double, over odd shapes, transposes, strides and threads. */
#include "nn/gemm.h"

#include "base/mem.h"
#include "base/rng.h"

#include "unit.h"

#include <math.h>
#include <omp.h>
#include <stdlib.h>

enum { PAD = 3 };                /* leading dimensions exceed the widths by this */
static const float GUARD = 7.5f; /* what lies between the rows of C */

typedef struct shape {
    int m, n, k;
} shape;

static float *random_matrix(uint64_t key, int rows, int ld) {
    float *x;
    assert_int_equal(gw_alloc(&x, (size_t)(rows * ld), sizeof *x), GW_OK);
    for (int i = 0; i < rows * ld; i++)
        x[i] = (float)(2.0 * gw_rng_unit(key, (uint64_t)i) - 1.0);
    return x;
}

static double element(const float *x, int ld, bool transposed, int i, int j) {
    return transposed ? x[j * ld + i] : x[i * ld + j];
}

static void check(bool ta, bool tb, shape s, float beta) {
    int lda = (ta ? s.m : s.k) + PAD, ldb = (tb ? s.k : s.n) + PAD, ldc = s.n + PAD;
    float *a = random_matrix(1, ta ? s.k : s.m, lda);
    float *b = random_matrix(2, tb ? s.n : s.k, ldb);
    float *c = random_matrix(3, s.m, ldc), *before = random_matrix(3, s.m, ldc);
    for (int i = 0; i < s.m; i++) {
        for (int j = 0; beta == 0.0f && j < s.n; j++)
            c[i * ldc + j] = NAN; /* beta 0 must not read C */
        for (int j = s.n; j < ldc; j++)
            c[i * ldc + j] = GUARD;
    }
    gw_gemm(ta, tb, s.m, s.n, s.k, a, lda, b, ldb, beta, c, ldc);
    for (int i = 0; i < s.m; i++) {
        for (int j = 0; j < s.n; j++) {
            double want = beta == 0.0f ? 0.0 : (double)beta * before[i * ldc + j];
            for (int l = 0; l < s.k; l++)
                want += element(a, lda, ta, i, l) * element(b, ldb, tb, l, j);
            double error = fabs((double)c[i * ldc + j] - want);
            if (!(error <= 1e-6 * (s.k + 1)))
                fail_msg("%d%d m %d n %d k %d beta %g threads %d: c[%d,%d] = %g, want %g", ta, tb,
                         s.m, s.n, s.k, (double)beta, omp_get_max_threads(), i, j,
                         (double)c[i * ldc + j], want);
        }
        for (int j = s.n; j < ldc; j++)
            assert_true(c[i * ldc + j] == GUARD);
    }
    free(a);
    free(b);
    free(c);
    free(before);
}

/* The larger ones give several threads a tile each, also where one dimension is too short to cut;
 * the largest, with B transposed, are turned. */
static const shape shapes[] = {
    {1, 1, 1},      {1, 7, 3},      {5, 1, 9},      {3, 10, 17},    {13, 31, 1},    {64, 10, 128},
    {17, 129, 65},  {129, 131, 67}, {7, 1031, 201}, {1031, 3, 403}, {130, 260, 51}, {250, 250, 50},
    {12, 700, 300}, {61, 513, 260}, {0, 4, 3},      {4, 0, 3},      {4, 3, 0},      {0, 0, 0},
};

static void with_threads(int threads) {
    static const float betas[] = {0.0f, 1.0f, -0.5f};
    omp_set_num_threads(threads);
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int t = 0; t < 4; t++)
            for (int b = 0; b < 3; b++)
                check(t & 1, t & 2, shapes[i], betas[b]);
    assert_int_equal(omp_get_max_threads(), threads); /* the caller's setting survives */
    omp_set_num_threads(1);
}

static void test_threads(void **state) {
    static const int threads[] = {1, 2, 5};
    for (int i = 0; i < 3; i++)
        with_threads(threads[i]);
}

/* Called by a team's members, each computes alone and gets its own product right. */
static void test_inside_a_team(void **state) {
    enum { N = 200 };
    float *a = random_matrix(1, N, N), *one = random_matrix(2, N, N), *each[2];
    for (int t = 0; t < 2; t++)
        each[t] = random_matrix(3, N, N);
    gw_gemm(false, false, N, N, N, a, N, a, N, 0.0f, one, N);
#pragma omp parallel for num_threads(2) schedule(static, 1)
    for (int t = 0; t < 2; t++)
        gw_gemm(false, false, N, N, N, a, N, a, N, 0.0f, each[t], N);
    for (int t = 0; t < 2; t++) {
        assert_memory_equal(one, each[t], N * N * sizeof *one);
        free(each[t]);
    }
    free(a);
    free(one);
}

static void count(void *calls) {
    ++*(int *)calls;
}

/* A product that is cut lets others have a turn between its pieces, and is right; its bits do not
 * depend on whether anybody asks for that. */
static void test_in_pieces(void **state) {
    enum { M = 2048, N = 256, K = 2112 };
    float *a = random_matrix(1, M, K), *b = random_matrix(2, K, N),
          *polled = random_matrix(3, M, N), *alone = random_matrix(4, M, N);
    int calls = 0;
    omp_set_num_threads(2);
    gw_gemm_between(count, &calls);
    check(false, false, (shape){64, 40, 100}, 0.0f);
    assert_int_equal(calls, 0);
    gw_gemm(false, false, M, N, K, a, K, b, N, 0.0f, polled, N);
    gw_gemm_between(NULL, NULL);
    gw_gemm(false, false, M, N, K, a, K, b, N, 0.0f, alone, N);
    assert_int_equal(calls, 1);
    assert_memory_equal(polled, alone, M * N * sizeof *alone);
    for (int i = 0; i < M; i += 97)
        for (int j = 0; j < N; j += 13) {
            double want = 0;
            for (int l = 0; l < K; l++)
                want += element(a, K, false, i, l) * element(b, N, false, l, j);
            assert_true(fabs((double)polled[i * N + j] - want) <= 1e-6 * (K + 1));
        }
    free(a);
    free(b);
    free(polled);
    free(alone);
}

/* The rule: as few pieces as the size allows, and no more than cost 2% by packing. */
static void test_how_many_pieces(void **state) {
    static const struct {
        gw_product p;
        gw_gemm_cuts want;
    } cases[] = {
        {{false, false, 512, 512, 512, false}, {1, 1}},
        {{false, false, 512, 512, 8192, false}, {1, 1}},  /* a cut would cost 8% */
        {{false, false, 2048, 4096, 512, false}, {1, 3}}, /* cutting n costs less */
        {{false, false, 4096, 2048, 512, false}, {3, 1}},
        {{false, false, 4096, 4096, 256, false}, {2, 2}},   /* no more than 1 x 3 */
        {{true, false, 8, 1 << 20, 16384, false}, {1, 32}}, /* as fine as it gets */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        gw_gemm_cuts is = gw_gemm_pieces(&cases[i].p), want = cases[i].want;
        if (is.rows != want.rows || is.cols != want.cols)
            fail_msg("case %zu: %d x %d pieces, want %d x %d", i, is.rows, is.cols, want.rows,
                     want.cols);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_threads),
        cmocka_unit_test(test_inside_a_team),
        cmocka_unit_test(test_in_pieces),
        cmocka_unit_test(test_how_many_pieces),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
