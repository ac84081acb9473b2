/* qsgd, 64 elements an iteration in four registers of 16. */
#include "compress/kernel/qsgd.h"

#ifdef GW_X86
#include <immintrin.h>

#define TARGET GW_TARGET_AVX512
/* Inline, so that `bits` and `add` are constants in each copy. */
#define INLINE GW_TARGET_AVX512 static inline __attribute__((always_inline))

enum { LANES = 16 };

INLINE uint32_t peak(const float *x, size_t n) {
    const __m512i mag = _mm512_set1_epi32(0x7fffffff);
    __m512i a = _mm512_setzero_si512(), b = a, c = a, d = a;
    for (size_t i = 0; i < n; i += GW_BLOCK) {
        a = _mm512_max_epu32(a, _mm512_and_si512(mag, _mm512_loadu_si512(x + i)));
        b = _mm512_max_epu32(b, _mm512_and_si512(mag, _mm512_loadu_si512(x + i + LANES)));
        c = _mm512_max_epu32(c, _mm512_and_si512(mag, _mm512_loadu_si512(x + i + 2 * LANES)));
        d = _mm512_max_epu32(d, _mm512_and_si512(mag, _mm512_loadu_si512(x + i + 3 * LANES)));
    }
    return _mm512_reduce_max_epu32(
        _mm512_max_epu32(_mm512_max_epu32(a, b), _mm512_max_epu32(c, d)));
}

/* gw_qsgd_mix of 16 counters, given their Weyl terms. */
INLINE __m512i mix(__m512i weyl, __m512i high) {
    __m512i h = _mm512_xor_si512(weyl, _mm512_srli_epi32(weyl, 16));
    h = _mm512_mullo_epi32(h, _mm512_set1_epi32((int)GW_QSGD_MUL1));
    return _mm512_ternarylogic_epi32(h, _mm512_srli_epi32(h, 15), high, 0x96); /* xor of three */
}

/* The code in the upper half of each dword, whatever is left of the fraction below it. */
INLINE __m512i fixed_of(const float *x, __m512 inv, __m512i random) {
    __m512i fixed = _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_loadu_ps(x), inv));
    return _mm512_add_epi32(fixed, random);
}

/* 64 codes in element order, one a byte: the upper words of two registers at a time, then a pack
 * within 128-bit lanes, whose halves are put in order. */
INLINE __m512i bytes_of(__m512i a, __m512i b, __m512i c, __m512i d) {
    const __m512i upper =
        _mm512_set_epi16(63, 61, 59, 57, 55, 53, 51, 49, 47, 45, 43, 41, 39, 37, 35, 33, 31, 29, 27,
                         25, 23, 21, 19, 17, 15, 13, 11, 9, 7, 5, 3, 1);
    const __m512i order = _mm512_setr_epi64(0, 2, 4, 6, 1, 3, 5, 7);
    __m512i ab = _mm512_permutex2var_epi16(a, upper, b);
    __m512i cd = _mm512_permutex2var_epi16(c, upper, d);
    return _mm512_permutexvar_epi64(order, _mm512_packs_epi16(ab, cd));
}

INLINE void store_codes(unsigned bits, void *out, __m512i bytes) {
    if (bits == 8) {
        _mm512_storeu_si512(out, bytes);
        return;
    }
    __m512i low = _mm512_and_si512(bytes, _mm512_set1_epi8((char)((1 << bits) - 1)));
    if (bits == 4) { /* pairs: first + 16 * second */
        __m512i pairs = _mm512_maddubs_epi16(low, _mm512_set1_epi16(0x1001));
        _mm256_storeu_si256(out, _mm512_cvtepi16_epi8(pairs));
        return;
    }
    __m512i pairs = _mm512_maddubs_epi16(low, _mm512_set1_epi16(0x0401));
    __m512i quads = _mm512_madd_epi16(pairs, _mm512_set1_epi32(0x00100001));
    _mm_storeu_si128(out, _mm512_cvtepi32_epi8(quads));
}

