/** Kernels of low-rank compression: products of a large matrix with a few columns. They are
 *  memory-bound, so each does all its work in one pass over the matrix.
 *
 *  All three levels give the same bits: no multiply-add is fused. Sums along a row are kept in 16
 *  lanes, lane l for the columns that are l mod 16, which are then added as
 *      ((l + (l+8)) + ((l+4) + (l+12))),  of these four  (0 + 2) + (1 + 3),
 *  and sums down a column go from row to row. A row's results depend on no other row, so they do
 *  not depend on how the rows are split over threads. */
#ifndef GW_COMPRESS_KERNEL_LOWRANK_H
#define GW_COMPRESS_KERNEL_LOWRANK_H

#include "compress/kernel/simd.h"

/** A row-major matrix (rows, cols) and its factors, stored factor by factor: (rank, rows) and
 *  (rank, cols). Pointers that a kernel does not use may be NULL. */
typedef struct gw_skinny {
    float *m;
    const float *add; /* (rows, cols) */
    size_t rows, cols;
    int rank;
    float *p;
    const float *q;   /* what to multiply by */
    const float *own; /* p own^T is what `absorb` subtracts */
} gw_skinny;

typedef struct gw_lowrank_kernels {
    /** Rows [lo, hi), in one pass: m -= p own^T if `own` is set; then m += add if `add` is; then p
     *  = m q if `q` is. */
    void (*absorb)(const gw_skinny *k, size_t lo, size_t hi);
    /** out = m[lo..hi)^T p[lo..hi), (rank, cols). */
    void (*gather)(const gw_skinny *k, size_t lo, size_t hi, float *out);
    /** m = p q^T, rows [lo, hi). */
    void (*expand)(const gw_skinny *k, size_t lo, size_t hi);
} gw_lowrank_kernels;

extern const gw_lowrank_kernels gw_lowrank_portable, gw_lowrank_avx2, gw_lowrank_avx512;

#endif
