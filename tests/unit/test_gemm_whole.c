/* Into how many products of the library's a product is cut: the library's entries are replaced by
 * ones that count. */
#include "nn/gemm.h"

#include <omp.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static int products;

int dnnl_sgemm(char ta, char tb, int64_t m, int64_t n, int64_t k, float alpha, const float *a,
               int64_t lda, const float *b, int64_t ldb, float beta, float *c, int64_t ldc);
void cblas_sgemm(int order, int ta, int tb, int m, int n, int k, float alpha, const float *a,
                 int lda, const float *b, int ldb, float beta, float *c, int ldc);

int dnnl_sgemm(char ta, char tb, int64_t m, int64_t n, int64_t k, float alpha, const float *a,
               int64_t lda, const float *b, int64_t ldb, float beta, float *c, int64_t ldc) {
    (void)ta, (void)tb, (void)m, (void)n, (void)k, (void)alpha, (void)a, (void)lda, (void)b;
    (void)ldb, (void)beta, (void)c, (void)ldc;
    products++;
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
    products = 0;
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
    assert_true(products > 1);
    assert_int_equal(polls, products - 1);
    gw_gemm_between(NULL, NULL);
    multiply();
    assert_int_equal(products, 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_whole_where_nobody_polls)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
