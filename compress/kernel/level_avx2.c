/* The kernels in vectors of 8 lanes. */
#include "compress/kernel/simd.h"

#ifdef GW_X86
#include <immintrin.h>

#define TARGET          GW_TARGET_AVX2
#define WIDTH           8
#define GW_LEVEL(table) table##_avx2
#include "compress/kernel/vec.h"

INLINE vu vec_min(vu a, vu b) {
    return (vu)_mm256_min_epu32((__m256i)a, (__m256i)b);
}

INLINE vu vec_max(vu a, vu b) {
    return (vu)_mm256_max_epu32((__m256i)a, (__m256i)b);
}

INLINE vu vec_reaching(vu a, uint32_t least) {
    return a & (vu)((vi)a > (vi)vec_all(least - 1));
}

INLINE vu vec_if_nan(vf v, vu a, vu b) {
    return (vu)_mm256_blendv_epi8((__m256i)b, (__m256i)a, (__m256i)(v != v));
}

INLINE vi vec_round(vf v) {
    return (vi)_mm256_cvtps_epi32((__m256)v);
}

INLINE vi vec_widen(const void *bytes) {
    return (vi)_mm256_cvtepi8_epi32(_mm_loadl_epi64(bytes));
}

INLINE vu vec_widen_halves(const void *halves) {
    return (vu)_mm256_cvtepu16_epi32(_mm_loadu_si128(halves));
}

INLINE vh vec_upper(vu a, vu b) {
    return (vh)_mm256_packs_epi32((__m256i)((vi)a >> 16), (__m256i)((vi)b >> 16));
}

/* 32 halves to bytes in order: all packing works within 128 bits. */
INLINE __m256i vec_packed(vh a, vh b) {
    const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    return _mm256_permutevar8x32_epi32(_mm256_packs_epi16((__m256i)a, (__m256i)b), order);
}

INLINE void vec_pack(void *out, const vh *halves) {
    __m256i *to = out;
    _mm256_storeu_si256(to, vec_packed(halves[0], halves[1]));
    _mm256_storeu_si256(to + 1, vec_packed(halves[2], halves[3]));
}

INLINE void vec_put_upper(void *out, vu a, vu b) {
    _mm256_storeu_si256(out, _mm256_permute4x64_epi64((__m256i)vec_upper(a, b), 0xd8));
}

INLINE uint32_t vec_signs(const vu *v) {
    vh low = (vh)_mm256_packs_epi32((__m256i)v[0], (__m256i)v[1]);
    vh high = (vh)_mm256_packs_epi32((__m256i)v[2], (__m256i)v[3]);
    return (uint32_t)_mm256_movemask_epi8(vec_packed(low, high));
}

INLINE void vec_put_fp16(void *out, vf v) {
    _mm_storeu_si128(out, _mm256_cvtps_ph((__m256)v, _MM_FROUND_TO_NEAREST_INT));
}

INLINE vf vec_fp16(const void *in) {
    return (vf)_mm256_cvtph_ps(_mm_loadu_si128(in));
}

/* ---- codes narrower than 8 bits ---- */

/* Store the low `bytes` (even, below 16) of v. */
INLINE void qsgd_put_bytes(unsigned bytes, unsigned char *out, __m128i v) {
    if (bytes & 8) {
        _mm_storel_epi64((__m128i *)(void *)out, v);
        v = _mm_srli_si128(v, 8);
        out += 8;
    }
    if (bytes & 4) {
        *(gw_u32u *)(void *)out = (uint32_t)_mm_cvtsi128_si32(v);
        v = _mm_srli_si128(v, 4);
        out += 4;
    }
    if (bytes & 2)
        *(gw_u16u *)(void *)out = (uint16_t)_mm_cvtsi128_si32(v);
}

/* Merge fields: pairs into 16 bits, fours into 32, eights into 64, which are whole bytes; then join
 * two such words. */
INLINE void qsgd_store_narrow(unsigned bits, unsigned char *out, __m256i low) {
    const int rest = (int)(32 - 4 * bits);
    const __m256i even = _mm256_setr_epi32(rest, 0, rest, 0, rest, 0, rest, 0);
#define FROM(k) (char)(k < bits ? k : k < 2 * bits ? k + 8 - bits : 0x80)
    const __m256i together = _mm256_broadcastsi128_si256(_mm_setr_epi8(
        FROM(0), FROM(1), FROM(2), FROM(3), FROM(4), FROM(5), FROM(6), FROM(7), FROM(8), FROM(9),
        FROM(10), FROM(11), FROM(12), FROM(13), FROM(14), FROM(15)));
#undef FROM
    __m256i v = _mm256_maddubs_epi16(_mm256_set1_epi16((short)(1 << bits << 8 | 1)), low);
    v = _mm256_madd_epi16(v, _mm256_set1_epi32(1 << 2 * bits << 16 | 1));
    v = _mm256_srli_epi64(_mm256_sllv_epi32(v, even), rest);
    v = _mm256_shuffle_epi8(v, together);
    qsgd_put_bytes(2 * bits, out, _mm256_castsi256_si128(v));
    qsgd_put_bytes(2 * bits, out + 2 * bits, _mm256_extracti128_si256(v, 1));
}

