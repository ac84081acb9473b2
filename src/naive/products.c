/* Compiled without vectorisation: see CMakeLists.txt. */
#include "naive/products.h"

#include <string.h>

#ifdef GW_HAVE_CBLAS
#include <cblas.h>
#endif

void gw_naive_product_plain(const gw_naive_product *p) {
    for (int i = 0; i < p->m; i++)
        for (int j = 0; j < p->n; j++) {
            const double *a = p->a.at + (size_t)i * p->a.row, *b = p->b.at + (size_t)j * p->b.col;
            double sum = 0;
            for (int k = 0; k < p->k; k++)
                sum += a[(size_t)k * p->a.col] * b[(size_t)k * p->b.row];
            double *c = p->c + (size_t)i * (size_t)p->n + j;
            *c = p->add ? *c + sum : sum;
        }
}

static int product_least(int a, int b) {
    return a < b ? a : b;
}

static void product_pack(gw_naive_matrix b, int depth, int cols, double *tile) {
    for (int k = 0; k < depth; k++)
        for (int j = 0; j < cols; j++)
            tile[k * GW_NAIVE_COLS + j] = b.at[(size_t)k * b.row + (size_t)j * b.col];
}

static gw_naive_matrix product_from(gw_naive_matrix x, int i, int j) {
    x.at += (size_t)i * x.row + (size_t)j * x.col;
    return x;
}

void gw_naive_tiles(const gw_naive_product *p, gw_naive_tile *tile) {
    double b[GW_NAIVE_DEPTH * GW_NAIVE_COLS];
    if (!p->add)
        memset(p->c, 0, (size_t)p->m * (size_t)p->n * sizeof *p->c);
    for (int j = 0; j < p->n; j += GW_NAIVE_COLS)
        for (int k = 0; k < p->k; k += GW_NAIVE_DEPTH) {
            int cols = product_least(GW_NAIVE_COLS, p->n - j);
            int depth = product_least(GW_NAIVE_DEPTH, p->k - k);
            product_pack(product_from(p->b, k, j), depth, cols, b);
            tile(p->m, depth, cols, product_from(p->a, 0, k), b, p->c + j, (size_t)p->n);
        }
}

static void product_tile(int m, int depth, int cols, gw_naive_matrix a, const double *b, double *c,
                         size_t ldc) {
    for (int i = 0; i < m; i++)
        for (int k = 0; k < depth; k++) {
            double x = a.at[(size_t)i * a.row + (size_t)k * a.col];
            for (int j = 0; j < cols; j++)
                c[(size_t)i * ldc + (size_t)j] += x * b[k * GW_NAIVE_COLS + j];
        }
}

void gw_naive_product_blocked(const gw_naive_product *p) {
    gw_naive_tiles(p, product_tile);
}

#ifdef GW_HAVE_CBLAS
static int product_stride(gw_naive_matrix x) {
    return (int)(x.col == 1 ? x.row : x.col);
}

void gw_naive_product_blas(const gw_naive_product *p) {
    cblas_dgemm(CblasRowMajor, p->a.col == 1 ? CblasNoTrans : CblasTrans,
                p->b.col == 1 ? CblasNoTrans : CblasTrans, p->m, p->n, p->k, 1, p->a.at,
                product_stride(p->a), p->b.at, product_stride(p->b), p->add, p->c, p->n);
}
#endif
