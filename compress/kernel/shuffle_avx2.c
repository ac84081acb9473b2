/* Byte planes, 32 words a round. Each of the three steps of a split transposes a square: 4 x 4
 * bytes in each half of a register, 2 x 4 words over its halves, 4 x 4 quadwords over four
 * registers. A join reverses the steps. */
#include "compress/kernel/shuffle.h"

#ifdef GW_X86
#include <immintrin.h>

enum { LANES = 8, ROUND = 32, WORD = 4 };

/* Its own inverse. */
GW_TARGET_AVX2 static inline __m256i shuffle_bytes(__m256i v) {
    const __m256i at = _mm256_broadcastsi128_si256(
        _mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15));
    return _mm256_shuffle_epi8(v, at);
}

/* Also its own inverse. */
GW_TARGET_AVX2 static inline void shuffle_quadwords(__m256i v[4]) {
    __m256i a = _mm256_unpacklo_epi64(v[0], v[1]), b = _mm256_unpackhi_epi64(v[0], v[1]);
    __m256i c = _mm256_unpacklo_epi64(v[2], v[3]), d = _mm256_unpackhi_epi64(v[2], v[3]);
    v[0] = _mm256_permute2x128_si256(a, c, 0x20);
    v[1] = _mm256_permute2x128_si256(b, d, 0x20);
    v[2] = _mm256_permute2x128_si256(a, c, 0x31);
    v[3] = _mm256_permute2x128_si256(b, d, 0x31);
}

GW_TARGET_AVX2 static void shuffle_split(const void *from, size_t n, unsigned char *planes,
                                         size_t stride) {
    const char *x = from;
    const __m256i words = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    for (size_t i = 0; i < n; i += ROUND) {
        __m256i v[GW_PLANES];
        for (size_t k = 0; k < GW_PLANES; k++) {
            __m256i w = _mm256_loadu_si256((const void *)(x + WORD * (i + LANES * k)));
            v[k] = _mm256_permutevar8x32_epi32(shuffle_bytes(w), words);
        }
        shuffle_quadwords(v);
        for (size_t p = 0; p < GW_PLANES; p++)
            _mm256_storeu_si256((__m256i *)(void *)(planes + p * stride + i), v[p]);
    }
}

/* Words i to i + 31. */
GW_TARGET_AVX2 static inline void shuffle_joined(const unsigned char *planes, size_t stride,
                                                 size_t i, __m256 out[4]) {
    const __m256i words = _mm256_setr_epi32(0, 2, 4, 6, 1, 3, 5, 7);
    __m256i v[GW_PLANES];
    for (size_t p = 0; p < GW_PLANES; p++)
        v[p] = _mm256_loadu_si256((const __m256i *)(const void *)(planes + p * stride + i));
    shuffle_quadwords(v);
    for (size_t k = 0; k < GW_PLANES; k++)
        out[k] = _mm256_castsi256_ps(shuffle_bytes(_mm256_permutevar8x32_epi32(v[k], words)));
}

GW_TARGET_AVX2 static void shuffle_join(const unsigned char *planes, size_t stride, size_t n,
                                        void *to) {
    char *y = to;
    for (size_t i = 0; i < n; i += ROUND) {
        __m256 v[GW_PLANES];
        shuffle_joined(planes, stride, i, v);
        for (size_t k = 0; k < GW_PLANES; k++)
            _mm256_storeu_ps((void *)(y + WORD * (i + LANES * k)), v[k]);
    }
}

GW_TARGET_AVX2 static void shuffle_join_add(const unsigned char *planes, size_t stride, size_t n,
                                            float *y) {
    for (size_t i = 0; i < n; i += ROUND) {
        __m256 v[GW_PLANES];
        shuffle_joined(planes, stride, i, v);
        for (size_t k = 0; k < GW_PLANES; k++) {
            float *to = y + i + LANES * k;
            _mm256_storeu_ps(to, _mm256_add_ps(_mm256_loadu_ps(to), v[k]));
        }
    }
}

const gw_shuffle_kernels gw_shuffle_avx2 = {shuffle_split, shuffle_join, shuffle_join_add};
#endif
