/* ternary, 64 elements an iteration in eight registers of 8. */
#include "compress/kernel/ternary.h"

#ifdef GW_X86
#include "compress/kernel/chance_avx2.h"

INLINE __m256i ternary_codes_of(const float *x, __m256 inv, __m256i random) {
    __m256i fixed = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x), inv));
    return _mm256_srai_epi32(_mm256_add_epi32(fixed, random), 16);
}

/* 32 elements; the first 16 use the low halves of two registers of random words. */
INLINE void ternary_half_block(const float *x, __m256 inv, __m256i r, __m256i s, int8_t *codes) {
    const __m256i low16 = _mm256_set1_epi32(0xffff);
    __m256i low = _mm256_packs_epi32(ternary_codes_of(x, inv, _mm256_and_si256(r, low16)),
                                     ternary_codes_of(x + LANES, inv, _mm256_and_si256(s, low16)));
    __m256i high =
        _mm256_packs_epi32(ternary_codes_of(x + 2 * LANES, inv, _mm256_srli_epi32(r, 16)),
                           ternary_codes_of(x + 3 * LANES, inv, _mm256_srli_epi32(s, 16)));
    _mm256_storeu_si256((__m256i *)(void *)codes, chance_in_order(_mm256_packs_epi16(low, high)));
}

INLINE void ternary_quantize(const float *x, size_t n, float inv1, uint64_t seed, uint32_t ctr,
                             int8_t *codes) {
    const __m256 inv = _mm256_set1_ps(inv1);
    draws d = chance_draws(seed, ctr);
    for (size_t i = 0; i < n; i += GW_BLOCK) {
        __m256i r0, s0, r1, s1;
        chance_draw(&d, &r0, &s0);
        chance_draw(&d, &r1, &s1);
        ternary_half_block(x + i, inv, r0, r1, codes + i);
        ternary_half_block(x + i + HALF, inv, s0, s1, codes + i + HALF);
    }
}

INLINE __m256i ternary_load(const void *p) {
    return _mm256_loadu_si256(p);
}

INLINE void ternary_pack(const int8_t *codes, size_t run, unsigned char *bytes) {
    for (size_t j = 0; j < run; j += HALF) {
        __m256i b = ternary_load(codes + j);
        for (size_t r = 1; r < GW_TERNARY_RUNS; r++)
            b = _mm256_add_epi8(_mm256_add_epi8(b, b),
                                _mm256_add_epi8(b, ternary_load(codes + r * run + j)));
        b = _mm256_add_epi8(b, _mm256_set1_epi8(GW_TERNARY_TOP / 2));
        _mm256_storeu_si256((__m256i *)(void *)(bytes + j), b);
    }
}

/* What to add to a byte to get the fraction of 256 (ternary.h), in words. */
INLINE __m256i ternary_up(__m256i b) {
    __m256i up = _mm256_mullo_epi16(b, _mm256_set1_epi16(GW_TERNARY_UP_MUL));
    up = _mm256_add_epi16(up, _mm256_set1_epi16(GW_TERNARY_UP_ADD));
    return _mm256_srli_epi16(up, GW_TERNARY_UP_SHIFT);
}

INLINE __m256i ternary_fraction(__m256i b) {
    __m256i even = ternary_up(_mm256_and_si256(b, _mm256_set1_epi16(0xff)));
    __m256i odd = ternary_up(_mm256_srli_epi16(b, 8));
    return _mm256_add_epi8(b, _mm256_or_si256(even, _mm256_slli_epi16(odd, 8)));
}

/* The digit that tripling the fraction carries out, less 1: a comparison that holds is -1. */
INLINE __m256i ternary_digit(__m256i f) {
    __m256i none = _mm256_cmpeq_epi8(_mm256_min_epu8(f, _mm256_set1_epi8(85)), f);
    __m256i not_two = _mm256_cmpeq_epi8(_mm256_min_epu8(f, _mm256_set1_epi8((char)170)), f);
    return _mm256_add_epi8(_mm256_add_epi8(none, not_two), _mm256_set1_epi8(1));
}

INLINE void ternary_decode(const unsigned char *bytes, size_t run, float scale1, float *y,
                           int add) {
    const __m256 scale = _mm256_set1_ps(scale1);
    int8_t code[HALF];
    for (size_t j = 0; j < run; j += HALF) {
        __m256i f = ternary_fraction(ternary_load(bytes + j));
        for (size_t r = 0; r < GW_TERNARY_RUNS; r++) {
            _mm256_storeu_si256((__m256i *)(void *)code, ternary_digit(f));
            f = _mm256_add_epi8(f, _mm256_add_epi8(f, f));
            for (size_t l = 0; l < HALF; l += LANES)
                chance_put(y + r * run + j + l,
                           _mm256_mul_ps(_mm256_cvtepi32_ps(chance_load_bytes(code + l)), scale),
                           add);
        }
    }
}

#include "compress/kernel/ternary_loop.h"
GW_TERNARY_TABLE(avx2);
#endif
