/* onebit, 64 elements an iteration in four registers of 16. */
#include "compress/kernel/onebit.h"

#ifdef GW_X86
#include <immintrin.h>

#define TARGET GW_TARGET_AVX512
/* Inline, so that `feedback` and `add` are constants in each copy. */
#define INLINE GW_TARGET_AVX512 static inline __attribute__((always_inline))

enum { LANES = 16, REGS = GW_BLOCK / LANES };

INLINE __m512 onebit_value(const float *x, const float *e, int feedback) {
    __m512 v = _mm512_loadu_ps(x);
    return feedback ? _mm512_add_ps(_mm512_loadu_ps(e), v) : v;
}

/* The sign bits of 32 floats. */
INLINE __mmask32 onebit_signs(__m512 a, __m512 b) {
    const __m512i upper =
        _mm512_set_epi16(63, 61, 59, 57, 55, 53, 51, 49, 47, 45, 43, 41, 39, 37, 35, 33, 31, 29, 27,
                         25, 23, 21, 19, 17, 15, 13, 11, 9, 7, 5, 3, 1);
    return _mm512_movepi16_mask(
        _mm512_permutex2var_epi16(_mm512_castps_si512(a), upper, _mm512_castps_si512(b)));
}

/* sum + |v|, without denormals. */
INLINE __m512 onebit_add_magnitude(__m512 sum, __m512 v) {
    __m512i mag = _mm512_and_si512(_mm512_castps_si512(v), _mm512_set1_epi32(0x7fffffff));
    __mmask16 normal = _mm512_cmpge_epu32_mask(mag, _mm512_set1_epi32((int)GW_ONEBIT_NORMAL));
    return _mm512_mask_add_ps(sum, normal, sum, _mm512_castsi512_ps(mag));
}

INLINE float onebit_total(__m512 v) {
    __m256 half = _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
    __m128 four = _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
    four = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(four, _mm_movehdup_ps(four)));
}

INLINE float onebit_gather(const float *x, const float *e, size_t n, unsigned char *signs,
                           int feedback) {
    __m512 sum[REGS];
    for (int r = 0; r < REGS; r++)
        sum[r] = _mm512_setzero_ps();
    gw_u32u *word = (gw_u32u *)(void *)signs;
    for (size_t i = 0; i < n; i += GW_BLOCK)
        for (int r = 0; r < REGS; r += 2) {
            size_t at = i + (size_t)r * LANES;
            __m512 v = onebit_value(x + at, feedback ? e + at : NULL, feedback);
            __m512 w = onebit_value(x + at + LANES, feedback ? e + at + LANES : NULL, feedback);
            *word++ = onebit_signs(v, w);
            sum[r] = onebit_add_magnitude(sum[r], v);
            sum[r + 1] = onebit_add_magnitude(sum[r + 1], w);
        }
    return onebit_total(
        _mm512_add_ps(_mm512_add_ps(sum[0], sum[2]), _mm512_add_ps(sum[1], sum[3])));
}

INLINE void onebit_settle(const float *x, float *e, size_t n, float scale1) {
    const __m512i scale = _mm512_castps_si512(_mm512_set1_ps(scale1));
    const __m512i sign = _mm512_set1_epi32((int)0x80000000);
    for (size_t i = 0; i < n; i += LANES) {
        __builtin_prefetch(x + n + i); /* the next bucket: memory is idle in this pass */
        __builtin_prefetch(e + n + i, 1);
        __m512 v = onebit_value(x + i, e + i, 1); /* v & sign | scale */
        __m512i sent = _mm512_ternarylogic_epi32(_mm512_castps_si512(v), sign, scale, 0xea);
        _mm512_storeu_ps(e + i, _mm512_sub_ps(v, _mm512_castsi512_ps(sent)));
    }
}

INLINE void onebit_decode(const unsigned char *signs, size_t n, float scale, float *y, int add) {
    const __m512 plus = _mm512_set1_ps(scale), minus = _mm512_set1_ps(-scale);
    const gw_u16u *word = (const gw_u16u *)(const void *)signs;
    for (size_t i = 0; i < n; i += LANES) {
        __m512 v = _mm512_mask_blend_ps(*word++, plus, minus);
        _mm512_storeu_ps(y + i, add ? _mm512_add_ps(_mm512_loadu_ps(y + i), v) : v);
    }
}

#include "compress/kernel/onebit_loop.h"
GW_ONEBIT_TABLE(avx512);
#endif
