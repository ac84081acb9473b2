/** kernel/chance.h, 8 lanes a register. */
#include "compress/kernel/chance.h"

#include <immintrin.h>

#define TARGET GW_TARGET_AVX2
#define INLINE GW_TARGET_AVX2 static inline __attribute__((always_inline))

enum { LANES = 8, HALF = GW_BLOCK / 2 };

INLINE __m256i load(const float *x) {
    return _mm256_loadu_si256((const __m256i *)(const void *)x);
}

/** The bit pattern of max |x|; n is a multiple of GW_BLOCK. */
INLINE uint32_t peak(const float *x, size_t n) {
    const __m256i mag = _mm256_set1_epi32(0x7fffffff);
    __m256i a = _mm256_setzero_si256(), b = a, c = a, d = a;
    for (size_t i = 0; i < n; i += 4 * LANES) {
        a = _mm256_max_epu32(a, _mm256_and_si256(mag, load(x + i)));
        b = _mm256_max_epu32(b, _mm256_and_si256(mag, load(x + i + LANES)));
        c = _mm256_max_epu32(c, _mm256_and_si256(mag, load(x + i + 2 * LANES)));
        d = _mm256_max_epu32(d, _mm256_and_si256(mag, load(x + i + 3 * LANES)));
    }
    a = _mm256_max_epu32(_mm256_max_epu32(a, b), _mm256_max_epu32(c, d));
    __m128i top = _mm_max_epu32(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1));
    top = _mm_max_epu32(top, _mm_shuffle_epi32(top, 0x4e));
    top = _mm_max_epu32(top, _mm_shuffle_epi32(top, 0xb1));
    return (uint32_t)_mm_cvtsi128_si32(top);
}

typedef struct draws {
    __m256i weyl, high, stride;
} draws;

INLINE draws draws_from(uint64_t seed, uint32_t ctr) {
    const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    __m256i counter = _mm256_add_epi32(lane, _mm256_set1_epi32((int)ctr));
    __m256i term = _mm256_mullo_epi32(counter, _mm256_set1_epi32((int)GW_QSGD_WEYL));
    return (draws){_mm256_add_epi32(term, _mm256_set1_epi32((int)(uint32_t)seed)),
                   _mm256_set1_epi32((int)(seed >> 32)),
                   _mm256_set1_epi32((int)(LANES * GW_QSGD_WEYL))};
}

/** Half of the words of a block: lanes 0 to 7 of both kinds, the next time 8 to 15. */
INLINE void draw(draws *d, __m256i *r, __m256i *s) {
    __m256i h = _mm256_xor_si256(d->weyl, _mm256_srli_epi32(d->weyl, 16));
    d->weyl = _mm256_add_epi32(d->weyl, d->stride);
    h = _mm256_mullo_epi32(h, _mm256_set1_epi32((int)GW_QSGD_MUL1));
    h = _mm256_xor_si256(_mm256_xor_si256(h, d->high), _mm256_srli_epi32(h, 15));
    __m256i turned = _mm256_or_si256(_mm256_slli_epi32(h, 16), _mm256_srli_epi32(h, 16));
    *r = _mm256_mullo_epi32(h, _mm256_set1_epi32((int)GW_QSGD_MUL2));
    *s = _mm256_mullo_epi32(turned, _mm256_set1_epi32((int)GW_QSGD_MUL3));
}

/** Puts in order what packs of four registers within 128-bit lanes have left. */
INLINE __m256i in_order(__m256i packed) {
    return _mm256_permutevar8x32_epi32(packed, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}

INLINE void put(float *y, __m256 v, int add) {
    _mm256_storeu_ps(y, add ? _mm256_add_ps(_mm256_loadu_ps(y), v) : v);
}

INLINE __m256i load_bytes(const void *in) { /* 8, sign-extended */
    return _mm256_cvtepi8_epi32(_mm_loadl_epi64(in));
}
