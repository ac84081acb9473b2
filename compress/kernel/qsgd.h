/** Kernels of the qsgd codec: bucket magnitude, stochastic rounding with bit packing, unpacking. */
#ifndef GW_COMPRESS_KERNEL_QSGD_H
#define GW_COMPRESS_KERNEL_QSGD_H

#include "compress/kernel/simd.h"

/* Randomness. Within a bucket that has the 64-bit seed s, group g of 32 elements takes 16 words of
 * 32 bits: word l is gw_qsgd_word(s, 16 g + l), its low half rounds element 32 g + l, its high half
 * element 32 g + 16 + l. The mixer is lowbias32 (C. Wellons, "Prospecting for Hash Functions",
 * 2018) on a Weyl sequence that starts at the seed's low half; its high half enters midway. */
#define GW_QSGD_WEYL 0x9e3779b1u
#define GW_QSGD_MUL1 0x7feb352du
#define GW_QSGD_MUL2 0x846ca68bu

static inline uint32_t gw_qsgd_word(uint64_t seed, uint32_t ctr) {
    uint32_t h = (uint32_t)seed + ctr * GW_QSGD_WEYL;
    h = (h ^ h >> 16) * GW_QSGD_MUL1;
    h = (h ^ h >> 15 ^ (uint32_t)(seed >> 32)) * GW_QSGD_MUL2;
    return h ^ h >> 16;
}

/** Work on n floats of one bucket, n a multiple of GW_BLOCK. */
typedef struct gw_qsgd_kernels {
    /** Largest bit pattern of |x[i]|: that of max |x[i]|, at least 0x7f800000 on Inf or NaN. */
    uint32_t (*peak)(const float *x, size_t n);
    /** code[i] = floor(rint(x[i] * inv) / 2^16 + u), u the 16 random bits of element 2 * ctr + i
     *  (ctr: words of randomness already used); packed into n * bits / 8 bytes. */
    void (*quantize)(const float *x, size_t n, float inv, uint64_t seed, uint32_t ctr, void *out);
    /** y[i] = code[i] * step, or y[i] += code[i] * step. */
    void (*decode)(const void *in, size_t n, float step, float *y);
    void (*decode_add)(const void *in, size_t n, float step, float *y);
} gw_qsgd_kernels;

enum { GW_QSGD_WIDTHS = 3 }; /* 2, 4, 8 bits, in this order */

extern const gw_qsgd_kernels gw_qsgd_portable[GW_QSGD_WIDTHS];
#ifdef GW_X86
extern const gw_qsgd_kernels gw_qsgd_avx2[GW_QSGD_WIDTHS], gw_qsgd_avx512[GW_QSGD_WIDTHS];
#endif

#endif
