/* onebit, 64 elements an iteration in eight registers of 8. */
#include "compress/kernel/onebit.h"

#ifdef GW_X86
#include <immintrin.h>

#define TARGET GW_TARGET_AVX2
/* Inline, so that `feedback` and `add` are constants in each copy. */
#define INLINE GW_TARGET_AVX2 static inline __attribute__((always_inline))

enum { LANES = 8, REGS = GW_BLOCK / LANES };

INLINE __m256 onebit_value(const float *x, const float *e, int feedback) {
    __m256 v = _mm256_loadu_ps(x);
    return feedback ? _mm256_add_ps(_mm256_loadu_ps(e), v) : v;
}

/* sum + |v|, without denormals. */
INLINE __m256 onebit_add_magnitude(__m256 sum, __m256 v) {
    __m256i mag = _mm256_and_si256(_mm256_castps_si256(v), _mm256_set1_epi32(0x7fffffff));
    __m256i normal = _mm256_cmpgt_epi32(mag, _mm256_set1_epi32((int)GW_ONEBIT_NORMAL - 1));
    return _mm256_add_ps(sum, _mm256_castsi256_ps(_mm256_and_si256(mag, normal)));
}

INLINE float onebit_total(__m256 v) {
    __m128 four = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    four = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(four, _mm_movehdup_ps(four)));
}

INLINE float onebit_gather(const float *x, const float *e, size_t n, unsigned char *signs,
                           int feedback) {
    __m256 sum[REGS];
    for (int r = 0; r < REGS; r++)
        sum[r] = _mm256_setzero_ps();
    for (size_t i = 0; i < n; i += GW_BLOCK)
        for (int r = 0; r < REGS; r++) {
            size_t at = i + (size_t)r * LANES;
            __m256 v = onebit_value(x + at, feedback ? e + at : NULL, feedback);
            *signs++ = (unsigned char)_mm256_movemask_ps(v);
            sum[r] = onebit_add_magnitude(sum[r], v);
        }
    for (int half = REGS / 2; half; half /= 2)
        for (int r = 0; r < half; r++)
            sum[r] = _mm256_add_ps(sum[r], sum[half + r]);
    return onebit_total(sum[0]);
}

INLINE void onebit_settle(const float *x, float *e, size_t n, float scale1) {
    const __m256 scale = _mm256_set1_ps(scale1), sign = _mm256_set1_ps(-0.0f);
    for (size_t i = 0; i < n; i += LANES) {
        __builtin_prefetch(x + n + i); /* the next bucket: memory is idle in this pass */
        __builtin_prefetch(e + n + i, 1);
        __m256 v = onebit_value(x + i, e + i, 1);
        __m256 sent = _mm256_or_ps(_mm256_and_ps(v, sign), scale);
        _mm256_storeu_ps(e + i, _mm256_sub_ps(v, sent));
    }
}

INLINE void onebit_decode(const unsigned char *signs, size_t n, float scale1, float *y, int add) {
    enum { WORD = 32 };
    const __m256 scale = _mm256_set1_ps(scale1), sign = _mm256_set1_ps(-0.0f);
    const __m256i up = _mm256_setr_epi32(31, 30, 29, 28, 27, 26, 25, 24);
    const gw_u32u *words = (const gw_u32u *)(const void *)signs;
    for (size_t i = 0; i < n; i += WORD) {
        __m256i word = _mm256_set1_epi32((int)*words++);
        for (int r = 0; r < WORD; r += LANES) {
            __m256i bits = _mm256_sllv_epi32(word, _mm256_sub_epi32(up, _mm256_set1_epi32(r)));
            __m256 v = _mm256_xor_ps(scale, _mm256_and_ps(_mm256_castsi256_ps(bits), sign));
            float *to = y + i + r;
            _mm256_storeu_ps(to, add ? _mm256_add_ps(_mm256_loadu_ps(to), v) : v);
        }
    }
}

#include "compress/kernel/onebit_loop.h"
GW_ONEBIT_TABLE(avx2);
#endif
