/* natural, 64 elements an iteration in eight registers of 8. */
#include "compress/kernel/natural.h"

#ifdef GW_X86
#include "compress/kernel/chance_avx2.h"

enum { FRACTION = GW_NATURAL_FRACTION };

/* x| shifted so that its code starts at bit 23; see natural_portable.c. */
INLINE __m256i natural_place(__m256i mag, uint32_t window1, int below) {
    const __m256i one = _mm256_set1_epi32(1), window = _mm256_set1_epi32((int)window1);
    const __m256i start = _mm256_slli_epi32(window, FRACTION);
    if (!below) /* only zeros are below it */
        return _mm256_sub_epi32(_mm256_max_epu32(mag, start), start);
    __m256i least = _mm256_max_epu32(_mm256_srli_epi32(mag, FRACTION), one);
    __m256i less = _mm256_slli_epi32(_mm256_sub_epi32(least, one), FRACTION);
    __m256i down = _mm256_sub_epi32(_mm256_add_epi32(window, one), least);
    __m256i floor = _mm256_set1_epi32((int)(window1 + 1) << FRACTION);
    __m256i under = _mm256_srlv_epi32(_mm256_sub_epi32(mag, less), down);
    return _mm256_blendv_epi8(_mm256_sub_epi32(mag, start), under, _mm256_cmpgt_epi32(floor, mag));
}

/* The sign in bit 31, the code from bit 23 up, the rest of the fraction below. */
INLINE __m256i natural_rounded(const float *x, __m256i word, uint32_t window,
                               gw_natural_reach reach) {
    const __m256i sign = _mm256_set1_epi32((int)0x80000000);
    __m256i v = peak_load(x), chance = _mm256_srli_epi32(word, 32 - FRACTION);
    if (reach == GW_NATURAL_WHOLE)
        return _mm256_add_epi32(v, chance);
    __m256i mag = _mm256_andnot_si256(sign, v);
    __m256i drawn = _mm256_add_epi32(natural_place(mag, window, reach == GW_NATURAL_BELOW), chance);
    if (reach == GW_NATURAL_BELOW) /* the largest floats would round up to 2^128 */
        drawn = _mm256_min_epu32(drawn, _mm256_set1_epi32(0x3fffffff));
    return _mm256_or_si256(drawn, _mm256_and_si256(v, sign));
}

/* 16 codes in the lower bytes of words: bits 15 and 13 to 7 of each lane's upper word. */
INLINE __m256i natural_codes_of(__m256i a, __m256i b) {
    const __m256i sign = _mm256_set1_epi16((short)0x8000);
    __m256i words = _mm256_packs_epi32(_mm256_srai_epi32(a, 16), _mm256_srai_epi32(b, 16));
    words = _mm256_or_si256(_mm256_slli_epi16(words, 1), _mm256_and_si256(words, sign));
    return _mm256_srli_epi16(words, 8);
}

INLINE __m256i natural_turned(__m256i word) {
    return _mm256_shuffle_epi8(word, _mm256_setr_epi8(2, 3, 0, 1, 6, 7, 4, 5, 10, 11, 8, 9, 14, 15,
                                                      12, 13, 2, 3, 0, 1, 6, 7, 4, 5, 10, 11, 8, 9,
                                                      14, 15, 12, 13));
}

/* 32 elements; the first 16 use the low halves of two registers of random words. */
INLINE void natural_half_block(const float *x, __m256i r, __m256i s, uint32_t window,
                               gw_natural_reach reach, unsigned char *codes) {
    __m256i low = natural_codes_of(natural_rounded(x, natural_turned(r), window, reach),
                                   natural_rounded(x + LANES, natural_turned(s), window, reach));
    __m256i high = natural_codes_of(natural_rounded(x + 2 * LANES, r, window, reach),
                                    natural_rounded(x + 3 * LANES, s, window, reach));
    _mm256_storeu_si256((__m256i *)(void *)codes, chance_in_order(_mm256_packus_epi16(low, high)));
}

INLINE void natural_quantize(const float *x, size_t n, uint32_t window, uint64_t seed, uint32_t ctr,
                             unsigned char *codes, gw_natural_reach reach) {
    draws d = chance_draws(seed, ctr);
    for (size_t i = 0; i < n; i += GW_BLOCK) {
        __m256i r0, s0, r1, s1;
        chance_draw(&d, &r0, &s0);
        chance_draw(&d, &r1, &s1);
        natural_half_block(x + i, r0, r1, window, reach, codes + i);
        natural_half_block(x + i + HALF, s0, s1, window, reach, codes + i + HALF);
    }
}

INLINE uint32_t natural_least(const float *x, size_t n) {
    const __m256i mag = _mm256_set1_epi32(0x7fffffff), one = _mm256_set1_epi32(1);
    __m256i low = _mm256_set1_epi32(-1);
    for (size_t i = 0; i < n; i += LANES) {
        __m256i m = _mm256_and_si256(mag, peak_load(x + i));
        low = _mm256_min_epu32(low, _mm256_sub_epi32(m, one));
    }
    uint32_t lane[LANES], lowest = UINT32_MAX;
    _mm256_storeu_si256((__m256i *)(void *)lane, low);
    for (int l = 0; l < LANES; l++)
        lowest = lane[l] < lowest ? lane[l] : lowest;
    return lowest;
}

INLINE void natural_decode(const unsigned char *codes, size_t n, uint32_t window, float *y, int add,
                           int above) {
    const __m256i start = _mm256_set1_epi32((int)(window << FRACTION));
    const __m256i code = _mm256_set1_epi32(0x7f), keep = _mm256_set1_epi32((int)0xbfffffff);
    for (size_t i = 0; i < n; i += LANES) {
        __m256i raw =
            chance_load_bytes(codes + i); /* after the shift the sign is in bits 31 and 30 */
        __m256i v = _mm256_and_si256(_mm256_slli_epi32(raw, FRACTION), keep);
        __m256i zero = _mm256_cmpeq_epi32(_mm256_and_si256(raw, code), _mm256_setzero_si256());
        if (above)
            v = _mm256_add_epi32(v, _mm256_andnot_si256(zero, start));
        chance_put(y + i, _mm256_castsi256_ps(v), add);
    }
}

#include "compress/kernel/natural_loop.h"
GW_NATURAL_TABLE(avx2);
#endif
