#include "compress/bucket.h"

#include "base/mem.h"

gw_err gw_bucket_open(void **self, const gw_args *args, const char *codec, int grain, size_t size,
                      gw_simd *level) {
    long long bucket = gw_args_int(args, "bucket");
    if (bucket % grain)
        return gw_fail(GW_ERR_USAGE, "%s: bucket=%lld: must be a multiple of %d", codec, bucket,
                       grain);
    size_t *settings = NULL;
    GW_TRY(gw_simd_pick(level));
    GW_TRY(gw_alloc(&settings, size, 1));
    *settings = (size_t)bucket;
    *self = settings;
    return GW_OK;
}
