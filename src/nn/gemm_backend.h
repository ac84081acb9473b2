/** What src/nn/gemm.c needs of a GEMM library: one product, its name, and warnings. The libraries
 *  that the build found are compiled in (GW_HAVE_DNNL, GW_HAVE_CBLAS). */
#ifndef GW_NN_GEMM_BACKEND_H
#define GW_NN_GEMM_BACKEND_H

#include <stdbool.h>

enum { GW_GEMM_TEXT = 256 };

typedef struct gw_gemm_identity {
    char library[GW_GEMM_TEXT]; /* name, version, kernel set */
    char warning[GW_GEMM_TEXT]; /* "": none */
    bool slow_strides;          /* it is slow where rows lie multiples of 2 KiB apart (gemm.c) */
} gw_gemm_identity;

typedef struct gw_gemm_backend {
    const char *name;
    bool slow_rows; /* A B' with few rows of A takes it longer than B A' and a transposition */
    /** As gw_gemm with m, n, k > 0. NULL, or the library's reason for failing (a static string); C
     *  is then undefined. */
    const char *(*product)(bool ta, bool tb, int m, int n, int k, const float *a, int lda,
                           const float *b, int ldb, float beta, float *c, int ldc);
    /** Restrict its own threads to one and fill in its identity. Called once, before the first
     *  product. */
    void (*setup)(gw_gemm_identity *id);
    /** gw_gemm_mend for this library, or NULL. Returns if no restart can help. */
    void (*mend)(char **argv);
} gw_gemm_backend;

extern const gw_gemm_backend gw_gemm_dnnl, gw_gemm_cblas;

#endif
