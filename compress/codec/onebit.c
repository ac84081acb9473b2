/* onebit: the sign of each element, and the mean magnitude of its bucket. F. Seide, H. Fu, J.
 * Droppo, G. Li, D. Yu, "1-Bit Stochastic Gradient Descent and its Application to Data-Parallel
 * Distributed Training of Speech DNNs", INTERSPEECH 2014, with one mean for both signs.
 *
 *   a bucket of B floats, m = mean |x|
 *   value = m where x has no minus sign, -m where it has one
 *
 * the nearest to x of all +-c with these signs. The sign is the float's sign bit: 0 becomes m and
 * -0 becomes -m, so codec(-x) = -codec(x) always, but a zero among other values does not stay zero.
 * A bucket of zeros does. Biased: it needs error feedback.
 *
 * Wire format, n floats, K = ceil(n / B) buckets:
 *   ceil(n / 8) bytes of signs, element i in bit i mod 8 of byte i / 8; unused bits are zero
 *   K means m, little-endian binary32, one a bucket
 * 1 + 32 / B bits an element: 1.06 with B = 512.
 *
 * A NaN or an infinity makes the mean of its bucket NaN; that bucket alone decodes to NaN, as with
 * any mean that is not a number or is negative.
 * A mean below 2^-100 is sent as zero: its floats are close to the denormals that a thread may
 * flush, and the bytes must not depend on that. Error feedback keeps what is dropped. Means are
 * sums of binary32 in a fixed order (kernel/onebit_loop.h), the same at each SIMD level. */
#include "compress/bucket.h"

#include <stdlib.h>

static const gw_opt onebit_opts[] = {{"bucket", GW_OPT_INT, "512", GW_BLOCK, 65536, NULL, NULL,
                                      "floats that share a mean, a multiple of 64"},
                                     {0}};

static size_t onebit_signs_bytes(const void *self, size_t n) {
    (void)self;
    return n / 8 + (n % 8 != 0);
}

static gw_err onebit_open(void **self, const gw_args *args) {
    static const gw_bucket_kernels *const levels[] = GW_SIMD_TABLE(gw_onebit);
    gw_simd level;
    GW_TRY(gw_bucketed_open(self, args, "onebit", GW_BLOCK, sizeof(gw_bucketed), &level));
    gw_bucketed *b = *self;
    b->k = *levels[level];
    b->head_bytes = sizeof(float);
    b->codes_bytes = onebit_signs_bytes;
    return GW_OK;
}

const gw_codec_ops gw_codec_onebit = {
    .head = {GW_CODEC_ABI, "onebit", "signs, and one mean magnitude per bucket", onebit_opts},
    .caps = GW_CODEC_BIASED | GW_CODEC_FIXED,
    .open = onebit_open,
    .close = free,
    .bound = gw_bucketed_bound,
    .encode = gw_bucketed_encode,
    .encode_feedback = gw_bucketed_encode_feedback,
    .decode = gw_bucketed_decode,
};
