/* fp16 and bf16, 16 floats an instruction. vcvtneps2bf16 is left aside: it flushes denormals
 * whatever the mode, so its bytes would differ, and the integer form is no slower than memory. */
#include "compress/kernel/half.h"

#ifdef GW_X86
#include <immintrin.h>

enum { LANES = 16, WIRE = 2 };

GW_TARGET_AVX512 static inline __m256i fp16_of(__m512 x) {
    return _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT);
}

GW_TARGET_AVX512 static inline __m512 fp16_value(__m256i h) {
    return _mm512_cvtph_ps(h);
}

GW_TARGET_AVX512 static inline __m256i bf16_of(__m512 x) {
    __m512i bits = _mm512_castps_si512(x);
    __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    __m512i up = _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff)), odd);
    __mmask16 is_nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
    up = _mm512_mask_or_epi32(up, is_nan, bits, _mm512_set1_epi32(0x400000));
    return _mm512_cvtepi32_epi16(_mm512_srli_epi32(up, 16));
}

GW_TARGET_AVX512 static inline __m512 bf16_value(__m256i h) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(h), 16));
}

#define LOAD(p) _mm256_loadu_si256((const __m256i *)(const void *)(p))

#define FORMAT(format)                                                                             \
    GW_TARGET_AVX512 static void format##_encode(const float *x, size_t n, void *out) {            \
        unsigned char *h = out;                                                                    \
        for (size_t i = 0; i < n; i += LANES)                                                      \
            _mm256_storeu_si256((__m256i *)(void *)(h + WIRE * i),                                 \
                                format##_of(_mm512_loadu_ps(x + i)));                              \
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
        for (size_t i = 0; i < WIRE * n; i += WIRE * LANES) {                                      \
            __m512 sum = _mm512_add_ps(format##_value(LOAD(a + i)), format##_value(LOAD(b + i)));  \
            _mm256_storeu_si256((__m256i *)(void *)(a + i), format##_of(sum));                     \
        }                                                                                          \
    }                                                                                              \
    const gw_half_kernels gw_##format##_avx512 = {format##_encode, format##_decode,                \
                                                  format##_decode_add, format##_add};

FORMAT(fp16)
FORMAT(bf16)
#endif
