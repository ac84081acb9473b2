/* GEMM by oneDNN, which generates its kernels for the CPU it runs on. */
#include "nn/gemm_backend.h"

#include <dnnl.h>
#include <dnnl_debug.h>
#include <stdio.h>

static const char *gemm_dnnl_product(bool ta, bool tb, int m, int n, int k, const float *a, int lda,
                                     const float *b, int ldb, float beta, float *c, int ldc) {
    /* It may run out of memory for packing its operands or for generating code. */
    dnnl_status_t rc =
        dnnl_sgemm(ta ? 'T' : 'N', tb ? 'T' : 'N', m, n, k, 1.0f, a, lda, b, ldb, beta, c, ldc);
    return rc == dnnl_success ? NULL : dnnl_status2str(rc);
}

/* The ISA values grow by adding bits, so a set holds another when it has all its bits. */
static bool gemm_dnnl_holds(dnnl_cpu_isa_t set, dnnl_cpu_isa_t part) {
    return ((unsigned)set & (unsigned)part) == (unsigned)part;
}

/* The highest level that this source knows; later releases of oneDNN have more. */
static const char *gemm_dnnl_isa_name(dnnl_cpu_isa_t isa) {
    static const struct {
        dnnl_cpu_isa_t isa;
        const char *name;
    } levels[] = {
        {dnnl_cpu_isa_avx512_core_amx, "avx512_core_amx"},
        {dnnl_cpu_isa_avx512_core_bf16, "avx512_core_bf16"},
        {dnnl_cpu_isa_avx512_core_vnni, "avx512_core_vnni"},
        {dnnl_cpu_isa_avx512_core, "avx512_core"},
        {dnnl_cpu_isa_avx2_vnni, "avx2_vnni"},
        {dnnl_cpu_isa_avx2, "avx2"},
        {dnnl_cpu_isa_avx, "avx"},
        {dnnl_cpu_isa_sse41, "sse41"},
    };
    for (size_t i = 0; i < sizeof levels / sizeof *levels; i++)
        if (gemm_dnnl_holds(isa, levels[i].isa))
            return levels[i].name;
    return "generic";
}

static void gemm_dnnl_setup(gw_gemm_identity *id) {
    const dnnl_version_t *v = dnnl_version();
    dnnl_cpu_isa_t isa = dnnl_get_effective_cpu_isa();
    snprintf(id->library, sizeof id->library, "oneDNN %d.%d.%d (%s)", v->major, v->minor, v->patch,
             gemm_dnnl_isa_name(isa));
    id->slow_strides = !gemm_dnnl_holds(isa, dnnl_cpu_isa_avx512_core);
#if defined(__x86_64__) /* oneDNN names kernel sets there only */
    bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
                  __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl");
    if (!avx2)
        snprintf(id->warning, sizeof id->warning,
                 "this CPU has no AVX2, so oneDNN's products run on %s kernels, several times "
                 "slower than on current CPUs: choose another host if there is one",
                 gemm_dnnl_isa_name(isa));
    else if (!gemm_dnnl_holds(isa, avx512 ? dnnl_cpu_isa_avx512_core : dnnl_cpu_isa_avx2))
        snprintf(id->warning, sizeof id->warning,
                 "oneDNN is held to %s kernels though this CPU has %s: unset ONEDNN_MAX_CPU_ISA "
                 "(or DNNL_MAX_CPU_ISA)",
                 gemm_dnnl_isa_name(isa), avx512 ? "AVX-512" : "AVX2");
#endif
}

/* No `mend`: it chooses by CPU features at each start. */
const gw_gemm_backend gw_gemm_dnnl = {.name = "dnnl",
                                      .slow_rows = true,
                                      .product = gemm_dnnl_product,
                                      .setup = gemm_dnnl_setup,
                                      .mend = NULL};
