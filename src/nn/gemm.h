/** Matrix products: one small seam over well-kept libraries (oneDNN, and any CBLAS), and the plan
 *  that says which of them computes what. */
#ifndef GW_NN_GEMM_H
#define GW_NN_GEMM_H

#include "base/err.h"

#include <stdbool.h>

/** Check and, where that is possible, mend what the libraries chose for this CPU; call once, first
 *  thing in main(), before MPI_Init: OpenBLAS picks its kernels when it is loaded, so mending a
 *  wrong pick means executing the program anew with OPENBLAS_CORETYPE set. Returns only when
 *  nothing needs that. `argv` is handed to execv. */
void gw_gemm_mend(char **argv);

/** Let products be computed by `library` alone: "dnnl", "cblas"; "auto": by all that are linked.
 *  Before the first product. GW_ERR_UNSUPPORTED: this build lacks it. */
gw_err gw_gemm_allow(const char *library);

/** Libraries and kernel sets that may compute, e.g. "oneDNN 2.6.3 (avx512_core)", "OpenBLAS 0.3.21
 *  (SkylakeX, mended from Prescott)", with " + " between them. Static string. */
const char *gw_gemm_library(void);

/** What is wrong with the kernel set for this CPU and what to do, or NULL: one of the libraries
 *  that may compute is well. Static string. */
const char *gw_gemm_warning(void);

/** C(m,n) = op(A)(m,k) * op(B)(k,n) + beta * C, row-major, op = transpose where the flag is set:
 *  A is stored (m,k) or, transposed, (k,m); B is (k,n) or (n,k); leading dimensions are those of
 *  the stored matrices. Split over the OpenMP threads by tiles of C, so every element of C is
 *  summed by one thread and no sum is shared, or by the library's own threads, as the plan says.
 *  m, n or k may be 0. If the library fails C is undefined, and gw_gemm_check says so. */
void gw_gemm(bool ta, bool tb, int m, int n, int k, const float *a, int lda, const float *b,
             int ldb, float beta, float *c, int ldc);

/** GW_OK unless a product has failed since the program began: then GW_ERR_INTERNAL with the
 * library's reason for the first. A step asks once, before anybody uses its results; any thread. */
gw_err gw_gemm_check(void);

/** Cut long products from now on into pieces, as the plan says, and call f(ctx) between them: how
 *  messages are moved on under computation. A product in pieces may round otherwise than a whole
 *  one. NULL: products are whole. For the thread that calls gw_gemm, which f runs on. */
void gw_gemm_between(void (*f)(void *ctx), void *ctx);

/* ---- the plan ---- */

/** A product, as gw_gemm takes it. */
typedef struct gw_product {
    bool ta, tb;
    int m, n, k;
    bool add; /* beta is not 0: a library that is fast at one may be slow at the other */
} gw_product;

/** Multiplications and additions. */
double gw_product_flops(const gw_product *p);

/** Ways to compute a product are numbers from 0 on: a library with our tiles over the threads, or
 *  with its own. */
enum { GW_GEMM_WAYS = 4, GW_GEMM_CHOICES = 256 };
/** "dnnl", "dnnl-threads" or "cblas"; NULL: not with these libraries and so many threads. */
const char *gw_gemm_way_name(int way, int threads);
/** -1: there is none of that name. */
int gw_gemm_way_named(const char *name, int threads);
/** Of products that no plan knows. */
int gw_gemm_way_first(void);

typedef struct gw_gemm_choice {
    gw_product of;
    int whole, pieced; /* ways: as a whole, and cut into pieces */
} gw_gemm_choice;

/** Plain data: may be sent as bytes. Products that are not listed go the way of the most similar
 *  one; if none is, the first. */
typedef struct gw_gemm_plan {
    int n;
    double piece; /* operations; products of no more are never cut; INFINITY: none are */
    gw_gemm_choice choice[GW_GEMM_CHOICES];
} gw_gemm_plan;

/** Compute by this plan, which is copied, from now on; until then: the first
 *  way, nothing cut. */
void gw_gemm_adopt(const gw_gemm_plan *plan);

/** Into how many rows and columns of C, and runs of its sums' terms, a product is cut. */
typedef struct gw_gemm_cuts {
    int rows, cols, depth;
} gw_gemm_cuts;

static inline int gw_gemm_cuts_pieces(gw_gemm_cuts c) {
    return c.rows * c.cols * c.depth;
}

/** How a plan with that `piece` cuts a product: of the cuts that cost at most 2% of its time the
 *  cheapest whose pieces are no larger, or those of the smallest pieces if none are. */
gw_gemm_cuts gw_gemm_pieces(const gw_product *p, double piece);

#endif
