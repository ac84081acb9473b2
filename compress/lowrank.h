/** Low-rank compression of a matrix with error feedback, as PowerSGD has it: T. Vogels, S. P.
 *  Karimireddy, M. Jaggi, "PowerSGD: Practical low-rank gradient compression for distributed
 *  optimization", NeurIPS 2019. Of ranks k with gradients G_k (rows, cols) and residuals E_k:
 *
 *      M_k = G_k + E_k
 *      P   = orthonormal columns of sum_k M_k Q        one allreduce of rank * rows floats
 *      R_k = M_k^T P                                   one of rank * cols floats, to R = sum_k R_k
 *      sum_k G_k is taken to be P R^T,  E_k' = M_k - P R_k^T,  Q' = R
 *
 *  P R^T is the projection of sum_k M_k onto P's columns, so no more than that is lost, and what is
 *  lost stays in the residuals: the sum over ranks of update and E' is that of G and E. Each rank
 *  takes off what it gave itself, R_k: with the mean of all in its place the sum of the residuals
 * is the same, but each of them collects the difference of its rank to the mean, step by step, and
 *  grows without bound.
 *
 *  The work of a step is three passes over the matrix and 24 bytes of memory traffic an element, or
 *  28: R_k is taken off M_k not when it is known but when the next gradient is added, for then the
 *  matrix is read anyway. Any number of threads gives the same bits, and so does any instruction
 *  set. Pure: the sums over the ranks are the caller's, between the calls. */
#ifndef GW_COMPRESS_LOWRANK_H
#define GW_COMPRESS_LOWRANK_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { GW_LOWRANK_MOST = 32 }; /* the largest rank */

/** One matrix. Zero it, or open it. */
typedef struct gw_lowrank {
    size_t rows, cols;
    int rank;
    float *p, *q; /* the caller's: (rank, rows) and (rank, cols), factor by factor */
    float *m;     /* residual, up to p own^T; NULL: no error feedback */
    float *own;   /* this rank's part of q, not taken off m yet */
    float *parts; /* of q, a chunk of rows each */
    size_t chunk; /* rows; a matter of the shape alone */
    const struct gw_lowrank_kernels *kernels;
} gw_lowrank;

/** True if `rank` factors are fewer floats than the matrix itself. */
static inline bool gw_lowrank_pays(size_t rows, size_t cols, int rank) {
    return (size_t)rank * (rows + cols) < rows * cols;
}

/** `rank` in 1..GW_LOWRANK_MOST. p and q are only kept, and zeros to begin with. Errors: memory,
 * and those of gw_simd_pick. Close frees what open allocated; safe on a zeroed one. */
gw_err gw_lowrank_open(gw_lowrank *l, size_t rows, size_t cols, int rank, bool feedback, float *p,
                       float *q);
void gw_lowrank_close(gw_lowrank *l);

/** Column j of q anew, standard normal, from (key, j). */
void gw_lowrank_draw(gw_lowrank *l, uint64_t key);

/** What q = R of the last step becomes to start from: each column scaled by a power of two to
 *  between 1/2 and 1, so that no magnitude of gradients is out of range; a column of zeros, which
 *  would stay so, is drawn anew from `key`. */
void gw_lowrank_warm(gw_lowrank *l, uint64_t key);

/** First pass: m = residual + grad, p = m q. Without feedback m is `grad` itself. `grad` stays. */
void gw_lowrank_project(gw_lowrank *l, float *grad);

/** Make p, now the sum over the ranks, orthonormal: modified Gram-Schmidt, twice, as once loses
 *  orthogonality (L. Giraud, J. Langou, M. Rozloznik, "The loss of orthogonality in the
 *  Gram-Schmidt orthogonalization process", 2005), with sums in double. A column of which the
 *  earlier ones leave less than a part in 2^20 becomes zero and takes no part: what is left is
 *  rounding. A NaN or an infinity makes its column NaN and so all of the update. */
void gw_lowrank_orthonormalise(float *p, size_t rows, int rank);

/** Second pass: q = m^T p, this rank's part of R. `grad`, which stays, is that of the first. */
void gw_lowrank_gather(gw_lowrank *l, float *grad);

/** Third pass, q = R being the sum over the ranks: grad = p q^T. */
void gw_lowrank_expand(const gw_lowrank *l, float *grad);

/** Take off the residual what is not yet, so that it is all in l->m, to be saved or looked at (no
 *  feedback: nothing to do). Later results are the same bits with it as without. After l->m has
 * been loaded l->own must be zeros, as this leaves it. */
void gw_lowrank_settle(gw_lowrank *l);

#endif
