/** The common part of codecs that work bucket by bucket: they send all codes, then a head for each
 *  bucket. */
#ifndef GW_COMPRESS_BUCKET_H
#define GW_COMPRESS_BUCKET_H

#include "compress/codec.h"
#include "compress/kernel/bucket.h"

/** The head of a codec's settings; they may be all of them. */
typedef struct gw_bucketed {
    size_t bucket; /* the option `bucket`: floats */
    gw_bucket_kernels k;
    float levels;      /* as in gw_bucket_encoding */
    size_t head_bytes; /* of a bucket */
    size_t (*codes_bytes)(const void *self, size_t n);
} gw_bucketed;

/** Allocate the settings of `codec` in *self: `size` bytes, zero but for the bucket. The caller
 *  frees them. *level: the vector unit, by gw_simd_pick. GW_ERR_USAGE: the bucket is not a multiple
 *  of `grain`. GW_ERR_NOMEM. */
gw_err gw_bucketed_open(void **self, const gw_args *args, const char *codec, int grain, size_t size,
                        gw_simd *level);

/** Buckets of n floats; the last may be short. */
static inline size_t gw_bucketed_count(const gw_bucketed *b, size_t n) {
    return n / b->bucket + (n % b->bucket != 0);
}

/** Hooks of gw_codec_ops, once the rest of the settings is set. */
size_t gw_bucketed_bound(const void *self, size_t n);
gw_err gw_bucketed_encode(const void *self, gw_turn turn, const float *x, size_t n, void *out,
                          size_t cap, size_t *len);
gw_err gw_bucketed_encode_feedback(const void *self, gw_turn turn, const float *x, float *e,
                                   size_t n, void *out, size_t cap, size_t *len);
gw_err gw_bucketed_decode(const void *self, const void *in, size_t len, float *y, size_t n,
                          gw_into into);

/** The hook `add` of codecs whose codes are int8_t that MPI sums. */
gw_err gw_bucketed_add_int8(void *inout, const void *in, size_t len);

#endif
