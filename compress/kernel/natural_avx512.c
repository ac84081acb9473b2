/* natural, 64 elements an iteration in four registers of 16. */
#include "compress/kernel/natural.h"

#ifdef GW_X86
#include "compress/kernel/chance_avx512.h"

enum { FRACTION = GW_NATURAL_FRACTION };

/* x| shifted so that its code starts at bit 23; see natural_portable.c. */
INLINE __m512i natural_place(__m512i mag, uint32_t window1, int below) {
    const __m512i one = _mm512_set1_epi32(1), window = _mm512_set1_epi32((int)window1);
    const __m512i start = _mm512_slli_epi32(window, FRACTION);
    if (!below) /* only zeros are below it */
        return _mm512_sub_epi32(_mm512_max_epu32(mag, start), start);
    __m512i least = _mm512_max_epu32(_mm512_srli_epi32(mag, FRACTION), one);
    __m512i less = _mm512_slli_epi32(_mm512_sub_epi32(least, one), FRACTION);
    __m512i down = _mm512_sub_epi32(_mm512_add_epi32(window, one), least);
    __mmask16 low = _mm512_cmplt_epu32_mask(mag, _mm512_set1_epi32((int)(window1 + 1) << FRACTION));
    __m512i inside = _mm512_sub_epi32(mag, start);
    return _mm512_mask_srlv_epi32(inside, low, _mm512_sub_epi32(mag, less), down);
}

/* The sign in bit 31, the code from bit 23 up, the rest of the fraction below. */
INLINE __m512i natural_rounded(const float *x, __m512i word, uint32_t window,
                               gw_natural_reach reach) {
    __m512i v = _mm512_loadu_si512(x), chance = _mm512_srli_epi32(word, 32 - FRACTION);
    if (reach == GW_NATURAL_WHOLE)
        return _mm512_add_epi32(v, chance);
    __m512i mag = _mm512_and_si512(v, _mm512_set1_epi32(0x7fffffff));
    __m512i drawn = _mm512_add_epi32(natural_place(mag, window, reach == GW_NATURAL_BELOW), chance);
    if (reach == GW_NATURAL_BELOW) /* the largest floats would round up to 2^128 */
        drawn = _mm512_min_epu32(drawn, _mm512_set1_epi32(0x3fffffff));
    return _mm512_ternarylogic_epi32(drawn, v, _mm512_set1_epi32((int)0x80000000), 0xd8);
}

/* 32 codes in the lower bytes of words: bits 15 and 13 to 7 of each lane's upper word. */
INLINE __m512i natural_codes_of(__m512i a, __m512i b) {
    const __m512i sign = _mm512_set1_epi16((short)0x8000);
    __m512i words = chance_upper_words(a, b); /* sign ? words : 2 * words */
    words = _mm512_ternarylogic_epi32(_mm512_slli_epi16(words, 1), words, sign, 0xd8);
    return _mm512_srli_epi16(words, 8);
}

INLINE void natural_quantize(const float *x, size_t n, uint32_t window, uint64_t seed, uint32_t ctr,
                             unsigned char *codes, gw_natural_reach reach) {
    draws d = chance_draws(seed, ctr);
    for (size_t i = 0; i < n; i += GW_BLOCK) {
        __m512i r, s;
        chance_draw(&d, &r, &s);
        __m512i a = natural_rounded(x + i, _mm512_rol_epi32(r, 16), window, reach);
        __m512i b = natural_rounded(x + i + LANES, r, window, reach);
        __m512i c = natural_rounded(x + i + 2 * LANES, _mm512_rol_epi32(s, 16), window, reach);
        __m512i e = natural_rounded(x + i + 3 * LANES, s, window, reach);
        __m512i bytes = _mm512_packus_epi16(natural_codes_of(a, b), natural_codes_of(c, e));
        _mm512_storeu_si512(codes + i, chance_in_order(bytes));
    }
}

INLINE uint32_t natural_least(const float *x, size_t n) {
    const __m512i mag = _mm512_set1_epi32(0x7fffffff), one = _mm512_set1_epi32(1);
    __m512i low = _mm512_set1_epi32(-1);
    for (size_t i = 0; i < n; i += LANES) {
        __m512i m = _mm512_and_si512(mag, _mm512_loadu_si512(x + i));
        low = _mm512_min_epu32(low, _mm512_sub_epi32(m, one));
    }
    return _mm512_reduce_min_epu32(low);
}

INLINE void natural_decode(const unsigned char *codes, size_t n, uint32_t window, float *y, int add,
                           int above) {
    const __m512i start = _mm512_set1_epi32((int)(window << FRACTION));
    const __m512i code = _mm512_set1_epi32(0x7f), keep = _mm512_set1_epi32((int)0xbfffffff);
    for (size_t i = 0; i < n; i += LANES) {
        __m512i raw =
            chance_load_bytes(codes + i); /* after the shift the sign is in bits 31 and 30 */
        __m512i v = _mm512_and_si512(_mm512_slli_epi32(raw, FRACTION), keep);
        if (above)
            v = _mm512_mask_add_epi32(v, _mm512_test_epi32_mask(raw, code), v, start);
        chance_put(y + i, _mm512_castsi512_ps(v), add);
    }
}

#include "compress/kernel/natural_loop.h"
GW_NATURAL_TABLE(avx512);
#endif
