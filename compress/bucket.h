/** What codecs that scale bucket by bucket have in common. */
#ifndef GW_COMPRESS_BUCKET_H
#define GW_COMPRESS_BUCKET_H

#include "base/args.h"
#include "compress/kernel/simd.h"

/** Allocate a codec's settings, `size` bytes of zeros that begin with a size_t: the option
 *  `bucket`, floats. *level as gw_simd_pick. GW_ERR_USAGE: the bucket is no multiple of `grain`. */
gw_err gw_bucket_open(void **self, const gw_args *args, const char *codec, int grain, size_t size,
                      gw_simd *level);

/** Buckets of n floats; the last may be short. */
static inline size_t gw_bucket_count(size_t n, size_t bucket) {
    return n / bucket + (n % bucket != 0);
}

#endif
