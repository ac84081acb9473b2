#include "compress/kernel/pick.h"

#include <string.h>

#ifdef GW_X86
bool gw_pick_has_vbmi2(void) {
    return __builtin_cpu_supports("avx512vbmi2");
}
#endif

gw_err gw_pick_open(const gw_pick_kernels **out) {
    gw_simd level;
    GW_TRY(gw_simd_pick(&level));
    *out = &gw_pick_portable;
#ifdef GW_X86
    if (level == GW_SIMD_AVX512)
        *out = gw_pick_has_vbmi2() ? &gw_pick_vbmi2 : &gw_pick_avx512;
    else if (level == GW_SIMD_AVX2)
        *out = &gw_pick_avx2;
#endif
    return GW_OK;
}

/* The ragged end, in a padded block; matches in the padding come last and are dropped. */
static size_t pick_tail(const gw_pick_kernels *k, const float *x, float *e, size_t n,
                        uint32_t least, uint32_t first, uint32_t *at) {
    float block[GW_BLOCK] = {0}, sums[GW_BLOCK] = {0};
    size_t found;
    memcpy(block, x, n * sizeof *block);
    if (e) {
        memcpy(sums, e, n * sizeof *sums);
        found = k->add_pick(block, sums, GW_BLOCK, least, first, at);
        memcpy(e, sums, n * sizeof *sums);
    } else {
        found = k->pick(block, GW_BLOCK, least, first, at);
    }
    while (found && at[found - 1] >= first + n)
        found--;
    return found;
}

size_t gw_pick_chunk(const gw_pick_kernels *k, const float *x, float *e, size_t n, uint32_t least,
                     uint32_t first, uint32_t *at) {
    size_t tail = n % GW_BLOCK, full = n - tail;
    size_t found =
        e ? k->add_pick(x, e, full, least, first, at) : k->pick(x, full, least, first, at);
    if (tail)
        found += pick_tail(k, x + full, e ? e + full : NULL, tail, least, first + (uint32_t)full,
                           at + found);
    return found;
}
