/** Kernels of the ternary codec: random codes -1, 0, 1, five to a byte, and back. */
#ifndef GW_COMPRESS_KERNEL_TERNARY_H
#define GW_COMPRESS_KERNEL_TERNARY_H

#include "compress/kernel/simd.h"

#include <stdbool.h>

enum {
    GW_TERNARY_RUNS = 5,                           /* trits a byte: 3^5 = 243 */
    GW_TERNARY_GRAIN = GW_TERNARY_RUNS * GW_BLOCK, /* a bucket is a multiple of this */
    GW_TERNARY_MOST = 32 * GW_TERNARY_GRAIN,       /* floats of the largest bucket */
    GW_TERNARY_TOP = 242                           /* the largest byte */
};

/* Bit patterns of scales: a bucket at or above the first holds Inf or NaN and is sent with the
 * second; one below the third (2^-100) is sent as zeros. */
#define GW_TERNARY_INFINITE 0x7f800000u
#define GW_TERNARY_NAN      0x7fc00000u
#define GW_TERNARY_TINY     0x0d800000u

/** Pack five runs of codes into bytes: byte j is the base-3 number whose digits are the codes j,
 *  run + j, .., 4 run + j, each plus 1. */
static inline void gw_ternary_pack(const int8_t *codes, size_t run, unsigned char *bytes) {
    for (size_t j = 0; j < run; j++) {
        int b = codes[j];
        for (size_t r = 1; r < GW_TERNARY_RUNS; r++)
            b = 3 * b + codes[r * run + j];
        bytes[j] = (unsigned char)(b + GW_TERNARY_TOP / 2);
    }
}

/* b + ((b * MUL + ADD) >> SHIFT) is ceil(256 b / 243): a binary fraction so close to b / 243 that
 * each multiplication by three carries out the next digit. Found by trying all b. */
#define GW_TERNARY_UP_MUL   55
#define GW_TERNARY_UP_ADD   1010
#define GW_TERNARY_UP_SHIFT 10

/** Unpack bytes that are at most GW_TERNARY_TOP. */
static inline void gw_ternary_unpack(const unsigned char *bytes, size_t run, int8_t *codes) {
    for (size_t j = 0; j < run; j++) {
        unsigned b = bytes[j];
        b += (b * GW_TERNARY_UP_MUL + GW_TERNARY_UP_ADD) >> GW_TERNARY_UP_SHIFT;
        for (size_t r = 0; r < GW_TERNARY_RUNS; r++) {
            b *= 3;
            codes[r * run + j] = (int8_t)((int)(b >> 8) - 1);
            b &= 0xff;
        }
    }
}

/** A span and where its parts lie on the wire (see ternary.c). */
typedef struct gw_ternary_encoding {
    const float *x;
    size_t bucket;
    uint64_t key;
    gw_u32u *scales;
    unsigned char *bytes;
} gw_ternary_encoding;

typedef struct gw_ternary_decoding {
    float *y;
    size_t bucket;
    const gw_u32u *scales;
    const unsigned char *bytes;
} gw_ternary_decoding;

/** Work on floats [lo, hi) of the span, lo a multiple of bucket; ctx is a gw_ternary_encoding or a
 *  gw_ternary_decoding: parts for gw_simd_split. */
typedef struct gw_ternary_kernels {
    void (*encode)(void *ctx, size_t lo, size_t hi);
    void (*decode)(void *ctx, size_t lo, size_t hi);
    void (*decode_add)(void *ctx, size_t lo, size_t hi);
} gw_ternary_kernels;

/** Decoding by hand is 1.4 times as fast with AVX-512. */
extern const gw_ternary_kernels gw_ternary_portable, gw_ternary_avx2, gw_ternary_avx512;

#endif
