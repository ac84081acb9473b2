/* ternary in plain C: the reference; the other levels give the same bytes. */
#include "compress/kernel/ternary.h"

#include "compress/kernel/chance_portable.h"

#include <math.h>

/* x * inv lies within 2^16, so the conversion and the sum fit in 32 bits; every supported
 * compiler shifts a negative number arithmetically. */
static inline void ternary_quantize(const float *x, size_t n, float inv, uint64_t seed,
                                    uint32_t ctr, int8_t *codes) {
    for (size_t i = 0; i < n; i += GW_BLOCK, ctr += GW_CHANCE_LANES) {
        uint32_t word[GW_BLOCK];
        chance_draw(seed, ctr, word);
        for (size_t l = 0; l < GW_BLOCK; l++) {
            int32_t fixed = (int32_t)lrintf(x[i + l] * inv);
            codes[i + l] = (int8_t)((fixed + (int32_t)(word[l] >> 16)) >> 16);
        }
    }
}

static inline void ternary_pack(const int8_t *codes, size_t run, unsigned char *bytes) {
    gw_ternary_pack(codes, run, bytes);
}

static inline void ternary_decode(const unsigned char *bytes, size_t run, float scale, float *y,
                                  int add) {
    int8_t codes[GW_TERNARY_MOST];
    gw_ternary_unpack(bytes, run, codes);
    for (size_t i = 0; i < GW_TERNARY_RUNS * run; i++) {
        float value = (float)codes[i] * scale;
        y[i] = add ? y[i] + value : value;
    }
}

#define TARGET
#include "compress/kernel/ternary_loop.h"
GW_TERNARY_TABLE(portable);
