/* ternary, 64 elements an iteration in four registers of 16. */
#include "compress/kernel/ternary.h"

#ifdef GW_X86
#include "compress/kernel/chance_avx512.h"

/* The code in the upper half of each lane, the rest of the fraction below. */
INLINE __m512i ternary_fixed_of(const float *x, __m512 inv, __m512i random) {
    __m512i fixed = _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_loadu_ps(x), inv));
    return _mm512_add_epi32(fixed, random);
}

INLINE void ternary_quantize(const float *x, size_t n, float inv1, uint64_t seed, uint32_t ctr,
                             int8_t *codes) {
    const __m512 inv = _mm512_set1_ps(inv1);
    const __m512i low16 = _mm512_set1_epi32(0xffff);
    draws d = chance_draws(seed, ctr);
    for (size_t i = 0; i < n; i += GW_BLOCK) {
        __m512i r, s;
        chance_draw(&d, &r, &s);
        __m512i a = ternary_fixed_of(x + i, inv, _mm512_and_si512(r, low16));
        __m512i b = ternary_fixed_of(x + i + LANES, inv, _mm512_srli_epi32(r, 16));
        __m512i c = ternary_fixed_of(x + i + 2 * LANES, inv, _mm512_and_si512(s, low16));
        __m512i e = ternary_fixed_of(x + i + 3 * LANES, inv, _mm512_srli_epi32(s, 16));
        __m512i bytes = _mm512_packs_epi16(chance_upper_words(a, b), chance_upper_words(c, e));
        _mm512_storeu_si512(codes + i, chance_in_order(bytes));
    }
}

INLINE void ternary_pack(const int8_t *codes, size_t run, unsigned char *bytes) {
    for (size_t j = 0; j < run; j += GW_BLOCK) {
        __m512i b = _mm512_loadu_si512(codes + j);
        for (size_t r = 1; r < GW_TERNARY_RUNS; r++)
            b = _mm512_add_epi8(_mm512_add_epi8(b, b),
                                _mm512_add_epi8(b, _mm512_loadu_si512(codes + r * run + j)));
        _mm512_storeu_si512(bytes + j, _mm512_add_epi8(b, _mm512_set1_epi8(GW_TERNARY_TOP / 2)));
    }
}

/* Values of a byte's trits: the upper two from its quotient by 27, the lower three from the
 * remainder. A lookup takes its index modulo the table's length. */
typedef struct values {
    __m512 upper[2], lower[3][2];
} values;

INLINE values ternary_values(float scale1) {
    static const signed char upper[2][LANES] = {{-1, -1, -1, 0, 0, 0, 1, 1, 1},
                                                {-1, 0, 1, -1, 0, 1, -1, 0, 1}};
    static const signed char lower[3][2 * LANES] = {
        {-1, -1, -1, -1, -1, -1, -1, -1, -1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1},
        {-1, -1, -1, 0, 0, 0, 1, 1, 1, -1, -1, -1, 0, 0, 0, 1, 1, 1, -1, -1, -1, 0, 0, 0, 1, 1, 1},
        {-1, 0, 1, -1, 0, 1, -1, 0, 1, -1, 0, 1, -1, 0, 1, -1, 0, 1, -1, 0, 1, -1, 0, 1, -1, 0, 1}};
    const __m512 scale = _mm512_set1_ps(scale1);
    values v;
    for (int r = 0; r < 2; r++)
        v.upper[r] = _mm512_mul_ps(_mm512_cvtepi32_ps(chance_load_bytes(upper[r])), scale);
    for (int r = 0; r < 3; r++)
        for (int half = 0; half < 2; half++)
            v.lower[r][half] = _mm512_mul_ps(
                _mm512_cvtepi32_ps(chance_load_bytes(lower[r] + half * LANES)), scale);
    return v;
}

INLINE void ternary_decode(const unsigned char *bytes, size_t run, float scale, float *y, int add) {
    const values v = ternary_values(scale);
    for (size_t j = 0; j < run; j += LANES) {
        __m512i b =
            _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(const void *)(bytes + j)));
        __m512i quotient = _mm512_srli_epi32(_mm512_mullo_epi16(b, _mm512_set1_epi32(19)), 9);
        __m512i rest = _mm512_sub_epi32(b, _mm512_mullo_epi16(quotient, _mm512_set1_epi32(27)));
        float *to = y + j;
        for (size_t r = 0; r < GW_TERNARY_RUNS;
             r++) /* the next bucket: runs defeat the prefetcher */
            __builtin_prefetch(to + (GW_TERNARY_RUNS + r) * run, 1);
        for (int r = 0; r < 2; r++, to += run)
            chance_put(to, _mm512_permutexvar_ps(quotient, v.upper[r]), add);
        for (int r = 0; r < 3; r++, to += run)
            chance_put(to, _mm512_permutex2var_ps(v.lower[r][0], rest, v.lower[r][1]), add);
    }
}

#include "compress/kernel/ternary_loop.h"
GW_TERNARY_TABLE(avx512);
#endif
