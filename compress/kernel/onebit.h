/** Kernels of the onebit codec: signs and the sum of magnitudes, and back; with error feedback in
 *  two passes over a bucket, which is in L1 for the second. */
#ifndef GW_COMPRESS_KERNEL_ONEBIT_H
#define GW_COMPRESS_KERNEL_ONEBIT_H

#include "compress/kernel/simd.h"

/* Bit patterns: magnitudes from the first on are not denormal; a mean below the second (2^-100) is
 * sent as zero; floats from the third on are Inf or NaN; the fourth is the NaN that is sent. */
#define GW_ONEBIT_NORMAL   0x00800000u
#define GW_ONEBIT_TINY     0x0d800000u
#define GW_ONEBIT_INFINITE 0x7f800000u
#define GW_ONEBIT_NAN      0x7fc00000u

/** A span and where its parts lie on the wire (see onebit.c); bucket is a multiple of GW_BLOCK. */
typedef struct gw_onebit_encoding {
    const float *x;
    float *e; /* encode_feedback: the residual */
    size_t bucket;
    gw_u32u *scales;
    unsigned char *signs;
} gw_onebit_encoding;

typedef struct gw_onebit_decoding {
    float *y;
    size_t bucket;
    const gw_u32u *scales;
    const unsigned char *signs;
} gw_onebit_decoding;

/** Work on floats [lo, hi) of the span, lo a multiple of bucket; ctx is a gw_onebit_encoding or a
 *  gw_onebit_decoding: parts for gw_simd_split. */
typedef struct gw_onebit_kernels {
    void (*encode)(void *ctx, size_t lo, size_t hi);
    void (*encode_feedback)(void *ctx, size_t lo, size_t hi);
    void (*decode)(void *ctx, size_t lo, size_t hi);
    void (*decode_add)(void *ctx, size_t lo, size_t hi);
} gw_onebit_kernels;

extern const gw_onebit_kernels gw_onebit_portable, gw_onebit_avx2, gw_onebit_avx512;

#endif
