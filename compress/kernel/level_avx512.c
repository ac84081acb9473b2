/* The kernels in vectors of 16 lanes. */
#include "compress/kernel/simd.h"

#ifdef GW_X86
#include <immintrin.h>

#define TARGET          GW_TARGET_AVX512
#define WIDTH           16
#define GW_LEVEL(table) table##_avx512
#include "compress/kernel/ternary.h"
#include "compress/kernel/vec.h"

INLINE vu vec_min(vu a, vu b) {
    return (vu)_mm512_min_epu32((__m512i)a, (__m512i)b);
}

INLINE vu vec_max(vu a, vu b) {
    return (vu)_mm512_max_epu32((__m512i)a, (__m512i)b);
}

INLINE vu vec_reaching(vu a, uint32_t least) {
    __mmask16 where = _mm512_cmpge_epu32_mask((__m512i)a, (__m512i)vec_all(least));
    return (vu)_mm512_maskz_mov_epi32(where, (__m512i)a);
}

INLINE vu vec_if_nan(vf v, vu a, vu b) {
    __mmask16 where = _mm512_cmp_ps_mask((__m512)v, (__m512)v, _CMP_UNORD_Q);
    return (vu)_mm512_mask_blend_epi32(where, (__m512i)b, (__m512i)a);
}

INLINE vi vec_round(vf v) {
    return (vi)_mm512_cvtps_epi32((__m512)v);
}

INLINE vi vec_widen(const void *bytes) {
    return (vi)_mm512_cvtepi8_epi32(_mm_loadu_si128(bytes));
}

INLINE vu vec_widen_halves(const void *halves) {
    return (vu)_mm512_cvtepu16_epi32(_mm256_loadu_si256(halves));
}

INLINE vh vec_upper(vu a, vu b) {
    const __m512i upper =
        _mm512_set_epi16(63, 61, 59, 57, 55, 53, 51, 49, 47, 45, 43, 41, 39, 37, 35, 33, 31, 29, 27,
                         25, 23, 21, 19, 17, 15, 13, 11, 9, 7, 5, 3, 1);
    return (vh)_mm512_permutex2var_epi16((__m512i)a, upper, (__m512i)b);
}

/* Packing works within 128 bits. */
INLINE void vec_pack(void *out, const vh *halves) {
    __m512i bytes = _mm512_packs_epi16((__m512i)halves[0], (__m512i)halves[1]);
    bytes = _mm512_permutexvar_epi64(_mm512_setr_epi64(0, 2, 4, 6, 1, 3, 5, 7), bytes);
    _mm512_storeu_si512(out, bytes);
}

INLINE void vec_put_upper(void *out, vu a, vu b) {
    _mm512_storeu_si512(out, (__m512i)vec_upper(a, b));
}

INLINE uint32_t vec_signs(const vu *v) {
    return _mm512_movepi16_mask((__m512i)vec_upper(v[0], v[1]));
}

INLINE void vec_put_fp16(void *out, vf v) {
    _mm256_storeu_si256(out, _mm512_cvtps_ph((__m512)v, _MM_FROUND_TO_NEAREST_INT));
}

INLINE vf vec_fp16(const void *in) {
    return (vf)_mm512_cvtph_ps(_mm256_loadu_si256(in));
}

/* ---- codes narrower than 8 bits ---- */

/* Pairs, first + 16 * second. */
INLINE void qsgd_store_4(void *out, __m512i bytes) {
    __m512i low = _mm512_and_si512(bytes, _mm512_set1_epi8(15));
    __m512i pairs = _mm512_maddubs_epi16(low, _mm512_set1_epi16(0x1001));
    _mm256_storeu_si256(out, _mm512_cvtepi16_epi8(pairs));
}

/* Lower and upper bits as masks, spread by scalar instructions, which are otherwise idle. */
INLINE void qsgd_store_2(void *out, __m512i bytes) {
    const uint64_t even = 0x5555555555555555u;
    uint64_t low = _mm512_test_epi8_mask(bytes, _mm512_set1_epi8(1));
    uint64_t high = _mm512_movepi8_mask(bytes);
    gw_u64u *words = out;
    words[0] = _pdep_u64(low, even) | _pdep_u64(high, ~even);
    words[1] = _pdep_u64(low >> 32, even) | _pdep_u64(high >> 32, ~even);
}

/* Merge fields: pairs into 16 bits, fours into 32, eights into 64, which are whole bytes; then join
 * the two quadwords of a lane and the four lanes. */
