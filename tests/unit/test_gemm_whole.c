/* Into how many products of the library's a product is cut: the library's entries are replaced by
 * ones that count. */
#include "nn/gemm.h"

#include "unit.h"

#include <omp.h>
#include <string.h>

static int products, by_dnnl;

int dnnl_sgemm(char ta, char tb, int64_t m, int64_t n, int64_t k, float alpha, const float *a,
               int64_t lda, const float *b, int64_t ldb, float beta, float *c, int64_t ldc);
void cblas_sgemm(int order, int ta, int tb, int m, int n, int k, float alpha, const float *a,
                 int lda, const float *b, int ldb, float beta, float *c, int ldc);

int dnnl_sgemm(char ta, char tb, int64_t m, int64_t n, int64_t k, float alpha, const float *a,
               int64_t lda, const float *b, int64_t ldb, float beta, float *c, int64_t ldc) {
    products++;
    by_dnnl++;
    return 0;
}

void cblas_sgemm(int order, int ta, int tb, int m, int n, int k, float alpha, const float *a,
                 int lda, const float *b, int ldb, float beta, float *c, int ldc) {
    products++;
}

/* Operands are not looked at: the library is not there. */
static void multiply(void) {
    static float x[1];
    products = by_dnnl = 0;
    gw_gemm(false, false, 4096, 4096, 4096, x, 4096, x, 4096, 0.0f, x, 4096);
}

static void multiply_as(bool ta, int m, int n, int k) {
    static float x[1];
    by_dnnl = products = 0;
    gw_gemm(ta, false, m, n, k, x, ta ? m : k, x, n, 0.0f, x, n);
}

static void poll(void *calls) {
    ++*(int *)calls;
}

/* The same pieces, whether somebody polls between them or not. */
static void test_pieces_of_the_shape(void **state) {
    int polls = 0, pieces;
    omp_set_num_threads(1);
    multiply();
    pieces = products;
    assert_true(pieces > 1);
    gw_gemm_between(poll, &polls);
    multiply();
    assert_int_equal(products, pieces);
    assert_int_equal(polls, pieces - 1);
    gw_gemm_between(NULL, NULL);
}

/* oneDNN, but for what its AVX2 kernels are slow at; and only what is allowed. */
static void test_library_of_the_shape(void **state) {
    if (!strstr(gw_gemm_library(), " + "))
        skip();
    bool slow = !strstr(gw_gemm_library(), "avx512");
    multiply_as(false, 64, 128, 256);
    assert_int_equal(by_dnnl, 1);
    multiply_as(true, 784, 512, 512);
    assert_int_equal(by_dnnl, 1);
    multiply_as(true, 512, 512, 512);
    assert_int_equal(by_dnnl, !slow);
    assert_int_equal(gw_gemm_allow("cblas"), GW_OK);
    multiply_as(false, 64, 128, 256);
    assert_int_equal(by_dnnl, 0);
    assert_null(strstr(gw_gemm_library(), "oneDNN"));
    assert_int_equal(gw_gemm_allow("dnnl"), GW_OK);
    multiply_as(true, 512, 512, 512);
    assert_int_equal(by_dnnl, 1);
    assert_int_equal(gw_gemm_allow("auto"), GW_OK);
    assert_non_null(strstr(gw_gemm_library(), "oneDNN"));
    assert_int_equal(gw_gemm_allow("mkl"), GW_ERR_UNSUPPORTED);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_pieces_of_the_shape),
                                       cmocka_unit_test(test_library_of_the_shape)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
