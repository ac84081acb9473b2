/** What the kernels share that work bucket by bucket: each bucket has a head (its scale, mean or
 *  window) and codes of its floats. Where these lie on the wire is each codec's own affair. */
#ifndef GW_COMPRESS_KERNEL_BUCKET_H
#define GW_COMPRESS_KERNEL_BUCKET_H

#include "compress/kernel/simd.h"

/* Bit patterns of scales: a bucket at or above the first holds Inf or NaN and is sent with the
 * second; one below the third (2^-100) is sent as zeros. */
#define GW_SCALE_INFINITE 0x7f800000u
#define GW_SCALE_NAN      0x7fc00000u
#define GW_SCALE_TINY     0x0d800000u

/** A span and its encoding; bucket is a multiple of GW_BLOCK. */
typedef struct gw_bucket_encoding {
    const void *codec; /* its settings */
    const float *x;
    float *e; /* encode_feedback: the residual */
    size_t bucket;
    float levels; /* |code| <= levels, where codes are integers */
    uint64_t key;
    const struct gw_turn *turn; /* that the key is of; NULL where no part asks */
    union {                     /* one a bucket */
        void *heads;
        gw_u32u *scales;
        unsigned char *windows;
    };
    unsigned char *codes;
} gw_bucket_encoding;

typedef struct gw_bucket_decoding {
    float *y;
    size_t bucket;
    float levels;
    union {
        const void *heads;
        const gw_u32u *scales;
        const unsigned char *windows;
    };
    const unsigned char *codes;
    bool host_order; /* of scales, as qsgd's `measure` writes them; else little-endian */
} gw_bucket_decoding;

/** Work on floats [lo, hi) of the span, lo a multiple of bucket; ctx is a gw_bucket_encoding or a
 *  gw_bucket_decoding: parts for gw_simd_split. */
typedef void gw_bucket_part(void *ctx, size_t lo, size_t hi);

typedef struct gw_bucket_kernels {
    gw_bucket_part *encode, *decode, *decode_add;
    gw_bucket_part *encode_feedback; /* NULL: it has none */
} gw_bucket_kernels;

extern const gw_bucket_kernels gw_natural_portable, gw_natural_avx2, gw_natural_avx512;
extern const gw_bucket_kernels gw_onebit_portable, gw_onebit_avx2, gw_onebit_avx512;

#endif
