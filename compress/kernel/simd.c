#include "compress/kernel/simd.h"

#include "base/mem.h"
#include "base/span.h"

#include <omp.h>
#include <stdlib.h>
#include <string.h>
#ifdef GW_X86
#include <cpuid.h>
#endif

/* Below this many floats a thread, waking threads costs more than it saves. */
enum { FLOATS_A_THREAD = 65536 };

static const char *const simd_names[GW_SIMD_LEVELS] = {"portable", "avx2", "avx512"};

const char *gw_simd_name(gw_simd level) {
    return simd_names[level];
}

/* All features that the kernels' targets name (GW_TARGET_AVX2, GW_TARGET_AVX512, and pick's): a
 * virtual machine may hide any of them. */
static gw_simd simd_best(void) {
#ifdef GW_X86
    unsigned a, b, c, d;
    bool f16c = __get_cpuid(1, &a, &b, &c, &d) && c & bit_F16C; /* no name in gcc 12, clang 14 */
    bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi") &&
                __builtin_cpu_supports("popcnt") && f16c;
    bool avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                  __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
                  __builtin_cpu_supports("bmi2");
    return avx512 ? GW_SIMD_AVX512 : avx2 ? GW_SIMD_AVX2 : GW_SIMD_PORTABLE;
#else
    return GW_SIMD_PORTABLE;
#endif
}

gw_err gw_simd_pick(gw_simd *level) {
    gw_simd best = simd_best();
    const char *wish = getenv("GW_SIMD");
    if (!wish || !*wish) {
        *level = best;
        return GW_OK;
    }
    for (int l = 0; l < GW_SIMD_LEVELS; l++) {
        if (strcmp(wish, simd_names[l]) != 0)
            continue;
        if (l > (int)best)
            return gw_fail(GW_ERR_USAGE, "GW_SIMD=%s: this CPU supports at most '%s'", wish,
                           simd_names[best]);
        *level = (gw_simd)l;
        return GW_OK;
    }
    return gw_fail(GW_ERR_USAGE, "GW_SIMD=%s: must be one of portable, avx2, avx512", wish);
}

void gw_simd_split(size_t n, size_t grain, void (*part)(void *ctx, size_t lo, size_t hi),
                   void *ctx) {
    if (n == 0)
        return;
    size_t room = n / FLOATS_A_THREAD;
    int threads = omp_get_max_threads();
    if ((size_t)threads > room)
        threads = (int)room;
    if (threads <= 1 || omp_in_parallel()) {
        part(ctx, 0, n);
        return;
    }
    gw_span grains = {0, (n + grain - 1) / grain};
#pragma omp parallel for schedule(static) num_threads(threads)
    for (int t = 0; t < threads; t++) {
        gw_span s = gw_span_part(grains, t, threads);
        size_t lo = s.off * grain, hi = gw_span_end(s) * grain;
        unsigned long floats = gw_float_state(); /* a thread of the host's, perhaps */
        gw_flush_denormals_here();
        if (s.n)
            part(ctx, lo, hi < n ? hi : n);
        gw_float_state_set(floats);
    }
}
