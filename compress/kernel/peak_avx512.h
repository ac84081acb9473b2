/** The largest magnitude of a span, 16 lanes a register. As all headers of one level, only for
 *  source files of that level. */
#include "compress/kernel/simd.h"

#include <immintrin.h>

#define TARGET GW_TARGET_AVX512
#define INLINE GW_TARGET_AVX512 static inline __attribute__((always_inline))

enum { LANES = 16 };

/** The bit pattern of max |x|; n is a multiple of GW_BLOCK. */
INLINE uint32_t peak_of(const float *x, size_t n) {
    const __m512i mag = _mm512_set1_epi32(0x7fffffff);
    __m512i a = _mm512_setzero_si512(), b = a, c = a, d = a;
    for (size_t i = 0; i < n; i += GW_BLOCK) {
        a = _mm512_max_epu32(a, _mm512_and_si512(mag, _mm512_loadu_si512(x + i)));
        b = _mm512_max_epu32(b, _mm512_and_si512(mag, _mm512_loadu_si512(x + i + LANES)));
        c = _mm512_max_epu32(c, _mm512_and_si512(mag, _mm512_loadu_si512(x + i + 2 * LANES)));
        d = _mm512_max_epu32(d, _mm512_and_si512(mag, _mm512_loadu_si512(x + i + 3 * LANES)));
    }
    return _mm512_reduce_max_epu32(
        _mm512_max_epu32(_mm512_max_epu32(a, b), _mm512_max_epu32(c, d)));
}
