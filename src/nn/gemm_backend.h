/** What a GEMM library owes src/nn/gemm.c: one product on the calling thread alone, its name, and
 *  what is wrong with it here. One backend is compiled in (GW_GEMM). */
#ifndef GW_NN_GEMM_BACKEND_H
#define GW_NN_GEMM_BACKEND_H

#include <stdbool.h>
#include <stddef.h>

enum { GW_GEMM_TEXT = 256 };

typedef struct gw_gemm_identity {
    char library[GW_GEMM_TEXT]; /* name, version, kernel set */
    char warning[GW_GEMM_TEXT]; /* "": all is well */
} gw_gemm_identity;

/** As gw_gemm with m, n, k > 0, on the calling thread. gw_gemm sees to it that
 * omp_get_max_threads() is 1 in there, so a library that follows OpenMP starts no threads of its
 * own. NULL, or the library's word for why it could not (a static string); C is then undefined. */
const char *gw_gemm_backend_product(bool ta, bool tb, int m, int n, int k, const float *a, int lda,
                                    const float *b, int ldb, float beta, float *c, int ldc);

/** Keep the library to one thread and say what it is. Called once, before the first product. */
void gw_gemm_backend_setup(gw_gemm_identity *id);

/** gw_gemm_mend's work. Returns when nothing is to be mended by a new start. */
void gw_gemm_backend_mend(char **argv);

#endif
