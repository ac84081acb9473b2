/* An optimizer as the trainer opens it, but for its products, which are those of the library. */
#ifndef GW_TESTS_RULE_H
#define GW_TESTS_RULE_H

#include "../specs.h"

/* Summed in the order of the library's loops. */
static inline void rule_product(bool ta, bool tb, int m, int n, int k, const float *a, int lda,
                                const float *b, int ldb, float beta, float *c, int ldc) {
    for (int i = 0; i < m; i++)
        for (int j = 0; j < n; j++) {
            float sum = beta != 0 ? beta * c[i * ldc + j] : 0;
            for (int l = 0; l < k; l++)
                sum += a[ta ? l * lda + i : i * lda + l] * b[tb ? j * ldb + l : l * ldb + j];
            c[i * ldc + j] = sum;
        }
}

/* The last two of the tensors, which must outlive it, are of the last layer. */
static inline gw_err open_rule(gw_optimizer **out, const char *text, const gw_tensor *tensors,
                               int n) {
    gw_optimizer_setup setup = {.n = gw_span_end(tensors[n - 1].span),
                                .model = {tensors, n, .head = n - 2, .product = rule_product}};
    GW_TRY(keep_spec(&setup.spec, text, GW_SPEC_ONE));
    return gw_optimizer_open(out, &setup);
}

#endif
