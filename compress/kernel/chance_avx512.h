/** kernel/chance.h, 16 lanes a register. */
#include "compress/kernel/chance.h"

#include "compress/kernel/peak_avx512.h"

typedef struct draws {
    __m512i weyl, high, stride;
} draws;

INLINE draws chance_draws(uint64_t seed, uint32_t ctr) {
    const __m512i lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    __m512i counter = _mm512_add_epi32(lane, _mm512_set1_epi32((int)ctr));
    __m512i term = _mm512_mullo_epi32(counter, _mm512_set1_epi32((int)GW_QSGD_WEYL));
    return (draws){_mm512_add_epi32(term, _mm512_set1_epi32((int)(uint32_t)seed)),
                   _mm512_set1_epi32((int)(seed >> 32)),
                   _mm512_set1_epi32((int)(LANES * GW_QSGD_WEYL))};
}

/** The words of the next block. */
INLINE void chance_draw(draws *d, __m512i *r, __m512i *s) {
    __m512i h = _mm512_xor_si512(d->weyl, _mm512_srli_epi32(d->weyl, 16));
    d->weyl = _mm512_add_epi32(d->weyl, d->stride);
    h = _mm512_mullo_epi32(h, _mm512_set1_epi32((int)GW_QSGD_MUL1));
    h = _mm512_ternarylogic_epi32(h, _mm512_srli_epi32(h, 15), d->high, 0x96); /* xor of three */
    *r = _mm512_mullo_epi32(h, _mm512_set1_epi32((int)GW_QSGD_MUL2));
    *s = _mm512_mullo_epi32(_mm512_rol_epi32(h, 16), _mm512_set1_epi32((int)GW_QSGD_MUL3));
}

/** The upper halves of all lanes in order, a word each. */
INLINE __m512i chance_upper_words(__m512i a, __m512i b) {
    const __m512i upper =
        _mm512_set_epi16(63, 61, 59, 57, 55, 53, 51, 49, 47, 45, 43, 41, 39, 37, 35, 33, 31, 29, 27,
                         25, 23, 21, 19, 17, 15, 13, 11, 9, 7, 5, 3, 1);
    return _mm512_permutex2var_epi16(a, upper, b);
}

/** Restore the order after packing two registers within 128-bit lanes. */
INLINE __m512i chance_in_order(__m512i packed) {
    return _mm512_permutexvar_epi64(_mm512_setr_epi64(0, 2, 4, 6, 1, 3, 5, 7), packed);
}

INLINE void chance_put(float *y, __m512 v, int add) {
    _mm512_storeu_ps(y, add ? _mm512_add_ps(_mm512_loadu_ps(y), v) : v);
}

INLINE __m512i chance_load_bytes(const void *in) { /* 16, sign-extended */
    return _mm512_cvtepi8_epi32(_mm_loadu_si128(in));
}
