/* qsgd in plain C: the reference whose bytes the other levels repeat. */
#include "compress/kernel/qsgd.h"

#include <math.h>

enum { LANES = 16 };

static inline uint32_t peak(const float *x, size_t n) {
    uint32_t top = 0;
    for (size_t i = 0; i < n; i++) {
        uint32_t mag = gw_float_bits(x[i]) & 0x7fffffff;
        top = mag > top ? mag : top;
    }
    return top;
}

/* x * inv lies within 127 * 2^16, so the conversion and the sum fit 32 bits; the shift of a
 * negative number is arithmetic with every compiler that this project takes. */
static inline int round_up_or_down(float x, float inv, uint32_t random) {
    return ((int32_t)lrintf(x * inv) + (int32_t)random) >> 16;
}

static inline void quantize(unsigned bits, const float *x, size_t n, float inv, uint64_t seed,
                            uint32_t ctr, void *out) {
    unsigned char *byte = out;
    const unsigned mask = (1u << bits) - 1, per_byte = 8 / bits;
    for (size_t i = 0; i < n; i += GW_BLOCK, ctr += LANES) {
        uint32_t random[GW_BLOCK];
        for (unsigned l = 0; l < LANES; l++) {
            uint32_t h = gw_qsgd_mix(seed, ctr + l);
            uint32_t r = h * GW_QSGD_MUL2, s = (h << 16 | h >> 16) * GW_QSGD_MUL3;
            random[l] = r & 0xffff;
            random[LANES + l] = r >> 16;
            random[2 * LANES + l] = s & 0xffff;
            random[3 * LANES + l] = s >> 16;
        }
        for (unsigned e = 0; e < GW_BLOCK; e += per_byte) {
            unsigned packed = 0;
            for (unsigned k = 0; k < per_byte; k++) {
                int code = round_up_or_down(x[i + e + k], inv, random[e + k]);
                packed |= ((unsigned)code & mask) << (bits * k);
            }
            *byte++ = (unsigned char)packed;
        }
    }
}

static inline void decode(unsigned bits, const void *in, size_t n, float step, float *y, int add) {
    const unsigned char *byte = in;
    for (size_t i = 0; i < n; i++) {
        unsigned at = (unsigned)(i * bits % 8), raw = (unsigned)byte[i * bits / 8] >> at;
        int32_t code = (int32_t)(raw << (32 - bits)) >> (32 - bits); /* sign extension */
        float value = (float)code * step;
        y[i] = add ? y[i] + value : value;
    }
}

#define TARGET
#include "compress/kernel/qsgd_loop.h"
GW_QSGD_TABLE(portable);
