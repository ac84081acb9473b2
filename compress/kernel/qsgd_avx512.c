/* qsgd, 64 elements an iteration in four registers of 16. */
#include "compress/kernel/qsgd.h"

#ifdef GW_X86
#include <immintrin.h>

enum { LANES = 16, WORDS = GW_BLOCK / 2 };

/* Inline, so that `bits` and `add` are constants in each copy. */
#define INLINE GW_TARGET_AVX512 static inline __attribute__((always_inline))

GW_TARGET_AVX512 static uint32_t peak(const float *x, size_t n) {
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

/* gw_qsgd_word of 16 counters, given their Weyl terms. */
INLINE __m512i random_words(__m512i weyl, __m512i high) {
    const __m512i mul1 = _mm512_set1_epi32((int)GW_QSGD_MUL1);
    const __m512i mul2 = _mm512_set1_epi32((int)GW_QSGD_MUL2);
    __m512i h = weyl;
    h = _mm512_mullo_epi32(_mm512_xor_si512(h, _mm512_srli_epi32(h, 16)), mul1);
    h = _mm512_ternarylogic_epi32(h, _mm512_srli_epi32(h, 15), high, 0x96); /* xor of the three */
    h = _mm512_mullo_epi32(h, mul2);
    return _mm512_xor_si512(h, _mm512_srli_epi32(h, 16));
}

INLINE __m512i codes_of(const float *x, __m512 inv, __m512i random) {
    __m512i fixed = _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_loadu_ps(x), inv));
    return _mm512_srai_epi32(_mm512_add_epi32(fixed, random), 16);
}

/* 64 codes in element order, one a byte. The two packs work within 128-bit lanes and leave
 * dword 4 l + r where l is the lane and r the register: one permutation puts them in order. */
INLINE __m512i bytes_of(__m512i a, __m512i b, __m512i c, __m512i d) {
    const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    __m512i packed = _mm512_packs_epi16(_mm512_packs_epi32(a, b), _mm512_packs_epi32(c, d));
    return _mm512_permutexvar_epi32(order, packed);
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
    const __m512i half = _mm512_set1_epi32((int)(LANES * GW_QSGD_WEYL));
    const __m512i lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const __m512i low16 = _mm512_set1_epi32(0xffff);
    __m512i weyl =
        _mm512_add_epi32(_mm512_mullo_epi32(_mm512_add_epi32(lane, _mm512_set1_epi32((int)ctr)),
                                            _mm512_set1_epi32((int)GW_QSGD_WEYL)),
                         _mm512_set1_epi32((int)(uint32_t)seed));
    unsigned char *byte = out;
    for (size_t i = 0; i < n; i += GW_BLOCK, byte += bits * GW_BLOCK / 8) {
        __m512i r = random_words(weyl, high);
        weyl = _mm512_add_epi32(weyl, half);
        __m512i s = random_words(weyl, high);
        weyl = _mm512_add_epi32(weyl, half);
        __m512i a = codes_of(x + i, inv, _mm512_and_si512(r, low16));
        __m512i b = codes_of(x + i + LANES, inv, _mm512_srli_epi32(r, 16));
        __m512i c = codes_of(x + i + 2 * LANES, inv, _mm512_and_si512(s, low16));
        __m512i d = codes_of(x + i + 3 * LANES, inv, _mm512_srli_epi32(s, 16));
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

#define WIDTH(bits)                                                                                \
    GW_TARGET_AVX512 static void quantize##bits(const float *x, size_t n, float inv,               \
                                                uint64_t seed, uint32_t ctr, void *out) {          \
        quantize(bits, x, n, inv, seed, ctr, out);                                                 \
    }                                                                                              \
    GW_TARGET_AVX512 static void decode##bits(const void *in, size_t n, float step, float *y) {    \
        DECODE(bits, in, n, step, y, 0);                                                           \
    }                                                                                              \
    GW_TARGET_AVX512 static void decode_add##bits(const void *in, size_t n, float step,            \
                                                  float *y) {                                      \
        DECODE(bits, in, n, step, y, 1);                                                           \
    }

#define DECODE decode_table
WIDTH(2)
WIDTH(4)
#undef DECODE
#define DECODE(bits, in, n, step, y, add) decode_bytes(in, n, step, y, add)
WIDTH(8)

const gw_qsgd_kernels gw_qsgd_avx512[GW_QSGD_WIDTHS] = {
    {peak, quantize2, decode2, decode_add2},
    {peak, quantize4, decode4, decode_add4},
    {peak, quantize8, decode8, decode_add8},
};
#endif
