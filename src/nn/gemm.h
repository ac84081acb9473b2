/** Matrix products: one seam over oneDNN and any CBLAS, and the plan that says which computes which
 *  product. */
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
 *  the stored matrices. As the plan says, either OpenMP threads take tiles of C, each element
 *  summed by one thread, or the library uses its own threads. m, n or k may be 0. If the library
 *  fails, C is undefined and gw_gemm_check reports it. */
void gw_gemm(bool ta, bool tb, int m, int n, int k, const float *a, int lda, const float *b,
             int ldb, float beta, float *c, int ldc);

/** GW_OK unless a product has failed since the program started: then GW_ERR_INTERNAL with the
 *  library's reason for the first. A step asks once, before its results are used; any thread. */
gw_err gw_gemm_check(void);

/** From now on cut long products into pieces, as the plan says, and call f(ctx) between them, to
 *  move messages during computation. A product in pieces may round differently. NULL: whole
 *  products. For the thread that calls gw_gemm, on which f runs. */
void gw_gemm_between(void (*f)(void *ctx), void *ctx);

/* ---- the plan ---- */

/** A product, as gw_gemm takes it. */
typedef struct gw_product {
    bool ta, tb;
    int m, n, k;
    bool add; /* beta is not 0: a library fast at one may be slow at the other */
} gw_product;

/** Multiplications and additions. */
double gw_product_flops(const gw_product *p);

/** Ways to compute a product are numbered from 0: a library on our tiles over the threads, or with
 *  its own threads. */
enum { GW_GEMM_WAYS = 4, GW_GEMM_CHOICES = 256 };
/** "dnnl", "dnnl-threads" or "cblas"; NULL: not available with these libraries and threads. */
const char *gw_gemm_way_name(int at, int threads);
/** -1: no such name. */
int gw_gemm_way_named(const char *name, int threads);
/** The way of products that no plan covers. */
int gw_gemm_way_first(void);

typedef struct gw_gemm_choice {
    gw_product of;
    int whole, pieced; /* ways: as a whole, and cut into pieces */
} gw_gemm_choice;

/** Plain data: may be sent as bytes. A product that is not listed uses the way of the most similar
 *  one; without any, the first way. */
typedef struct gw_gemm_plan {
    int n;
    double piece; /* operations; smaller products are never cut; INFINITY: none is */
    gw_gemm_choice choice[GW_GEMM_CHOICES];
} gw_gemm_plan;

/** Copy this plan and use it from now on; before: the first way, nothing cut. */
void gw_gemm_adopt(const gw_gemm_plan *plan);

/** Number of cuts of a product: of C's rows and columns, and of its sums' terms. */
typedef struct gw_gemm_cuts {
    int rows, cols, depth;
} gw_gemm_cuts;

static inline int gw_gemm_cuts_pieces(gw_gemm_cuts c) {
    return c.rows * c.cols * c.depth;
}

/** How a plan with this `piece` cuts a product: of the cuts that cost at most 2% of its time, the
 *  cheapest whose pieces are small enough, or else those of the smallest pieces. */
gw_gemm_cuts gw_gemm_pieces(const gw_product *p, double piece);

#endif
