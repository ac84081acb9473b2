/** The largest magnitude of a span, 8 lanes a register. As all headers of one level, only for
 *  source files of that level. */
#include "compress/kernel/simd.h"

#include <immintrin.h>

#define TARGET GW_TARGET_AVX2
#define INLINE GW_TARGET_AVX2 static inline __attribute__((always_inline))

enum { LANES = 8, HALF = GW_BLOCK / 2 };

INLINE __m256i peak_load(const float *x) {
    return _mm256_loadu_si256((const __m256i *)(const void *)x);
}

/** The bit pattern of max |x|; n is a multiple of GW_BLOCK. */
INLINE uint32_t peak_of(const float *x, size_t n) {
    const __m256i mag = _mm256_set1_epi32(0x7fffffff);
    __m256i a = _mm256_setzero_si256(), b = a, c = a, d = a;
    for (size_t i = 0; i < n; i += 4 * LANES) {
        a = _mm256_max_epu32(a, _mm256_and_si256(mag, peak_load(x + i)));
        b = _mm256_max_epu32(b, _mm256_and_si256(mag, peak_load(x + i + LANES)));
        c = _mm256_max_epu32(c, _mm256_and_si256(mag, peak_load(x + i + 2 * LANES)));
        d = _mm256_max_epu32(d, _mm256_and_si256(mag, peak_load(x + i + 3 * LANES)));
    }
    a = _mm256_max_epu32(_mm256_max_epu32(a, b), _mm256_max_epu32(c, d));
    __m128i top = _mm_max_epu32(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1));
    top = _mm_max_epu32(top, _mm_shuffle_epi32(top, 0x4e));
    top = _mm_max_epu32(top, _mm_shuffle_epi32(top, 0xb1));
    return (uint32_t)_mm_cvtsi128_si32(top);
}
