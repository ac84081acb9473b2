/* Picking with AVX2: 64 elements to a word of one bit an element. */
#include "compress/kernel/pick.h"

#ifdef GW_X86
#define TARGET __attribute__((target("avx2,bmi,popcnt")))
#include <immintrin.h>

enum { LANES = 8 };
typedef __m256i limit;

/* Magnitudes are not negative, so a signed comparison with least - 1 orders them; at the limits of
 * `least`, 0 and 2^31, it accepts all and none, as it should. */
TARGET static inline limit pick_limit(uint32_t least) {
    return _mm256_set1_epi32((int)(least - 1));
}

TARGET static inline uint64_t pick_above8(__m256 v, limit below) {
    const __m256i magnitude = _mm256_set1_epi32((int)GW_MAGNITUDE);
    __m256i m = _mm256_and_si256(_mm256_castps_si256(v), magnitude);
    return (unsigned)_mm256_movemask_ps(_mm256_castsi256_ps(_mm256_cmpgt_epi32(m, below)));
}

TARGET static inline uint64_t pick_above(const float *x, limit below) {
    uint64_t word = 0;
    for (unsigned v = 0; v < GW_BLOCK; v += LANES)
        word |= pick_above8(_mm256_loadu_ps(x + v), below) << v;
    return word;
}

TARGET static inline uint64_t pick_add_above(const float *x, float *e, limit below) {
    uint64_t word = 0;
    for (unsigned v = 0; v < GW_BLOCK; v += LANES) {
        __m256 sum = _mm256_add_ps(_mm256_loadu_ps(e + v), _mm256_loadu_ps(x + v));
        _mm256_storeu_ps(e + v, sum);
        word |= pick_above8(sum, below) << v;
    }
    return word;
}

TARGET static inline void pick_spread_many(uint64_t word, uint32_t first, uint32_t *at) {
    for (; word; word = _blsr_u64(word))
        *at++ = first + (uint32_t)_tzcnt_u64(word);
}

#include "compress/kernel/pick_few.h"
#include "compress/kernel/pick_loop.h"

TARGET static size_t pick_count(const uint32_t *bits, size_t n, uint32_t least) {
    const limit below = pick_limit(least);
    const __m256i magnitude = _mm256_set1_epi32((int)GW_MAGNITUDE);
    __m256i sum = _mm256_setzero_si256();
    size_t i = 0, found = 0;
    for (; i + LANES <= n; i += LANES) {
        __m256i m = _mm256_loadu_si256((const __m256i *)(const void *)(bits + i));
        m = _mm256_cmpgt_epi32(_mm256_and_si256(m, magnitude), below);
        sum = _mm256_sub_epi32(sum, m);
    }
    uint32_t lane[LANES];
    _mm256_storeu_si256((__m256i *)(void *)lane, sum);
    for (unsigned v = 0; v < LANES; v++)
        found += lane[v];
    for (; i < n; i++)
        found += gw_magnitude(bits[i]) >= least;
    return found;
}

const gw_pick_kernels gw_pick_avx2 = {pick_span, pick_add_span, pick_count, gw_pick_filter};
#endif