INLINE void qsgd_pack_half(unsigned bits, const int8_t *codes, unsigned char *out) {
    __m256i bytes = _mm256_loadu_si256((const __m256i *)(const void *)codes);
    __m256i low = _mm256_and_si256(bytes, _mm256_set1_epi8((char)((1 << bits) - 1)));
    if (bits == 4) { /* pairs: first + 16 * second */
        __m256i pairs = _mm256_maddubs_epi16(low, _mm256_set1_epi16(0x1001));
        __m256i pack = _mm256_permute4x64_epi64(_mm256_packus_epi16(pairs, pairs), 0x08);
        _mm_storeu_si128((__m128i *)(void *)out, _mm256_castsi256_si128(pack));
        return;
    }
    qsgd_store_narrow(bits, out, low);
}

INLINE void qsgd_pack(unsigned bits, const int8_t *codes, unsigned char *out) {
    qsgd_pack_half(bits, codes, out);
    qsgd_pack_half(bits, codes + GW_BLOCK / 2, out + bits * GW_BLOCK / 16);
}

/* Eight codes, sign-extended: narrow ones shift up to the sign bit and down again. */
INLINE __m256i qsgd_load_whole(unsigned bits, const unsigned char *at) {
    const int b = (int)bits;
    const void *word = at;
    int raw = b == 4 ? (int)*(const gw_u32u *)word : (int)*(const gw_u16u *)word;
    const __m256i up = _mm256_setr_epi32(32 - b, 32 - 2 * b, 32 - 3 * b, 32 - 4 * b, 32 - 5 * b,
                                         32 - 6 * b, 32 - 7 * b, 32 - 8 * b);
    return _mm256_srai_epi32(_mm256_sllv_epi32(_mm256_set1_epi32(raw), up), 32 - b);
}

/* The same for codes that cross bytes: each lies in two of the 8 at `at`, the first `skip` bytes
 * on; a shuffle moves these into the upper half of a dword. */
INLINE __m256i qsgd_load_odd(unsigned bits, const unsigned char *at, int skip) {
    const int b = (int)bits;
#define FROM(k) -1, -1, (char)(k * b / 8 + skip), (char)(k * b / 8 + skip + 1)
#define UP(k)   (16 - b - k * b % 8)
    const __m256i from =
        _mm256_setr_epi8(FROM(0), FROM(1), FROM(2), FROM(3), FROM(4), FROM(5), FROM(6), FROM(7));
    const __m256i up = _mm256_setr_epi32(UP(0), UP(1), UP(2), UP(3), UP(4), UP(5), UP(6), UP(7));
#undef FROM
#undef UP
    __m256i raw = _mm256_broadcastsi128_si256(_mm_loadl_epi64((const void *)at));
    raw = _mm256_sllv_epi32(_mm256_shuffle_epi8(raw, from), up);
    return _mm256_srai_epi32(raw, 32 - b);
}

/* Reads the last codes of a block from the 8 bytes that end with it. */
INLINE __m256i qsgd_load_codes(unsigned bits, const unsigned char *block, unsigned i) {
    const unsigned char *at = block + i * bits / 8;
    if (8 % bits == 0)
        return qsgd_load_whole(bits, at);
    int skip = i == GW_BLOCK - WIDTH ? 8 - (int)bits : 0;
    return qsgd_load_odd(bits, at - skip, skip);
}

INLINE void qsgd_unpack(unsigned bits, const unsigned char *in, size_t n, float step, float *y,
                        int add) {
    for (; n; n -= GW_BLOCK, y += GW_BLOCK, in += bits * GW_BLOCK / 8)
        for (unsigned i = 0; i < GW_BLOCK; i += WIDTH) {
            vi code = (vi)qsgd_load_codes(bits, in, i);
            vec_put(y + i, __builtin_convertvector(code, vf) * step, add);
        }
}

#include "compress/kernel/loops.h"
#endif
