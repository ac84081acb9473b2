/* Shared by the two AVX-512 variants of picking; needs TARGET. */
#include <immintrin.h>

enum { LANES = 16 };
typedef __m512i limit;

TARGET static inline limit pick_limit(uint32_t least) {
    return _mm512_set1_epi32((int)least);
}

TARGET static inline __mmask16 pick_above16(__m512 v, limit least) {
    const __m512i magnitude = _mm512_set1_epi32((int)GW_MAGNITUDE);
    return _mm512_cmpge_epu32_mask(_mm512_and_si512(_mm512_castps_si512(v), magnitude), least);
}

TARGET static inline uint64_t pick_join(const __mmask16 m[GW_BLOCK / LANES]) {
    return _mm512_kunpackd(_mm512_kunpackw(m[3], m[2]), _mm512_kunpackw(m[1], m[0]));
}

TARGET static inline uint64_t pick_above(const float *x, limit least) {
    __mmask16 m[GW_BLOCK / LANES];
    for (unsigned v = 0; v < GW_BLOCK / LANES; v++)
        m[v] = pick_above16(_mm512_loadu_ps(x + v * LANES), least);
    return pick_join(m);
}

TARGET static inline uint64_t pick_add_above(const float *x, float *e, limit least) {
    __mmask16 m[GW_BLOCK / LANES];
    for (unsigned v = 0; v < GW_BLOCK / LANES; v++) {
        __m512 sum = _mm512_add_ps(_mm512_loadu_ps(e + v * LANES), _mm512_loadu_ps(x + v * LANES));
        _mm512_storeu_ps(e + v * LANES, sum);
        m[v] = pick_above16(sum, least);
    }
    return pick_join(m);
}

/* The first `rest` lanes, if they are fewer than all. */
TARGET static inline __mmask16 pick_lanes(size_t rest) {
    return rest < LANES ? (__mmask16)((1u << rest) - 1) : (__mmask16)0xffff;
}

TARGET static size_t pick_count(const uint32_t *bits, size_t n, uint32_t least) {
    const limit lim = pick_limit(least);
    const __m512i one = _mm512_set1_epi32(1);
    __m512i sum = _mm512_setzero_si512(), more = _mm512_setzero_si512();
    size_t i = 0;
    for (; i + 2 * LANES <= n; i += 2 * LANES) {
        __mmask16 m = pick_above16(_mm512_loadu_ps(bits + i), lim);
        sum = _mm512_mask_add_epi32(sum, m, sum, one);
        m = pick_above16(_mm512_loadu_ps(bits + i + LANES), lim);
        more = _mm512_mask_add_epi32(more, m, more, one);
    }
    for (; i < n; i += LANES) {
        __mmask16 here = pick_lanes(n - i);
        __mmask16 m = pick_above16(_mm512_maskz_loadu_ps(here, bits + i), lim) & here;
        sum = _mm512_mask_add_epi32(sum, m, sum, one);
    }
    return (uint32_t)_mm512_reduce_add_epi32(_mm512_add_epi32(sum, more));
}

/* Writes never overtake reads. */
TARGET static size_t pick_filter(uint32_t *at, uint32_t *bits, size_t n, uint32_t least) {
    const limit lim = pick_limit(least);
    size_t found = 0;
    for (size_t i = 0; i < n; i += LANES) {
        __mmask16 here = pick_lanes(n - i);
        __m512i v = _mm512_maskz_loadu_epi32(here, bits + i);
        __m512i place = _mm512_maskz_loadu_epi32(here, at + i);
        __mmask16 keep = pick_above16(_mm512_castsi512_ps(v), lim) & here;
        _mm512_mask_storeu_epi32(bits + found, here, _mm512_maskz_compress_epi32(keep, v));
        _mm512_mask_storeu_epi32(at + found, here, _mm512_maskz_compress_epi32(keep, place));
        found += (size_t)_mm_popcnt_u32(keep);
    }
    return found;
}
