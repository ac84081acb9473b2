/* topk, 64 elements an iteration: a word of one bit an element, then its few set bits. */
#include "compress/kernel/topk.h"

#ifdef GW_X86
#include <immintrin.h>

enum { LANES = 16 };

GW_TARGET_AVX512 static inline __mmask16 above16(const float *x, __m512i least) {
    const __m512i magnitude = _mm512_set1_epi32((int)GW_TOPK_MAGNITUDE);
    return _mm512_cmpge_epu32_mask(_mm512_and_si512(_mm512_loadu_si512(x), magnitude), least);
}

GW_TARGET_AVX512 static inline uint64_t above(const float *x, __m512i least) {
    __mmask32 low = _mm512_kunpackw(above16(x + LANES, least), above16(x, least));
    __mmask32 high = _mm512_kunpackw(above16(x + 3 * LANES, least), above16(x + 2 * LANES, least));
    return _mm512_kunpackd(high, low);
}

GW_TARGET_AVX512 size_t gw_topk_pick_avx512(const float *x, size_t n, uint32_t least,
                                            uint32_t first, uint32_t *at) {
    const __m512i limit = _mm512_set1_epi32((int)least);
    size_t found = 0;
    for (size_t i = 0; i < n; i += GW_BLOCK)
        for (uint64_t word = above(x + i, limit); word; word &= word - 1)
            at[found++] = first + (uint32_t)i + (uint32_t)__builtin_ctzll(word);
    return found;
}
#endif
