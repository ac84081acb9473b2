/** Matrix products: one small seam over a well-kept library (oneDNN by default, CBLAS else). */
#ifndef GW_NN_GEMM_H
#define GW_NN_GEMM_H

#include "base/err.h"

#include <stdbool.h>

/** Check and, where that is possible, mend what the library chose for this CPU; call once, first
 *  thing in main(), before MPI_Init: OpenBLAS picks its kernels when it is loaded, so mending a
 *  wrong pick means executing the program anew with OPENBLAS_CORETYPE set. Returns only when
 *  nothing needs that. `argv` is handed to execv. */
void gw_gemm_mend(char **argv);

/** Library and kernel set in force, e.g. "oneDNN 2.6.3 (avx512_core)", "OpenBLAS 0.3.21
 *  (SkylakeX, mended from Prescott)". Static string. */
const char *gw_gemm_library(void);

/** What is wrong with the kernel set for this CPU and what to do, or NULL. Static string. */
const char *gw_gemm_warning(void);

/** C(m,n) = op(A)(m,k) * op(B)(k,n) + beta * C, row-major, op = transpose where the flag is set:
 *  A is stored (m,k) or, transposed, (k,m); B is (k,n) or (n,k); leading dimensions are those of
 *  the stored matrices. Split over the OpenMP threads by tiles of C, so every element of C is
 *  summed by one thread and no sum is shared. m, n or k may be 0. If the library fails C is
 *  undefined, and gw_gemm_check says so. */
void gw_gemm(bool ta, bool tb, int m, int n, int k, const float *a, int lda, const float *b,
             int ldb, float beta, float *c, int ldc);

/** GW_OK unless a product has failed since the program began: then GW_ERR_INTERNAL with the
 * library's reason for the first. A step asks once, before anybody uses its results; any thread. */
gw_err gw_gemm_check(void);

/** Cut long products from now on into pieces of some tenths of a millisecond and call f(ctx)
 * between them: how messages are moved on under computation. A product in pieces may round
 * otherwise than a whole one. NULL: products are whole. For the thread that calls gw_gemm, which f
 * runs on. */
void gw_gemm_between(void (*f)(void *ctx), void *ctx);

#endif
