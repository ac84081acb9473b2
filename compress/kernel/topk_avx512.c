/* topk, 16 elements at a time: their positions, compressed to the front of a register, are stored
 * whole, and the next store begins behind those that count. No branch depends on the data. (The
 * compressing store is microcode on some CPUs; a compression in registers is not.) */
#include "compress/kernel/topk.h"

#ifdef GW_X86
#include <immintrin.h>

enum { LANES = 16 };

GW_TARGET_AVX512 size_t gw_topk_pick_avx512(const float *x, size_t n, uint32_t least,
                                            uint32_t first, uint32_t *at) {
    const __m512i magnitude = _mm512_set1_epi32((int)GW_TOPK_MAGNITUDE);
    const __m512i limit = _mm512_set1_epi32((int)least), lanes = _mm512_set1_epi32(LANES);
    __m512i position =
        _mm512_add_epi32(_mm512_set1_epi32((int)first),
                         _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15));
    size_t found = 0;
    for (size_t i = 0; i < n; i += LANES) {
        __m512i m = _mm512_and_si512(_mm512_loadu_si512(x + i), magnitude);
        __mmask16 take = _mm512_cmpge_epu32_mask(m, limit);
        _mm512_storeu_si512(at + found, _mm512_maskz_compress_epi32(take, position));
        found += (size_t)__builtin_popcount(take);
        position = _mm512_add_epi32(position, lanes);
    }
    return found;
}
#endif
