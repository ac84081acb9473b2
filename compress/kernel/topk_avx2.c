/* topk, 64 elements an iteration: a word of one bit an element, then its few set bits. */
#include "compress/kernel/topk.h"

#ifdef GW_X86
#include <immintrin.h>

enum { LANES = 8 };

/* Magnitudes are not negative, so a signed comparison with least - 1 orders them, and at the ends
 * of the range of `least`, 0 and 2^31, it takes all and none as it should. */
GW_TARGET_AVX2 static inline uint64_t above(const float *x, __m256i below) {
    const __m256i magnitude = _mm256_set1_epi32((int)GW_TOPK_MAGNITUDE);
    uint64_t word = 0;
    for (unsigned v = 0; v < GW_BLOCK / LANES; v++) {
        __m256i m = _mm256_loadu_si256((const __m256i *)(const void *)(x + v * LANES));
        m = _mm256_cmpgt_epi32(_mm256_and_si256(m, magnitude), below);
        word |= (uint64_t)(unsigned)_mm256_movemask_ps(_mm256_castsi256_ps(m)) << v * LANES;
    }
    return word;
}

GW_TARGET_AVX2 size_t gw_topk_pick_avx2(const float *x, size_t n, uint32_t least, uint32_t first,
                                        uint32_t *at) {
    const __m256i below = _mm256_set1_epi32((int)(least - 1));
    size_t found = 0;
    for (size_t i = 0; i < n; i += GW_BLOCK)
        for (uint64_t word = above(x + i, below); word; word &= word - 1)
            at[found++] = first + (uint32_t)i + (uint32_t)__builtin_ctzll(word);
    return found;
}
#endif
