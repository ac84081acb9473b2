/* qsgd in plain C: the reference; the other levels give the same bytes. */
#include "compress/kernel/peak_portable.h"
#include "compress/kernel/qsgd.h"

#include <math.h>

enum { LANES = 16, OCTET = 8 }; /* 8 codes of b bits are b bytes */

/* x * inv lies within 127 * 2^16, so the conversion and the sum fit in 32 bits; every
 * supported compiler shifts a negative number arithmetically. */
static inline int qsgd_round(float x, float inv, uint32_t random) {
    return ((int32_t)lrintf(x * inv) + (int32_t)random) >> 16;
}

static inline void qsgd_draw(uint32_t *random, uint64_t seed, uint32_t ctr) {
    for (unsigned l = 0; l < LANES; l++) {
        uint32_t h = gw_qsgd_mix(seed, ctr + l);
        uint32_t r = h * GW_QSGD_MUL2, s = (h << 16 | h >> 16) * GW_QSGD_MUL3;
        random[l] = r & 0xffff;
        random[LANES + l] = r >> 16;
        random[2 * LANES + l] = s & 0xffff;
        random[3 * LANES + l] = s >> 16;
    }
}

static inline bool qsgd_quantize(unsigned bits, int look, const float *x, size_t n, float inv,
                                 uint64_t seed, uint32_t ctr, void *out, const float *next,
                                 uint32_t *top) {
    unsigned char *byte = out;
    const uint64_t mask = (1u << bits) - 1;
    for (size_t i = 0; i < n; i += GW_BLOCK, ctr += LANES) {
        uint32_t random[GW_BLOCK];
        qsgd_draw(random, seed, ctr);
        for (unsigned e = 0; e < GW_BLOCK; e += OCTET) {
            uint64_t packed = 0;
            for (unsigned k = 0; k < OCTET; k++) {
                int code = qsgd_round(x[i + e + k], inv, random[e + k]);
                packed |= ((uint64_t)code & mask) << (bits * k);
            }
            for (unsigned k = 0; k < bits; k++)
                *byte++ = (unsigned char)(packed >> 8 * k);
        }
    }
    if (look)
        *top = peak_of(next, n);
    return false;
}

static inline void qsgd_decode(unsigned bits, const void *in, size_t n, float step, float *y,
                               int add) {
    const unsigned char *byte = in;
    for (size_t i = 0; i < n; i += OCTET, byte += bits) {
        uint64_t packed = 0;
        for (unsigned k = 0; k < bits; k++)
            packed |= (uint64_t)byte[k] << 8 * k;
        for (unsigned k = 0; k < OCTET; k++) {
            uint32_t raw = (uint32_t)(packed >> bits * k);
            int32_t code = (int32_t)(raw << (32 - bits)) >> (32 - bits); /* sign extension */
            float value = (float)code * step;
            y[i + k] = add ? y[i + k] + value : value;
        }
    }
}

#define TARGET
#include "compress/kernel/qsgd_loop.h"
GW_QSGD_LEVEL(portable);
