/** OpenBLAS chooses its kernels by CPU model when it is loaded; on a CPU newer than itself it takes
 *  its oldest ones, five times slower. This decides what to do about its choice;
 *  src/nn/gemm_cblas.c does it. */
#ifndef GW_NN_OPENBLAS_H
#define GW_NN_OPENBLAS_H

#include <stdbool.h>

/** Variable set for a restarted program: the kernel set that OpenBLAS chose before. */
#define GW_OPENBLAS_MARKER "GW_OPENBLAS_MENDED"

typedef struct gw_openblas_facts {
    const char *core;        /* openblas_get_corename(); NULL: the library is not OpenBLAS */
    bool dynamic;            /* built with all kernel sets, so OPENBLAS_CORETYPE works */
    bool avx512, avx2;       /* the CPU: AVX-512 F, DQ, BW and VL; AVX2 and FMA */
    const char *user_core;   /* OPENBLAS_CORETYPE, NULL: unset */
    const char *mended_from; /* GW_OPENBLAS_MARKER, NULL: unset */
} gw_openblas_facts;

typedef enum gw_openblas_verdict {
    GW_OPENBLAS_FINE,       /* the kernels suit the CPU, or it is another library */
    GW_OPENBLAS_MEND,       /* restart with OPENBLAS_CORETYPE = *core_type */
    GW_OPENBLAS_USER_WEAK,  /* the user's OPENBLAS_CORETYPE is to blame: for the user to change */
    GW_OPENBLAS_STILL_WEAK, /* mending did not help, or cannot in this build of OpenBLAS */
} gw_openblas_verdict;

/** Judge a choice. *core_type: the kernel set that suits the CPU, NULL if any does. */
gw_openblas_verdict gw_openblas_judge(const gw_openblas_facts *f, const char **core_type);

#endif