INLINE void qsgd_store_odd(unsigned bits, void *out, __m512i bytes) {
    const int b = (int)bits, rest = 32 - 4 * b;
#define FROM(k) (char)(k < b ? k : k < 2 * b ? k + 8 - b : 0x80)
    const __m512i lane = _mm512_broadcast_i32x4(_mm_setr_epi8(
        FROM(0), FROM(1), FROM(2), FROM(3), FROM(4), FROM(5), FROM(6), FROM(7), FROM(8), FROM(9),
        FROM(10), FROM(11), FROM(12), FROM(13), FROM(14), FROM(15)));
#undef FROM
#define FROM(k) (short)(b == 6 ? k / 3 * 4 + k % 3 : k / b * 8 + k % b)
    const __m512i lanes = _mm512_set_epi16(
        FROM(31), FROM(30), FROM(29), FROM(28), FROM(27), FROM(26), FROM(25), FROM(24), FROM(23),
        FROM(22), FROM(21), FROM(20), FROM(19), FROM(18), FROM(17), FROM(16), FROM(15), FROM(14),
        FROM(13), FROM(12), FROM(11), FROM(10), FROM(9), FROM(8), FROM(7), FROM(6), FROM(5),
        FROM(4), FROM(3), FROM(2), FROM(1), FROM(0));
#undef FROM
    __m512i v = _mm512_and_si512(bytes, _mm512_set1_epi8((char)((1 << b) - 1)));
    v = _mm512_maddubs_epi16(_mm512_set1_epi16((short)(1 << b << 8 | 1)), v);
    v = _mm512_madd_epi16(v, _mm512_set1_epi32(1 << 2 * b << 16 | 1));
    /* fields of even dwords stay, those of odd ones move next to them */
    v = _mm512_ternarylogic_epi64(_mm512_set1_epi64((1 << 4 * b) - 1), v,
                                  _mm512_srli_epi64(v, (unsigned)rest), 0xca);
    if (b != 6) /* 6 bytes are whole words */
        v = _mm512_shuffle_epi8(v, lane);
    v = _mm512_permutexvar_epi16(lanes, v);
    _mm512_mask_storeu_epi32(out, (__mmask16)((1 << 2 * b) - 1), v);
}

INLINE void qsgd_pack(unsigned bits, const int8_t *codes, unsigned char *out) {
    __m512i bytes = _mm512_loadu_si512(codes);
    switch (bits) {
    case 2: qsgd_store_2(out, bytes); break;
    case 4: qsgd_store_4(out, bytes); break;
    default: qsgd_store_odd(bits, out, bytes); break;
    }
}

/* Narrow codes index a table of their 16 or 4 values. vpermps uses only the low 4 bits of an index,
 * so for 2 bits the table repeats and the neighbouring code does no harm. */
INLINE void qsgd_decode_table(unsigned bits, const unsigned char *in, size_t n, float step,
                              float *y, int add) {
    const __m512 values =
        bits == 4 ? _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, -8, -7, -6, -5, -4, -3, -2, -1)
                  : _mm512_setr_ps(0, 1, -2, -1, 0, 1, -2, -1, 0, 1, -2, -1, 0, 1, -2, -1);
    const __m512 table = _mm512_mul_ps(values, _mm512_set1_ps(step));
    const __m512i shift = _mm512_mullo_epi32(
        _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15),
        _mm512_set1_epi32((int)bits)); /* vpsrlvd needs it below 32: the word index has the rest */
    const __m512i within = _mm512_and_si512(shift, _mm512_set1_epi32(31));
    const __m512i word = _mm512_srli_epi32(shift, 5);
    for (size_t i = 0; i < n; i += WIDTH) {
        const void *at = in + i * bits / 8;
        __m512i raw =
            bits == 4 ? _mm512_permutexvar_epi32(word, _mm512_castsi128_si512(_mm_loadl_epi64(at)))
                      : _mm512_set1_epi32((int)*(const gw_u32u *)at);
        vec_put(y + i, _mm512_permutexvar_ps(_mm512_srlv_epi32(raw, within), table), add);
    }
}

/* Constants to turn 16 codes of an odd width, or of 6 bits, into floats. */
typedef struct reader {
    __m512i from, last, shift;
    __m512 low, high, step; /* values of codes 0 to 15, and 16 to 31, modulo their number */
} reader;

INLINE reader qsgd_reader(unsigned bits, float step1) {
    const __m512i lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const __m512i bit = _mm512_mullo_epi32(lane, _mm512_set1_epi32((int)bits));
    const __m512i byte = _mm512_srli_epi32(bit, 3);
    const __m512i signs = _mm512_set1_epi32((int)(32 - bits));
    const __m512i value = _mm512_srav_epi32(_mm512_sllv_epi32(lane, signs), signs);
    const __m512 step = _mm512_set1_ps(step1);
    reader r = {.step = step};
    r.from = _mm512_add_epi32(_mm512_or_si512(byte, _mm512_slli_epi32(byte, 8)),
                              _mm512_set1_epi32((int)0x80800100u));
    r.last = _mm512_add_epi32(r.from, _mm512_set1_epi32((int)(0x0101 * (16 - 2 * bits))));
    r.shift = _mm512_and_si512(bit, _mm512_set1_epi32(7));
    r.low = _mm512_mul_ps(_mm512_cvtepi32_ps(value), step);
    r.high = _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_sub_epi32(lane, _mm512_set1_epi32(16))), step);
    return r;
}

/* A code lies within two bytes. A shuffle moves them into its dword, a shift moves the code down.
 * Codes of up to 5 bits then index the table of their values, which ignores the bits above. Wider
 * ones, with the sign bit inverted, become the last bits of a float 2^23 + 2^(bits-1) + code. */
