/* qsgd, 64 elements an iteration in eight registers of 8. */
#include "compress/kernel/qsgd.h"

#ifdef GW_X86
#include <immintrin.h>

#define TARGET GW_TARGET_AVX2
/* Inline, so that `bits` and `add` are constants in each copy. */
#define INLINE GW_TARGET_AVX2 static inline __attribute__((always_inline))

enum { LANES = 8, HALF = GW_BLOCK / 2 };

INLINE __m256i load(const float *x) {
    return _mm256_loadu_si256((const __m256i *)(const void *)x);
}

INLINE uint32_t peak(const float *x, size_t n) {
    const __m256i mag = _mm256_set1_epi32(0x7fffffff);
    __m256i a = _mm256_setzero_si256(), b = a, c = a, d = a;
    for (size_t i = 0; i < n; i += 4 * LANES) {
        a = _mm256_max_epu32(a, _mm256_and_si256(mag, load(x + i)));
        b = _mm256_max_epu32(b, _mm256_and_si256(mag, load(x + i + LANES)));
        c = _mm256_max_epu32(c, _mm256_and_si256(mag, load(x + i + 2 * LANES)));
        d = _mm256_max_epu32(d, _mm256_and_si256(mag, load(x + i + 3 * LANES)));
    }
    a = _mm256_max_epu32(_mm256_max_epu32(a, b), _mm256_max_epu32(c, d));
    __m128i top = _mm_max_epu32(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1));
    top = _mm_max_epu32(top, _mm_shuffle_epi32(top, 0x4e));
    top = _mm_max_epu32(top, _mm_shuffle_epi32(top, 0xb1));
    return (uint32_t)_mm_cvtsi128_si32(top);
}

/* gw_qsgd_mix of 8 counters, given their Weyl terms. */
INLINE __m256i mix(__m256i weyl, __m256i high) {
    __m256i h = _mm256_xor_si256(weyl, _mm256_srli_epi32(weyl, 16));
    h = _mm256_mullo_epi32(h, _mm256_set1_epi32((int)GW_QSGD_MUL1));
    return _mm256_xor_si256(_mm256_xor_si256(h, high), _mm256_srli_epi32(h, 15));
}

INLINE __m256i first_word(__m256i h) {
    return _mm256_mullo_epi32(h, _mm256_set1_epi32((int)GW_QSGD_MUL2));
}

INLINE __m256i second_word(__m256i h) {
    __m256i turned = _mm256_or_si256(_mm256_slli_epi32(h, 16), _mm256_srli_epi32(h, 16));
    return _mm256_mullo_epi32(turned, _mm256_set1_epi32((int)GW_QSGD_MUL3));
}

INLINE __m256i codes_of(const float *x, __m256 inv, __m256i random) {
    __m256i fixed = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x), inv));
    return _mm256_srai_epi32(_mm256_add_epi32(fixed, random), 16);
}

