/** Kernels of the codecs that round stochastically on a max-norm scale (qsgd, int8sum): a bucket's
 *  magnitude, rounding, packing, unpacking. */
#ifndef GW_COMPRESS_KERNEL_QSGD_H
#define GW_COMPRESS_KERNEL_QSGD_H

#include "compress/kernel/bucket.h"

/* Randomness. Block b of 64 elements of a bucket with the 64-bit seed s has 16 lanes; lane l draws
 * two words of 32 bits from h = gw_qsgd_mix(s, 16 b + l):
 *   h * MUL2              its low half rounds element l of the block, its high half 16 + l,
 *   rotl(h, 16) * MUL3    likewise elements 32 + l and 48 + l.
 * gw_qsgd_mix is a round of lowbias32 (C. Wellons, "Prospecting for Hash Functions", 2018) on a
 * Weyl sequence from the seed's low half; the seed's high half enters behind it. MUL3 is a
 * multiplier of G. Steele and S. Vigna ("Computationally easy, spectrally good multipliers for
 * congruential pseudorandom number generators", 2021). Over 200,000 seeds no pair of the 64 x 4
 * elements tried shows a correlation; with one round fewer some do. */
#define GW_QSGD_WEYL 0x9e3779b1u
#define GW_QSGD_MUL1 0x7feb352du
#define GW_QSGD_MUL2 0x846ca68bu
#define GW_QSGD_MUL3 0x93d765ddu

static inline uint32_t gw_qsgd_mix(uint64_t seed, uint32_t ctr) {
    uint32_t h = (uint32_t)seed + ctr * GW_QSGD_WEYL;
    h = (h ^ h >> 16) * GW_QSGD_MUL1;
    return h ^ h >> 15 ^ (uint32_t)(seed >> 32);
}

/* The bit pattern of the largest scale sent, one step below the largest float: with that one,
 * levels * (scale / levels) would overflow. */
#define GW_QSGD_MOST 0x7f7ffffeu

enum { GW_QSGD_NARROWEST = 2, GW_QSGD_WIDEST = 8 };

/** All widths on one instruction set. A scale of Inf or NaN decodes to NaN. Narrow codes packed by
 *  hand encode 2.4 (AVX2) and 6 times (AVX-512) as fast, unpacked by hand they decode 2.2 and 1.4
 *  times as fast. */
typedef struct gw_qsgd_level {
    gw_bucket_kernels
        width[GW_QSGD_WIDEST - GW_QSGD_NARROWEST + 1]; /* [bits - GW_QSGD_NARROWEST] */
    /** `encode` of 8-bit codes in two halves, for scales that ranks agree on: `measure` writes only
     *  the scales, in host order, +Inf for a bucket with Inf or NaN; `encode_agreed` uses the
     *  agreed scales, none below what `measure` wrote. */
    gw_bucket_part *measure, *encode_agreed;
} gw_qsgd_level;

extern const gw_qsgd_level gw_qsgd_portable, gw_qsgd_avx2, gw_qsgd_avx512;

#endif
