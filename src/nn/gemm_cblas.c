/* GEMM by CBLAS: OpenBLAS, MKL, BLIS or any other. Extensions of one library are looked up at run
 * time, so one source serves all. */
#include "nn/gemm_backend.h"
#include "nn/openblas.h"

#include <cblas.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *gemm_cblas_product(bool ta, bool tb, int m, int n, int k, const float *a,
                                      int lda, const float *b, int ldb, float beta, float *c,
                                      int ldc) {
    cblas_sgemm(CblasRowMajor, ta ? CblasTrans : CblasNoTrans, tb ? CblasTrans : CblasNoTrans, m, n,
                k, 1.0f, a, lda, b, ldb, beta, c, ldc);
    return NULL; /* CBLAS cannot report errors */
}

typedef void (*function)(void);

/* POSIX promises that dlsym's object pointer holds a function's address; C has no cast for it. */
static function gemm_cblas_find(const char *name) {
    void *found = dlsym(RTLD_DEFAULT, name);
    function f;
    memcpy(&f, &found, sizeof f);
    return f;
}

/* Call the library's `char *name(void)`; NULL if it has none. */
static const char *gemm_cblas_ask(const char *name) {
    char *(*f)(void) = (char *(*)(void))gemm_cblas_find(name);
    return f ? f() : NULL;
}

static gw_openblas_facts gemm_cblas_gather(void) {
    const char *config = gemm_cblas_ask("openblas_get_config");
    gw_openblas_facts f = {
        .core = gemm_cblas_ask("openblas_get_corename"),
        .dynamic = config && strstr(config, "DYNAMIC_ARCH"),
        .user_core = getenv("OPENBLAS_CORETYPE"),
        .mended_from = getenv(GW_OPENBLAS_MARKER),
    };
#if defined(__x86_64__)
    f.avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    f.avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
               __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl");
#endif
    return f;
}

static void gemm_cblas_mend(char **argv) {
    gw_openblas_facts f = gemm_cblas_gather();
    const char *core_type;
    if (gw_openblas_judge(&f, &core_type) != GW_OPENBLAS_MEND)
        return;
    /* Set the marker first: without it a failed fix would restart forever. */
    if (setenv(GW_OPENBLAS_MARKER, f.core, 1) != 0)
        return;
    if (setenv("OPENBLAS_CORETYPE", core_type, 1) != 0)
        return;
    /* By its own path, for a process is named after what it executed: `ps` would show "exe". */
    char path[4096];
    ssize_t n = readlink("/proc/self/exe", path, sizeof path - 1);
    path[n > 0 ? n : 0] = '\0';
    execv(path, argv);
    execv("/proc/self/exe", argv);
    /* It failed: as the marker is set, gw_gemm_warning says what to do. */
}

static void gemm_cblas_name_other(char *out, size_t cap) {
    void (*mkl_version)(char *, int) =
        (void (*)(char *, int))gemm_cblas_find("MKL_Get_Version_String");
    const char *blis = gemm_cblas_ask("bli_info_get_version_str");
    int (*blis_arch)(void) = (int (*)(void))gemm_cblas_find("bli_arch_query_id");
    char *(*blis_arch_name)(int) = (char *(*)(int))gemm_cblas_find("bli_arch_string");
    if (mkl_version) {
        char text[GW_GEMM_TEXT] = "";
        mkl_version(text, (int)sizeof text - 1);
        text[strcspn(text, "\n")] = '\0';
        snprintf(out, cap, "%.*s", (int)cap - 1, text);
    } else if (blis && blis_arch && blis_arch_name) {
        snprintf(out, cap, "BLIS %s (%s)", blis, blis_arch_name(blis_arch()));
    } else {
        snprintf(out, cap, "unknown CBLAS library");
    }
}

/* gw_gemm's own threads call the library, so its threads would only compete with them. OpenBLAS
 * starts threads when it is loaded, and they spin for a while: this ends them. */
static void gemm_cblas_keep_to_one_thread(void) {
    void (*openblas)(int) = (void (*)(int))gemm_cblas_find("openblas_set_num_threads");
    int (*end_threads)(void) = (int (*)(void))gemm_cblas_find("blas_thread_shutdown_");
    void (*mkl)(int) = (void (*)(int))gemm_cblas_find("MKL_Set_Num_Threads");
    void (*blis)(long) = (void (*)(long))gemm_cblas_find("bli_thread_set_num_threads");
    if (openblas)
        openblas(1);
    if (openblas && end_threads)
        end_threads();
    if (blis)
        blis(1);
    if (mkl)
        mkl(1);
}

static void gemm_cblas_setup(gw_gemm_identity *id) {
    gw_openblas_facts f = gemm_cblas_gather();
    const char *core_type;
    gw_openblas_verdict verdict = gw_openblas_judge(&f, &core_type);
    gemm_cblas_keep_to_one_thread();
    if (f.core) { /* openblas_get_config() begins "OpenBLAS 0.3.21 NO_LAPACKE ...": two words */
        const char *config = gemm_cblas_ask("openblas_get_config");
        config = config ? config : "OpenBLAS";
        size_t len = strcspn(config, " ");
        len += config[len] ? 1 + strcspn(config + len + 1, " ") : 0;
        snprintf(id->library, sizeof id->library, "%.*s (%s%s%s)", (int)len, config, f.core,
                 f.mended_from ? ", mended from " : "", f.mended_from ? f.mended_from : "");
    } else {
        gemm_cblas_name_other(id->library, sizeof id->library);
    }
    if (verdict == GW_OPENBLAS_USER_WEAK)
        snprintf(id->warning, sizeof id->warning,
                 "OPENBLAS_CORETYPE=%s makes OpenBLAS use its %s kernels, several times slower "
                 "than this CPU's: unset it or set OPENBLAS_CORETYPE=%s",
                 f.user_core, f.core, core_type);
    else if (verdict != GW_OPENBLAS_FINE)
        snprintf(id->warning, sizeof id->warning,
                 "OpenBLAS uses its %s kernels, several times slower than this CPU's %s, and "
                 "OPENBLAS_CORETYPE does not change that: use a newer OpenBLAS built with "
                 "DYNAMIC_ARCH, or --gemm dnnl",
                 f.core, core_type);
}

const gw_gemm_backend gw_gemm_cblas = {.name = "cblas",
                                       .product = gemm_cblas_product,
                                       .setup = gemm_cblas_setup,
                                       .mend = gemm_cblas_mend};
