/** What codecs that scale bucket by bucket have in common. */
#ifndef GW_COMPRESS_BUCKET_H
#define GW_COMPRESS_BUCKET_H

#include "base/args.h"
#include "compress/kernel/simd.h"

/** Allocate the settings of `codec` in *self: `size` bytes, zero but for the size_t that they begin
 *  with, which is the option `bucket` in floats. The caller frees them. *level: the vector unit, by
 *  gw_simd_pick. GW_ERR_USAGE: the bucket is not a multiple of `grain`. GW_ERR_NOMEM. */
gw_err gw_bucket_open(void **self, const gw_args *args, const char *codec, int grain, size_t size,
                      gw_simd *level);

/** Buckets of n floats; the last may be short. */
static inline size_t gw_bucket_count(size_t n, size_t bucket) {
    return n / bucket + (n % bucket != 0);
}

#endif
