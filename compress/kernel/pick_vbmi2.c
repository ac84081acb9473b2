/* Picking with the byte compression of later AVX-512 CPUs: 64 elements to a word of one bit an
 * element, and up to 16 places a step; no data-dependent branch before the 17th. */
#include "compress/kernel/pick.h"

#ifdef GW_X86
#define TARGET __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi2,bmi,popcnt")))
#include "compress/kernel/pick_avx512.h"

TARGET static inline void pick_widen(__m128i places, uint32_t first, uint32_t *at) {
    __m512i base = _mm512_set1_epi32((int)first);
    _mm512_storeu_si512(at, _mm512_add_epi32(base, _mm512_cvtepu8_epi32(places)));
}

TARGET static inline size_t pick_spread(uint64_t word, uint32_t first, uint32_t *at) {
    static const unsigned char all[GW_BLOCK] __attribute__((aligned(GW_BLOCK))) = {
        0,  1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21,
        22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32, 33, 34, 35, 36, 37, 38, 39, 40, 41, 42, 43,
        44, 45, 46, 47, 48, 49, 50, 51, 52, 53, 54, 55, 56, 57, 58, 59, 60, 61, 62, 63};
    __m512i places = _mm512_maskz_compress_epi8(word, _mm512_load_si512(all));
    size_t found = (size_t)_mm_popcnt_u64(word);
    pick_widen(_mm512_castsi512_si128(places), first, at);
    if (__builtin_expect(found > LANES, 0)) {
        pick_widen(_mm512_extracti32x4_epi32(places, 1), first, at + LANES);
        pick_widen(_mm512_extracti32x4_epi32(places, 2), first, at + 2 * LANES);
        pick_widen(_mm512_extracti32x4_epi32(places, 3), first, at + 3 * LANES);
    }
    return found;
}

#include "compress/kernel/pick_loop.h"

const gw_pick_kernels gw_pick_vbmi2 = {pick_span, pick_add_span, pick_count, pick_filter};
#endif
