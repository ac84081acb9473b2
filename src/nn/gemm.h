/** Matrix products: one seam over oneDNN and any CBLAS. Command, CPU and libraries decide every bit
 *  of a product: who computes it and in which pieces follows from its shape. */
#ifndef GW_NN_GEMM_H
#define GW_NN_GEMM_H

#include "base/err.h"

#include <stdbool.h>

/** Check which kernels the libraries chose for this CPU and fix them if possible. OpenBLAS chooses
 *  when it is loaded, so a fix means to execute the program again with OPENBLAS_CORETYPE set. Call
 *  it once, first thing in main(), before MPI_Init; it returns only if no restart is needed. `argv`
 *  is passed to execv. */
void gw_gemm_mend(char **argv);

/** Restrict products to `library`: "dnnl" or "cblas"; "auto": any that is linked. Before the first
 *  product. GW_ERR_UNSUPPORTED: this build lacks it. */
gw_err gw_gemm_allow(const char *library);

/** Libraries in use with their kernel sets, e.g. "oneDNN 2.6.3 (avx512_core)", "OpenBLAS 0.3.21
 *  (SkylakeX, mended from Prescott)", joined by " + ". Static string. */
const char *gw_gemm_library(void);

/** What is wrong with the kernel set for this CPU and what to do; NULL if one of the libraries in
 *  use is fine. Static string. */
const char *gw_gemm_warning(void);

/** C(m,n) = op(A)(m,k) * op(B)(k,n) + beta * C, row-major, op = transpose where the flag is set:
 *  A is stored (m,k) or, transposed, (k,m); B is (k,n) or (n,k); leading dimensions are those of
 *  the stored matrices. OpenMP threads take tiles of C, each element summed by one thread. m, n
 *  or k may be 0. If the library fails, C is undefined and gw_gemm_check reports it. */
void gw_gemm(bool ta, bool tb, int m, int n, int k, const float *a, int lda, const float *b,
             int ldb, float beta, float *c, int ldc);

/** GW_OK unless a product has failed since the program started: then GW_ERR_INTERNAL with the
 *  library's reason for the first. A step asks once, before its results are used; any thread. */
gw_err gw_gemm_check(void);

/** From now on call f(ctx) between the pieces of long products, to move messages during
 *  computation. NULL: nobody is called; the pieces are the same. For the thread that calls gw_gemm,
 *  on which f runs. */
void gw_gemm_between(void (*f)(void *ctx), void *ctx);

/* ---- pieces ---- */

/** A product, as gw_gemm takes it. */
typedef struct gw_product {
    bool ta, tb;
    int m, n, k;
    bool add; /* beta is not 0 */
} gw_product;

/** Multiplications and additions. */
double gw_product_flops(const gw_product *p);

/** Number of cuts of C's rows and columns. */
typedef struct gw_gemm_cuts {
    int rows, cols;
} gw_gemm_cuts;

/** How gw_gemm cuts a product, by its shape only: of the cuts that cost at most 2% of its time, the
 *  cheapest whose pieces are short enough, or else those of the shortest pieces. */
gw_gemm_cuts gw_gemm_pieces(const gw_product *p);

#endif
