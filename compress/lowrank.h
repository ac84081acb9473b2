/** Low-rank compression of a matrix with error feedback, as in PowerSGD: T. Vogels, S. P.
 *  Karimireddy, M. Jaggi, "PowerSGD: Practical low-rank gradient compression for distributed
 *  optimization", NeurIPS 2019. For ranks k with gradients G_k (rows, cols) and residuals E_k:
 *
 *      M_k = G_k + E_k
 *      P   = orthonormal columns of sum_k M_k Q        one allreduce of rank * rows floats
 *      R_k = M_k^T P                                   one of rank * cols floats, to R = sum_k R_k
 *      sum_k G_k is taken to be P R^T,  E_k' = M_k - P R_k^T,  Q' = R
 *
 *  P R^T is the projection of sum_k M_k onto P's columns. What it drops stays in the residuals:
 *  summed over the ranks, update plus E' equals G plus E. Each rank subtracts its own part R_k.
 *  Subtracting the mean instead would keep the sum of the residuals, but each would collect its
 *  rank's difference from the mean at every step and grow without bound.
 *
 *  A step takes three passes over the matrix and 24 or 28 bytes of memory traffic per element: R_k
 *  is subtracted from M_k only when the next gradient is added, since that reads the matrix anyway.
 *  Any number of threads and any instruction set gives the same bits. Pure: the caller sums over
 *  the ranks between the calls. */
#ifndef GW_COMPRESS_LOWRANK_H
#define GW_COMPRESS_LOWRANK_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { GW_LOWRANK_MOST = 32 }; /* the largest rank */

/** One matrix. Valid when zeroed or opened. */
typedef struct gw_lowrank {
    size_t rows, cols;
    int rank;
    float *p, *q; /* the caller's: (rank, rows) and (rank, cols), factor by factor */
    float *m;     /* residual, up to p own^T; NULL: no error feedback */
    float keep;   /* part of p R_k^T that stays in m; 0 unless set: Dion's momentum */
    float *own;   /* (1 - keep) of this rank's part of q, not yet subtracted from m */
    float *parts; /* of q, one for each chunk of rows */
    size_t chunk; /* rows; depends on the shape only */
    const struct gw_lowrank_kernels *kernels;
} gw_lowrank;

/** True if `rank` factors have fewer floats than the matrix. */
static inline bool gw_lowrank_pays(size_t rows, size_t cols, int rank) {
    return (size_t)rank * (rows + cols) < rows * cols;
}

/** `rank` in 1..GW_LOWRANK_MOST. Keeps p and q, which the caller sets to zero. Errors: memory, and
 *  those of gw_simd_pick. Close frees what open allocated; safe on a zeroed one. */
gw_err gw_lowrank_open(gw_lowrank *l, size_t rows, size_t cols, int rank, bool feedback, float *p,
                       float *q);
void gw_lowrank_close(gw_lowrank *l);

/** Draw q anew: column j standard normal, from (key, j). */
void gw_lowrank_draw(gw_lowrank *l, uint64_t key);

/** Make q = R of the last step the start of the next: scale each column by a power of two into
 *  [1/2, 1), so that gradients of any magnitude stay in range; draw a column of zeros anew from
 *  `key`, as it would stay zero. */
void gw_lowrank_warm(gw_lowrank *l, uint64_t key);

/** First pass: m = residual + grad, p = m q. Without feedback m is `grad` itself. `grad` does not
 *  change. */
void gw_lowrank_project(gw_lowrank *l, float *grad);

/** Make p, now the sum over the ranks, orthonormal: modified Gram-Schmidt, run twice because once
 *  loses orthogonality (L. Giraud, J. Langou, M. Rozloznik, "The loss of orthogonality in the
 *  Gram-Schmidt orthogonalization process", 2005), with sums in double. A column that keeps less
 *  than a part in 2^20 after the earlier ones is rounding noise and becomes zero. A NaN or an
 *  infinity makes its column NaN, and so the whole update. */
void gw_lowrank_orthonormalise(float *p, size_t rows, int rank);

/** Give each of `count` vectors of n floats the length `to`, as Dion does: the norm that they are
 *  divided by is 1e-8 larger, so zeros stay. */
void gw_lowrank_normalise(float *q, size_t n, int count, double to);

/** Second pass: q = m^T p, this rank's part of R. `grad` is that of the first pass; it does not
 *  change. */
void gw_lowrank_gather(gw_lowrank *l, float *grad);

/** Third pass, after q = R was summed over the ranks: grad = p q^T. */
void gw_lowrank_expand(const gw_lowrank *l, float *grad);

/** Bring the residual in l->m up to date, to save or inspect it (without feedback: nothing to do).
 *  It does not change later results. After loading l->m set l->own to zeros, as this leaves it. */
void gw_lowrank_settle(gw_lowrank *l);

#endif