/* 32 codes in element order, one a byte; the packs work within 128-bit lanes. */
INLINE __m256i bytes_of(__m256i a, __m256i b, __m256i c, __m256i d) {
    __m256i packed = _mm256_packs_epi16(_mm256_packs_epi32(a, b), _mm256_packs_epi32(c, d));
    return _mm256_permutevar8x32_epi32(packed, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}

INLINE void store_codes(unsigned bits, unsigned char *out, __m256i bytes) {
    if (bits == 8) {
        _mm256_storeu_si256((__m256i *)(void *)out, bytes);
        return;
    }
    __m256i low = _mm256_and_si256(bytes, _mm256_set1_epi8((char)((1 << bits) - 1)));
    if (bits == 4) { /* pairs: first + 16 * second */
        __m256i pairs = _mm256_maddubs_epi16(low, _mm256_set1_epi16(0x1001));
        __m256i pack = _mm256_permute4x64_epi64(_mm256_packus_epi16(pairs, pairs), 0x08);
        _mm_storeu_si128((__m128i *)(void *)out, _mm256_castsi256_si128(pack));
        return;
    }
    __m256i pairs = _mm256_maddubs_epi16(low, _mm256_set1_epi16(0x0401));
    __m256i quads = _mm256_madd_epi16(pairs, _mm256_set1_epi32(0x00100001));
    quads = _mm256_packus_epi16(_mm256_packus_epi32(quads, quads), quads);
    quads = _mm256_permutevar8x32_epi32(quads, _mm256_setr_epi32(0, 4, 0, 0, 0, 0, 0, 0));
    _mm_storel_epi64((__m128i *)(void *)out, _mm256_castsi256_si128(quads));
}

/* 32 elements, of which the first 16 take the low halves of two registers of random words. */
INLINE __m256i half_block(const float *x, __m256 inv, __m256i r, __m256i s) {
    const __m256i low16 = _mm256_set1_epi32(0xffff);
    return bytes_of(codes_of(x, inv, _mm256_and_si256(r, low16)),
                    codes_of(x + LANES, inv, _mm256_and_si256(s, low16)),
                    codes_of(x + 2 * LANES, inv, _mm256_srli_epi32(r, 16)),
                    codes_of(x + 3 * LANES, inv, _mm256_srli_epi32(s, 16)));
}

INLINE void quantize(unsigned bits, const float *x, size_t n, float inv1, uint64_t seed,
                     uint32_t ctr, void *out) {
    const __m256 inv = _mm256_set1_ps(inv1);
    const __m256i high = _mm256_set1_epi32((int)(seed >> 32));
    const __m256i stride = _mm256_set1_epi32((int)(LANES * GW_QSGD_WEYL));
    const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    __m256i weyl =
        _mm256_add_epi32(_mm256_mullo_epi32(_mm256_add_epi32(lane, _mm256_set1_epi32((int)ctr)),
                                            _mm256_set1_epi32((int)GW_QSGD_WEYL)),
                         _mm256_set1_epi32((int)(uint32_t)seed));
    unsigned char *byte = out;
    for (size_t i = 0; i < n; i += GW_BLOCK) {
        __m256i g = mix(weyl, high);
        weyl = _mm256_add_epi32(weyl, stride);
        __m256i h = mix(weyl, high);
        weyl = _mm256_add_epi32(weyl, stride);
        store_codes(bits, byte, half_block(x + i, inv, first_word(g), first_word(h)));
        byte += bits * HALF / 8;
        store_codes(bits, byte, half_block(x + i + HALF, inv, second_word(g), second_word(h)));
        byte += bits * HALF / 8;
    }
}

/* Eight codes, sign-extended: narrow ones are shifted up to the sign bit and down again. */
INLINE __m256i load_codes(unsigned bits, const unsigned char *in, size_t i) {
    const void *at = in + i * bits / 8;
    if (bits == 8)
        return _mm256_cvtepi8_epi32(_mm_loadl_epi64(at));
    const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    const __m256i up = _mm256_sub_epi32(_mm256_set1_epi32((int)(32 - bits)),
                                        _mm256_mullo_epi32(lane, _mm256_set1_epi32((int)bits)));
    int raw = bits == 4 ? (int)*(const gw_u32u *)at : (int)*(const gw_u16u *)at;
    return _mm256_srai_epi32(_mm256_sllv_epi32(_mm256_set1_epi32(raw), up), (int)(32 - bits));
}

INLINE void decode(unsigned bits, const void *in, size_t n, float step1, float *y, int add) {
    const __m256 step = _mm256_set1_ps(step1);
    for (size_t i = 0; i < n; i += LANES) {
        __m256 v = _mm256_mul_ps(_mm256_cvtepi32_ps(load_codes(bits, in, i)), step);
        _mm256_storeu_ps(y + i, add ? _mm256_add_ps(_mm256_loadu_ps(y + i), v) : v);
    }
}

#include "compress/kernel/qsgd_loop.h"
GW_QSGD_TABLE(avx2);
#endif
