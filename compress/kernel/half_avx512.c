/* fp16 and bf16, 16 floats an instruction. Not vcvtneps2bf16: it flushes denormals in any mode, so
 * its bytes would differ, and the integer form already keeps up with memory. */
#include "compress/kernel/half.h"

#ifdef GW_X86
#include <immintrin.h>

enum { LANES = 16, WIRE = 2 };

/* Two registers of floats to 32 halfwords. */
GW_TARGET_AVX512 static inline __m512i fp16_of(__m512 x, __m512 y) {
    __m256i low = _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT);
    __m256i high = _mm512_cvtps_ph(y, _MM_FROUND_TO_NEAREST_INT);
    return _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
}

GW_TARGET_AVX512 static inline __m512 fp16_value(__m256i h) {
    return _mm512_cvtph_ps(h);
}

/* The rounded halfword in the upper half of each dword. */
GW_TARGET_AVX512 static inline __m512i bf16_round(__m512 x) {
    __m512i bits = _mm512_castps_si512(x);
    __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    __m512i up = _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff)), odd);
    __mmask16 is_nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
    return _mm512_mask_or_epi32(up, is_nan, bits, _mm512_set1_epi32(0x400000));
}

GW_TARGET_AVX512 static inline __m512i bf16_of(__m512 x, __m512 y) {
    const __m512i upper =
        _mm512_set_epi16(63, 61, 59, 57, 55, 53, 51, 49, 47, 45, 43, 41, 39, 37, 35, 33, 31, 29, 27,
                         25, 23, 21, 19, 17, 15, 13, 11, 9, 7, 5, 3, 1);
    return _mm512_permutex2var_epi16(bf16_round(x), upper, bf16_round(y));
}

GW_TARGET_AVX512 static inline __m512 bf16_value(__m256i h) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(h), 16));
}

/* Store 32 floats as halfwords: fp16 in two stores, which beyond the caches is faster than joining
 * the halves first. */
GW_TARGET_AVX512 static inline void fp16_put(void *h, __m512 x, __m512 y) {
    __m256i *out = h;
    _mm256_storeu_si256(out, _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
    _mm256_storeu_si256(out + 1, _mm512_cvtps_ph(y, _MM_FROUND_TO_NEAREST_INT));
}

GW_TARGET_AVX512 static inline void bf16_put(void *h, __m512 x, __m512 y) {
    _mm512_storeu_si512(h, bf16_of(x, y));
}

#define LOAD(p) _mm256_loadu_si256((const __m256i *)(const void *)(p))

#define FORMAT(format)                                                                             \
    GW_TARGET_AVX512 static void format##_encode(const float *x, size_t n, void *out) {            \
        unsigned char *h = out;                                                                    \
        for (size_t i = 0; i < n; i += 2 * LANES)                                                  \
            format##_put(h + WIRE * i, _mm512_loadu_ps(x + i), _mm512_loadu_ps(x + i + LANES));    \
    }                                                                                              \
    GW_TARGET_AVX512 static void format##_decode(const void *in, size_t n, float *y) {             \
        const unsigned char *h = in;                                                               \
        for (size_t i = 0; i < n; i += LANES)                                                      \
            _mm512_storeu_ps(y + i, format##_value(LOAD(h + WIRE * i)));                           \
    }                                                                                              \
    GW_TARGET_AVX512 static void format##_decode_add(const void *in, size_t n, float *y) {         \
        const unsigned char *h = in;                                                               \
        for (size_t i = 0; i < n; i += LANES)                                                      \
            _mm512_storeu_ps(                                                                      \
                y + i, _mm512_add_ps(_mm512_loadu_ps(y + i), format##_value(LOAD(h + WIRE * i)))); \
    }                                                                                              \
    GW_TARGET_AVX512 static void format##_add(void *inout, const void *in, size_t n) {             \
        unsigned char *a = inout;                                                                  \
        const unsigned char *b = in;                                                               \
        for (size_t i = 0; i < WIRE * n; i += 2 * WIRE * LANES) {                                  \
            __m512 low = _mm512_add_ps(format##_value(LOAD(a + i)), format##_value(LOAD(b + i)));  \
            __m512 high = _mm512_add_ps(format##_value(LOAD(a + i + WIRE * LANES)),                \
                                        format##_value(LOAD(b + i + WIRE * LANES)));               \
            _mm512_storeu_si512(a + i, format##_of(low, high));                                    \
        }                                                                                          \
    }                                                                                              \
    const gw_half_kernels gw_##format##_avx512 = {format##_encode, format##_decode,                \
                                                  format##_decode_add, format##_add};

FORMAT(fp16)
FORMAT(bf16)
#endif
