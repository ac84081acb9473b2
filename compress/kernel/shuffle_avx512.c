/* Byte planes, 64 words a round. Each of the three steps of a split transposes a 4 x 4 square:
 * bytes in each quarter of a register, words over its quarters, quarters over four registers. A
 * join reverses the steps. */
#include "compress/kernel/shuffle.h"

#ifdef GW_X86
#include <immintrin.h>

enum { LANES = 16, ROUND = 64, WORD = 4 };

/* All three are their own inverses. */
GW_TARGET_AVX512 static inline __m512i shuffle_bytes(__m512i v) {
    const __m512i at =
        _mm512_broadcast_i32x4(_mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15));
    return _mm512_shuffle_epi8(v, at);
}

GW_TARGET_AVX512 static inline __m512i shuffle_words(__m512i v) {
    const __m512i at = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    return _mm512_permutexvar_epi32(at, v);
}

GW_TARGET_AVX512 static inline void shuffle_quarters(__m512i v[4]) {
    __m512i a = _mm512_shuffle_i32x4(v[0], v[1], 0x88), b = _mm512_shuffle_i32x4(v[2], v[3], 0x88);
    __m512i c = _mm512_shuffle_i32x4(v[0], v[1], 0xdd), d = _mm512_shuffle_i32x4(v[2], v[3], 0xdd);
    v[0] = _mm512_shuffle_i32x4(a, b, 0x88);
    v[1] = _mm512_shuffle_i32x4(c, d, 0x88);
    v[2] = _mm512_shuffle_i32x4(a, b, 0xdd);
    v[3] = _mm512_shuffle_i32x4(c, d, 0xdd);
}

GW_TARGET_AVX512 static void shuffle_split(const void *from, size_t n, unsigned char *planes,
                                           size_t stride) {
    const char *x = from;
    for (size_t i = 0; i < n; i += ROUND) {
        __m512i v[GW_PLANES];
        for (size_t k = 0; k < GW_PLANES; k++)
            v[k] = shuffle_words(shuffle_bytes(_mm512_loadu_si512(x + WORD * (i + LANES * k))));
        shuffle_quarters(v);
        for (size_t p = 0; p < GW_PLANES; p++)
            _mm512_storeu_si512(planes + p * stride + i, v[p]);
    }
}

/* Words i to i + 63. */
GW_TARGET_AVX512 static inline void shuffle_joined(const unsigned char *planes, size_t stride,
                                                   size_t i, __m512 out[4]) {
    __m512i v[GW_PLANES];
    for (size_t p = 0; p < GW_PLANES; p++)
        v[p] = _mm512_loadu_si512(planes + p * stride + i);
    shuffle_quarters(v);
    for (size_t k = 0; k < GW_PLANES; k++)
        out[k] = _mm512_castsi512_ps(shuffle_bytes(shuffle_words(v[k])));
}

GW_TARGET_AVX512 static void shuffle_join(const unsigned char *planes, size_t stride, size_t n,
                                          void *to) {
    char *y = to;
    for (size_t i = 0; i < n; i += ROUND) {
        __m512 v[GW_PLANES];
        shuffle_joined(planes, stride, i, v);
        for (size_t k = 0; k < GW_PLANES; k++)
            _mm512_storeu_ps(y + WORD * (i + LANES * k), v[k]);
    }
}

GW_TARGET_AVX512 static void shuffle_join_add(const unsigned char *planes, size_t stride, size_t n,
                                              float *y) {
    for (size_t i = 0; i < n; i += ROUND) {
        __m512 v[GW_PLANES];
        shuffle_joined(planes, stride, i, v);
        for (size_t k = 0; k < GW_PLANES; k++) {
            float *to = y + i + LANES * k;
            _mm512_storeu_ps(to, _mm512_add_ps(_mm512_loadu_ps(to), v[k]));
        }
    }
}

const gw_shuffle_kernels gw_shuffle_avx512 = {shuffle_split, shuffle_join, shuffle_join_add};
#endif
