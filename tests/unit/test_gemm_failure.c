/* A product that the library cannot do is told, once and for good; its results are nobody's. The
 * library's entry is replaced by one that fails on demand (CBLAS has no way to fail). */
#include "nn/gemm.h"

#include "unit.h"

enum { SUCCESS = 0, OUT_OF_MEMORY = 1 }; /* dnnl_status_t */

static int status = SUCCESS;

int dnnl_sgemm(char ta, char tb, int64_t m, int64_t n, int64_t k, float alpha, const float *a,
               int64_t lda, const float *b, int64_t ldb, float beta, float *c, int64_t ldc);

int dnnl_sgemm(char ta, char tb, int64_t m, int64_t n, int64_t k, float alpha, const float *a,
               int64_t lda, const float *b, int64_t ldb, float beta, float *c, int64_t ldc) {
    return status;
}

static void multiply(void) {
    float a[4] = {0}, b[4] = {0}, c[4] = {0};
    gw_gemm(false, false, 2, 2, 2, a, 2, b, 2, 0.0f, c, 2);
}

static void test_failure_is_kept(void **state) {
    bool can_fail = gw_gemm_allow("dnnl") == GW_OK;
    multiply();
    assert_int_equal(gw_gemm_check(), GW_OK);
    status = OUT_OF_MEMORY;
    multiply();
    status = SUCCESS;
    multiply();
    assert_int_equal(gw_gemm_check(), can_fail ? GW_ERR_INTERNAL : GW_OK);
    if (can_fail) {
        assert_message("oneDNN");
        assert_message("out_of_memory");
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_failure_is_kept)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