INLINE __m512 qsgd_read_16(unsigned bits, reader r, const unsigned char *in, __m512i from) {
    const uint32_t sign = 1u << (bits - 1), magic = 0x4b000000;
    __m512i raw = _mm512_broadcast_i32x4(_mm_loadu_si128((const void *)in));
    raw = _mm512_srlv_epi32(_mm512_shuffle_epi8(raw, from), r.shift);
    if (bits < 5)
        return _mm512_permutexvar_ps(raw, r.low);
    if (bits == 5)
        return _mm512_permutex2var_ps(r.low, raw, r.high);
    raw = _mm512_ternarylogic_epi32(raw, _mm512_set1_epi32((int)(2 * sign - 1)),
                                    _mm512_set1_epi32((int)(magic | sign)), 0x6a); /* (a & b) ^ c */
    __m512 code = _mm512_sub_ps(_mm512_castsi512_ps(raw), _mm512_set1_ps(0x1p23f + (float)sign));
    return _mm512_mul_ps(code, r.step);
}

/* Each load reads 16 bytes for 2 * bits, so the last 16 codes of a block are read from the 16 bytes
 * that end with it. */
INLINE void qsgd_decode_odd(unsigned bits, const unsigned char *in, size_t n, float step, float *y,
                            int add) {
    const reader r = qsgd_reader(bits, step);
    for (size_t i = 0; i < n; i += GW_BLOCK) {
        const unsigned char *at = in + i * bits / 8;
        vec_put(y + i, qsgd_read_16(bits, r, at, r.from), add);
        vec_put(y + i + WIDTH, qsgd_read_16(bits, r, at + 2 * bits, r.from), add);
        vec_put(y + i + 2 * WIDTH, qsgd_read_16(bits, r, at + 4 * bits, r.from), add);
        vec_put(y + i + 3 * WIDTH, qsgd_read_16(bits, r, at + 8 * bits - 16, r.last), add);
    }
}

INLINE void qsgd_unpack(unsigned bits, const unsigned char *in, size_t n, float step, float *y,
                        int add) {
    if (bits == 2 || bits == 4)
        qsgd_decode_table(bits, in, n, step, y, add);
    else
        qsgd_decode_odd(bits, in, n, step, y, add);
}

/* ---- ternary's decoder: a table instead of arithmetic ---- */

#define TERNARY_DECODE

/* Values of a byte's trits: the upper two from its quotient by 27, the lower three from the
 * remainder. A lookup takes its index modulo the table's length. */
typedef struct ternary_values {
    vf upper[2], lower[3][2];
} ternary_values;

INLINE ternary_values ternary_values_of(float scale) {
    static const signed char upper[2][WIDTH] = {{-1, -1, -1, 0, 0, 0, 1, 1, 1},
                                                {-1, 0, 1, -1, 0, 1, -1, 0, 1}};
    static const signed char lower[3][2 * WIDTH] = {
        {-1, -1, -1, -1, -1, -1, -1, -1, -1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1},
        {-1, -1, -1, 0, 0, 0, 1, 1, 1, -1, -1, -1, 0, 0, 0, 1, 1, 1, -1, -1, -1, 0, 0, 0, 1, 1, 1},
        {-1, 0, 1, -1, 0, 1, -1, 0, 1, -1, 0, 1, -1, 0, 1, -1, 0, 1, -1, 0, 1, -1, 0, 1, -1, 0, 1}};
    ternary_values v;
    for (int r = 0; r < 2; r++)
        v.upper[r] = __builtin_convertvector(vec_widen(upper[r]), vf) * scale;
    for (int r = 0; r < 3; r++)
        for (int half = 0; half < 2; half++)
            v.lower[r][half] =
                __builtin_convertvector(vec_widen(lower[r] + half * WIDTH), vf) * scale;
    return v;
}

INLINE void ternary_decode_runs(const unsigned char *bytes, size_t run, float scale, float *y,
                                int add) {
    const ternary_values v = ternary_values_of(scale);
    for (size_t j = 0; j < run; j += WIDTH) {
        __m512i b = _mm512_cvtepu8_epi32(_mm_loadu_si128((const void *)(bytes + j)));
        __m512i quotient = _mm512_srli_epi32(_mm512_mullo_epi16(b, _mm512_set1_epi32(19)), 9);
        __m512i rest = _mm512_sub_epi32(b, _mm512_mullo_epi16(quotient, _mm512_set1_epi32(27)));
        float *to = y + j;
        for (size_t r = 0; r < GW_TERNARY_RUNS; r++) /* the next bucket: runs defeat prefetching */
            __builtin_prefetch(
                (const void *)((uintptr_t)to + (GW_TERNARY_RUNS + r) * run * sizeof *to), 1);
        for (int r = 0; r < 2; r++, to += run)
            vec_put(to, (vf)_mm512_permutexvar_ps(quotient, (__m512)v.upper[r]), add);
        for (int r = 0; r < 3; r++, to += run)
            vec_put(to,
                    (vf)_mm512_permutex2var_ps((__m512)v.lower[r][0], rest, (__m512)v.lower[r][1]),
                    add);
    }
}

#include "compress/kernel/loops.h"
#endif
