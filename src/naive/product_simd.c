#include "base/clones.h"
#include "naive/products.h"

GW_CLONES static void simd_tile(int m, int depth, int cols, gw_naive_matrix a, const double *b,
                                double *c, size_t ldc) {
    for (int i = 0; i < m; i++)
        for (int k = 0; k < depth; k++) {
            double x = a.at[(size_t)i * a.row + (size_t)k * a.col];
            double *to = c + (size_t)i * ldc;
            const double *from = b + k * GW_NAIVE_COLS;
#pragma omp simd
            for (int j = 0; j < cols; j++)
                to[j] += x * from[j];
        }
}

void gw_naive_product_simd(const gw_naive_product *p) {
    gw_naive_tiles(p, simd_tile);
}
