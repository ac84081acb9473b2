/* ternary's decoder with AVX-512: a table instead of arithmetic. */
#include "compress/kernel/ternary.h"

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
