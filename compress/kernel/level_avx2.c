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

#include "compress/kernel/qsgd_avx2.h"

#include "compress/kernel/loops.h"
#endif
