/* qsgd in plain C: the reference whose bytes the other levels repeat. */
#include "compress/kernel/qsgd.h"

#include <math.h>

enum { GROUP = 32, WORDS = 16 };

static uint32_t peak(const float *x, size_t n) {
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
    for (size_t i = 0; i < n; i += GROUP, ctr += WORDS) {
        unsigned code[GROUP];
        for (unsigned l = 0; l < WORDS; l++) {
            uint32_t word = gw_qsgd_word(seed, ctr + l);
            code[l] = (unsigned)round_up_or_down(x[i + l], inv, word & 0xffff) & mask;
            code[WORDS + l] = (unsigned)round_up_or_down(x[i + WORDS + l], inv, word >> 16) & mask;
        }
        for (unsigned e = 0; e < GROUP; e += per_byte) {
            unsigned packed = 0;
            for (unsigned k = 0; k < per_byte; k++)
                packed |= code[e + k] << (bits * k);
            *byte++ = (unsigned char)packed;
        }
    }
}

static inline float value(unsigned bits, const unsigned char *in, size_t i, float step) {
    unsigned at = (unsigned)(i * bits % 8), raw = (unsigned)in[i * bits / 8] >> at;
    int32_t code = (int32_t)(raw << (32 - bits)) >> (32 - bits); /* sign extension */
    return (float)code * step;
}

#define WIDTH(bits)                                                                                \
    static void quantize##bits(const float *x, size_t n, float inv, uint64_t seed, uint32_t ctr,   \
                               void *out) {                                                        \
        quantize(bits, x, n, inv, seed, ctr, out);                                                 \
    }                                                                                              \
    static void decode##bits(const void *in, size_t n, float step, float *y) {                     \
        for (size_t i = 0; i < n; i++)                                                             \
            y[i] = value(bits, in, i, step);                                                       \
    }                                                                                              \
    static void decode_add##bits(const void *in, size_t n, float step, float *y) {                 \
        for (size_t i = 0; i < n; i++)                                                             \
            y[i] += value(bits, in, i, step);                                                      \
    }

WIDTH(2)
WIDTH(4)
WIDTH(8)

const gw_qsgd_kernels gw_qsgd_portable[GW_QSGD_WIDTHS] = {
    {peak, quantize2, decode2, decode_add2},
    {peak, quantize4, decode4, decode_add4},
    {peak, quantize8, decode8, decode_add8},
};