INLINE void quantize(unsigned bits, const float *x, size_t n, float inv1, uint64_t seed,
                     uint32_t ctr, void *out) {
    const __m512 inv = _mm512_set1_ps(inv1);
    const __m512i high = _mm512_set1_epi32((int)(seed >> 32));
    const __m512i stride = _mm512_set1_epi32((int)(LANES * GW_QSGD_WEYL));
    const __m512i lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const __m512i low16 = _mm512_set1_epi32(0xffff);
    __m512i weyl =
        _mm512_add_epi32(_mm512_mullo_epi32(_mm512_add_epi32(lane, _mm512_set1_epi32((int)ctr)),
                                            _mm512_set1_epi32((int)GW_QSGD_WEYL)),
                         _mm512_set1_epi32((int)(uint32_t)seed));
    unsigned char *byte = out;
    for (size_t i = 0; i < n; i += GW_BLOCK, byte += bits * GW_BLOCK / 8) {
        __m512i h = mix(weyl, high);
        __m512i r = _mm512_mullo_epi32(h, _mm512_set1_epi32((int)GW_QSGD_MUL2));
        __m512i s =
            _mm512_mullo_epi32(_mm512_rol_epi32(h, 16), _mm512_set1_epi32((int)GW_QSGD_MUL3));
        weyl = _mm512_add_epi32(weyl, stride);
        __m512i a = fixed_of(x + i, inv, _mm512_and_si512(r, low16));
        __m512i b = fixed_of(x + i + LANES, inv, _mm512_srli_epi32(r, 16));
        __m512i c = fixed_of(x + i + 2 * LANES, inv, _mm512_and_si512(s, low16));
        __m512i d = fixed_of(x + i + 3 * LANES, inv, _mm512_srli_epi32(s, 16));
        store_codes(bits, byte, bytes_of(a, b, c, d));
    }
}

INLINE void put(float *y, __m512 v, int add) {
    _mm512_storeu_ps(y, add ? _mm512_add_ps(_mm512_loadu_ps(y), v) : v);
}

INLINE void decode_bytes(const unsigned char *in, size_t n, float step1, float *y, int add) {
    const __m512 step = _mm512_set1_ps(step1);
    for (size_t i = 0; i < n; i += LANES) {
        __m512i code =
            _mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)(const void *)(in + i)));
        put(y + i, _mm512_mul_ps(_mm512_cvtepi32_ps(code), step), add);
    }
}

/* Narrow codes index a table of their 16 or 4 values; vpermps looks at the low 4 bits of an index
 * only, so for 2 bits the table repeats and the code above does no harm. */
INLINE void decode_table(unsigned bits, const unsigned char *in, size_t n, float step, float *y,
                         int add) {
    const __m512 values =
        bits == 4 ? _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, -8, -7, -6, -5, -4, -3, -2, -1)
                  : _mm512_setr_ps(0, 1, -2, -1, 0, 1, -2, -1, 0, 1, -2, -1, 0, 1, -2, -1);
    const __m512 table = _mm512_mul_ps(values, _mm512_set1_ps(step));
    const __m512i shift = _mm512_mullo_epi32(
        _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15),
        _mm512_set1_epi32(
            (int)bits)); /* vpsrlvd wants it below 32: the word index takes the rest */
    const __m512i within = _mm512_and_si512(shift, _mm512_set1_epi32(31));
    const __m512i word = _mm512_srli_epi32(shift, 5);
    for (size_t i = 0; i < n; i += LANES) {
        const void *at = in + i * bits / 8;
        __m512i raw =
            bits == 4 ? _mm512_permutexvar_epi32(word, _mm512_castsi128_si512(_mm_loadl_epi64(at)))
                      : _mm512_set1_epi32((int)*(const gw_u32u *)at);
        put(y + i, _mm512_permutexvar_ps(_mm512_srlv_epi32(raw, within), table), add);
    }
}

INLINE void decode(unsigned bits, const void *in, size_t n, float step, float *y, int add) {
    if (bits == 8)
        decode_bytes(in, n, step, y, add);
    else
        decode_table(bits, in, n, step, y, add);
}

#include "compress/kernel/qsgd_loop.h"
GW_QSGD_TABLE(avx512);
#endif
