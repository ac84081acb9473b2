/** Kernels of the codecs that round stochastically on a max-norm scale (qsgd, int8sum): a bucket's
 *  magnitude, rounding, packing, unpacking. */
#ifndef GW_COMPRESS_KERNEL_QSGD_H
#define GW_COMPRESS_KERNEL_QSGD_H

#include "compress/kernel/simd.h"

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

/* Bit patterns of scales: a bucket at or above the first holds Inf or NaN and is sent with the
 * second; one below the third (2^-100) is sent as zeros. The fourth, one step below the largest
 * float, is the largest scale sent: with the largest float, levels * (scale / levels) would
 * overflow. */
#define GW_QSGD_INFINITE 0x7f800000u
#define GW_QSGD_NAN      0x7fc00000u
#define GW_QSGD_TINY     0x0d800000u
#define GW_QSGD_MOST     0x7f7ffffeu

/** A span and where its parts lie on the wire (see qsgd.c); bucket is a multiple of GW_BLOCK. */
typedef struct gw_qsgd_encoding {
    const float *x;
    size_t bucket;
    float levels; /* |code| <= levels */
    uint64_t key;
    gw_u32u *scales;
    unsigned char *codes;
} gw_qsgd_encoding;

typedef struct gw_qsgd_decoding {
    float *y;
    size_t bucket;
    float levels;
    const gw_u32u *scales;
    const unsigned char *codes;
    bool host_order; /* of the scales, as `measure` writes them; else little-endian */
} gw_qsgd_decoding;

/** Work on floats [lo, hi) of the span, lo a multiple of bucket; ctx is a gw_qsgd_encoding or a
 *  gw_qsgd_decoding: parts for gw_simd_split. */
typedef void gw_qsgd_part(void *ctx, size_t lo, size_t hi);

/** Codes of one width. A scale of Inf or NaN decodes to NaN. Narrow codes packed by hand encode 2.4
 *  (AVX2) and 6 times (AVX-512) as fast, unpacked by hand they decode 2.2 and 1.4 times as fast. */
typedef struct gw_qsgd_kernels {
    gw_qsgd_part *encode, *decode, *decode_add;
} gw_qsgd_kernels;

enum { GW_QSGD_NARROWEST = 2, GW_QSGD_WIDEST = 8 };

/** All widths on one instruction set. */
typedef struct gw_qsgd_level {
    gw_qsgd_kernels width[GW_QSGD_WIDEST - GW_QSGD_NARROWEST + 1]; /* [bits - GW_QSGD_NARROWEST] */
    /** `encode` of 8-bit codes in two halves, for scales that ranks agree on: `measure` writes only
     *  the scales, in host order, +Inf for a bucket with Inf or NaN; `encode_agreed` uses the
     *  agreed scales, none below what `measure` wrote. */
    gw_qsgd_part *measure, *encode_agreed;
} gw_qsgd_level;

extern const gw_qsgd_level gw_qsgd_portable, gw_qsgd_avx2, gw_qsgd_avx512;

#endif
