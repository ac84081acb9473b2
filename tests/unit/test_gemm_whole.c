/* Into how many products of the library's a product is cut: the library's entries are replaced by
 * ones that count. */
#include "nn/gemm.h"

#include <math.h>
#include <omp.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static int products, by_dnnl;

int dnnl_sgemm(char ta, char tb, int64_t m, int64_t n, int64_t k, float alpha, const float *a,
               int64_t lda, const float *b, int64_t ldb, float beta, float *c, int64_t ldc);
void cblas_sgemm(int order, int ta, int tb, int m, int n, int k, float alpha, const float *a,
                 int lda, const float *b, int ldb, float beta, float *c, int ldc);

int dnnl_sgemm(char ta, char tb, int64_t m, int64_t n, int64_t k, float alpha, const float *a,
               int64_t lda, const float *b, int64_t ldb, float beta, float *c, int64_t ldc) {
    (void)ta, (void)tb, (void)m, (void)n, (void)k, (void)alpha, (void)a, (void)lda, (void)b;
    (void)ldb, (void)beta, (void)c, (void)ldc;
    products++;
    by_dnnl++;
    return 0;
}

void cblas_sgemm(int order, int ta, int tb, int m, int n, int k, float alpha, const float *a,
                 int lda, const float *b, int ldb, float beta, float *c, int ldc) {
    (void)order, (void)ta, (void)tb, (void)m, (void)n, (void)k, (void)alpha, (void)a, (void)lda;
    (void)b, (void)ldb, (void)beta, (void)c, (void)ldc;
    products++;
}

/* Operands are not looked at: the library is not there. */
static void multiply(void) {
    static float x[1];
    products = by_dnnl = 0;
    gw_gemm(false, false, 4096, 4096, 4096, x, 4096, x, 4096, 0.0f, x, 4096);
}

static void poll(void *calls) {
    ++*(int *)calls;
}

static void test_whole_where_nobody_polls(void **state) {
    (void)state;
    int polls = 0;
    omp_set_num_threads(1);
    multiply();
    assert_int_equal(products, 1);
    gw_gemm_between(poll, &polls);
    multiply();
    assert_int_equal(products, 1); /* no plan says how large a piece is */
    static const gw_gemm_plan plan = {.piece = 3e10};
    gw_gemm_adopt(&plan);
    multiply();
    assert_true(products > 1);
    assert_int_equal(polls, products - 1);
    gw_gemm_between(NULL, NULL);
    multiply();
    assert_int_equal(products, 1);
}

/* Each as the plan says; what it does not name as what is most like it; by the allowed alone. */
static void test_way_of_the_plan(void **state) {
    (void)state;
    int dnnl = gw_gemm_way_named("dnnl", 1), cblas = gw_gemm_way_named("cblas", 1);
    if (dnnl < 0 || cblas < 0)
        skip();
    static float x[1];
    gw_gemm_plan plan = {.n = 2,
                         .piece = INFINITY,
                         .choice = {{{false, false, 64, 128, 256, false}, dnnl, dnnl},
                                    {{false, false, 64, 512, 1024, false}, cblas, cblas}}};
    static const struct {
        int m, n, k, dnnl;
    } cases[] = {{64, 128, 256, 1}, {64, 512, 1024, 0}, {17, 512, 1024, 0}, {256, 128, 256, 1}};
    gw_gemm_adopt(&plan);
    for (int i = 0; i < 4; i++) {
        by_dnnl = 0;
        gw_gemm(false, false, cases[i].m, cases[i].n, cases[i].k, x, cases[i].k, x, cases[i].n,
                0.0f, x, cases[i].n);
        assert_int_equal(by_dnnl, cases[i].dnnl);
    }
    assert_int_equal(gw_gemm_allow("cblas"), GW_OK);
    assert_int_equal(gw_gemm_way_named("dnnl", 1), -1);
    assert_null(strstr(gw_gemm_library(), "oneDNN"));
    assert_int_equal(gw_gemm_allow("auto"), GW_OK);
    assert_non_null(strstr(gw_gemm_library(), "oneDNN"));
    assert_int_equal(gw_gemm_allow("mkl"), GW_ERR_UNSUPPORTED);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_whole_where_nobody_polls),
                                       cmocka_unit_test(test_way_of_the_plan)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
