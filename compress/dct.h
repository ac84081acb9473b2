/** The orthonormal cosine transform of small blocks: DCT-II, and its inverse, as products with a
 *  basis (N. Ahmed, T. Natarajan, K. R. Rao, "Discrete cosine transform", IEEE Transactions on
 *  Computers, 1974). */
#ifndef GW_COMPRESS_DCT_H
#define GW_COMPRESS_DCT_H

#include <stdbool.h>
#include <stddef.h>

enum { GW_DCT_MOST = 64 /* longest side of a block */ };

/** Return the largest divisor of n that is at most GW_DCT_MOST. */
size_t gw_dct_side(size_t n);

/** basis[0..n * n): row k is the cosine of frequency k. n <= GW_DCT_MOST. */
void gw_dct_basis(float *basis, size_t n);

/** A block of rows x cols by the bases of its sides. */
typedef struct gw_dct {
    size_t rows, cols;
    const float *by_row, *by_col; /* of gw_dct_basis(rows), (cols) */
} gw_dct;

/** Write to to[0..rows * cols) the coefficients of `from`, whose rows lie `step` floats apart. */
void gw_dct_forward(const gw_dct *d, const float *from, size_t step, float *to);
/** The inverse: `to` has rows `step` floats apart. `from` and `to` may not overlap in either. */
void gw_dct_inverse(const gw_dct *d, const float *from, float *to, size_t step);

#endif
