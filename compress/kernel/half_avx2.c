/* fp16 and bf16, 8 floats an instruction (F16C, AVX2). */
#include "compress/kernel/half.h"

#ifdef GW_X86
#include <immintrin.h>

enum { LANES = 8, WIRE = 2 };

GW_TARGET_AVX2 static inline __m128i fp16_of(__m256 x) {
    return _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT);
}

GW_TARGET_AVX2 static inline __m256 fp16_value(__m128i h) {
    return _mm256_cvtph_ps(h);
}

GW_TARGET_AVX2 static inline __m128i bf16_of(__m256 x) {
    __m256i bits = _mm256_castps_si256(x);
    __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    __m256i up = _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), odd);
    __m256i nan = _mm256_or_si256(bits, _mm256_set1_epi32(0x400000));
    __m256i is_nan = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
    __m256i word = _mm256_srli_epi32(_mm256_blendv_epi8(up, nan, is_nan), 16);
    __m256i pack = _mm256_packus_epi32(word, word); /* within each half of the register */
    return _mm256_castsi256_si128(_mm256_permute4x64_epi64(pack, 0x08));
}

GW_TARGET_AVX2 static inline __m256 bf16_value(__m128i h) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(h), 16));
}

#define LOAD(p) _mm_loadu_si128((const __m128i *)(const void *)(p))

#define FORMAT(format)                                                                             \
    GW_TARGET_AVX2 static void format##_encode(const float *x, size_t n, void *out) {              \
        unsigned char *h = out;                                                                    \
        for (size_t i = 0; i < n; i += LANES)                                                      \
            _mm_storeu_si128((__m128i *)(void *)(h + WIRE * i),                                    \
                             format##_of(_mm256_loadu_ps(x + i)));                                 \
    }                                                                                              \
    GW_TARGET_AVX2 static void format##_decode(const void *in, size_t n, float *y) {               \
        const unsigned char *h = in;                                                               \
        for (size_t i = 0; i < n; i += LANES)                                                      \
            _mm256_storeu_ps(y + i, format##_value(LOAD(h + WIRE * i)));                           \
    }                                                                                              \
    GW_TARGET_AVX2 static void format##_decode_add(const void *in, size_t n, float *y) {           \
        const unsigned char *h = in;                                                               \
        for (size_t i = 0; i < n; i += LANES)                                                      \
            _mm256_storeu_ps(                                                                      \
                y + i, _mm256_add_ps(_mm256_loadu_ps(y + i), format##_value(LOAD(h + WIRE * i)))); \
    }                                                                                              \
    GW_TARGET_AVX2 static void format##_add(void *inout, const void *in, size_t n) {               \
        unsigned char *a = inout;                                                                  \
        const unsigned char *b = in;                                                               \
        for (size_t i = 0; i < WIRE * n; i += WIRE * LANES) {                                      \
            __m256 sum = _mm256_add_ps(format##_value(LOAD(a + i)), format##_value(LOAD(b + i)));  \
            _mm_storeu_si128((__m128i *)(void *)(a + i), format##_of(sum));                        \
        }                                                                                          \
    }                                                                                              \
    const gw_half_kernels gw_##format##_avx2 = {format##_encode, format##_decode,                  \
                                                format##_decode_add, format##_add};

FORMAT(fp16)
FORMAT(bf16)
#endif
