/** Products of matrices of doubles, by ever better loops; for one thread each. */
#ifndef GW_NAIVE_PRODUCTS_H
#define GW_NAIVE_PRODUCTS_H

#include <stdbool.h>
#include <stddef.h>

/** How a part of the batch is computed. Only `simd` and `blas` use vector instructions: all else is
 *  compiled without vectorisation and without loop interchange (CMakeLists.txt: -O2
 *  -fno-tree-vectorize -fno-tree-slp-vectorize), so that no form turns into another. */
typedef enum gw_naive_loops {
    GW_NAIVE_SAMPLE,  /* one sample at a time; two nested loops over a layer's weights */
    GW_NAIVE_BATCH,   /* all rows of the part: three nested loops, one scalar product an element */
    GW_NAIVE_BLOCKED, /* the same sums by tiles that stay in the cache */
    GW_NAIVE_SIMD,    /* those tiles with vector instructions */
    GW_NAIVE_BLAS     /* cblas_dgemm, on one thread for each of ours */
} gw_naive_loops;

/** Element (i, j) is at[i * row + j * col]; one of the strides is 1. */
typedef struct gw_naive_matrix {
    const double *at;
    size_t row, col;
} gw_naive_matrix;

/** C (m, n) = A (m, k) B (k, n), or (`add`) C += A B; C is dense and row-major. */
typedef struct gw_naive_product {
    int m, n, k;
    gw_naive_matrix a, b;
    double *c;
    bool add;
} gw_naive_product;

/** Three loops, i, j and k: one scalar product for each element of C. */
void gw_naive_product_plain(const gw_naive_product *p);

/** By tiles of B of GW_NAIVE_DEPTH x GW_NAIVE_COLS, copied to be dense, so that they stay in the
 *  first cache while all rows of A pass. */
void gw_naive_product_blocked(const gw_naive_product *p);

/** The same with vector instructions. */
void gw_naive_product_simd(const gw_naive_product *p);

#ifdef GW_HAVE_CBLAS
/** cblas_dgemm. */
void gw_naive_product_blas(const gw_naive_product *p);
#endif

/** A tile: c (m, cols), ldc doubles from row to row, += a (m, depth) times b (depth, cols), which
 *  lies in rows of GW_NAIVE_COLS. */
enum { GW_NAIVE_DEPTH = 32, GW_NAIVE_COLS = 64 };
typedef void gw_naive_tile(int m, int depth, int cols, gw_naive_matrix a, const double *b,
                           double *c, size_t ldc);

/** The loops over tiles. */
void gw_naive_tiles(const gw_naive_product *p, gw_naive_tile *tile);

#endif
