/* The kernels in vectors of 16 lanes. */
#include "compress/kernel/simd.h"

#ifdef GW_X86
#include <immintrin.h>

#define TARGET          GW_TARGET_AVX512
#define WIDTH           16
#define GW_LEVEL(table) table##_avx512
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

#include "compress/kernel/qsgd_avx512.h"
#include "compress/kernel/ternary_avx512.h"

#include "compress/kernel/loops.h"
#endif
