/** kernel/chance.h, 8 lanes a register. */
#include "compress/kernel/chance.h"

#include "compress/kernel/peak_avx2.h"

typedef struct draws {
    __m256i weyl, high, stride;
} draws;

INLINE draws chance_draws(uint64_t seed, uint32_t ctr) {
    const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    __m256i counter = _mm256_add_epi32(lane, _mm256_set1_epi32((int)ctr));
    __m256i term = _mm256_mullo_epi32(counter, _mm256_set1_epi32((int)GW_QSGD_WEYL));
    return (draws){_mm256_add_epi32(term, _mm256_set1_epi32((int)(uint32_t)seed)),
                   _mm256_set1_epi32((int)(seed >> 32)),
                   _mm256_set1_epi32((int)(LANES * GW_QSGD_WEYL))};
}

/** Half of a block's words: lanes 0 to 7 of both kinds; the next call gives 8 to 15. */
INLINE void chance_draw(draws *d, __m256i *r, __m256i *s) {
    __m256i h = _mm256_xor_si256(d->weyl, _mm256_srli_epi32(d->weyl, 16));
    d->weyl = _mm256_add_epi32(d->weyl, d->stride);
    h = _mm256_mullo_epi32(h, _mm256_set1_epi32((int)GW_QSGD_MUL1));
    h = _mm256_xor_si256(_mm256_xor_si256(h, d->high), _mm256_srli_epi32(h, 15));
    __m256i turned = _mm256_or_si256(_mm256_slli_epi32(h, 16), _mm256_srli_epi32(h, 16));
    *r = _mm256_mullo_epi32(h, _mm256_set1_epi32((int)GW_QSGD_MUL2));
    *s = _mm256_mullo_epi32(turned, _mm256_set1_epi32((int)GW_QSGD_MUL3));
}

/** Restore the order after packing four registers within 128-bit lanes. */
INLINE __m256i chance_in_order(__m256i packed) {
    return _mm256_permutevar8x32_epi32(packed, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}

INLINE void chance_put(float *y, __m256 v, int add) {
    _mm256_storeu_ps(y, add ? _mm256_add_ps(_mm256_loadu_ps(y), v) : v);
}

INLINE __m256i chance_load_bytes(const void *in) { /* 8, sign-extended */
    return _mm256_cvtepi8_epi32(_mm_loadl_epi64(in));
}
