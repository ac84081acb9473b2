/* Picking with the AVX-512 of its first CPUs: 64 elements to a word of one bit an element. */
#include "compress/kernel/pick.h"

#ifdef GW_X86
#define TARGET __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,bmi,popcnt")))
#include "compress/kernel/pick_avx512.h"

TARGET static inline void pick_spread_many(uint64_t word, uint32_t first, uint32_t *at) {
    const __m512i step = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    for (unsigned v = 0; v < GW_BLOCK / LANES; v++) {
        __mmask16 m = (__mmask16)(word >> v * LANES);
        __m512i place = _mm512_add_epi32(_mm512_set1_epi32((int)(first + v * LANES)), step);
        _mm512_storeu_si512(at, _mm512_maskz_compress_epi32(m, place));
        at += _mm_popcnt_u32(m);
    }
}

#include "compress/kernel/pick_few.h"
#include "compress/kernel/pick_loop.h"

const gw_pick_kernels gw_pick_avx512 = {pick_span, pick_add_span, pick_count, pick_filter};
#endif
