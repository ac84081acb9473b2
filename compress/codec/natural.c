/* natural: each float to one of the two powers of two around it. S. Horvath, C.-Y. Ho, L. Horvath,
 * A. N. Sahu, M. Canini, P. Richtarik, "Natural Compression for Distributed Deep Learning", MSML
 * 2022 (arXiv 1905.10988).
 *
 *   2^a <= |x| < 2^(a+1), p = |x| / 2^a - 1:   |value| = 2^(a+1) with probability p, else 2^a
 *
 * so E[value] = x, and the variance is at most x^2 / 8. It adds 23 random bits to the bit pattern
 * of |x| and drops the lowest 23; a carry rounds up. The bits depend on (key, bucket, element)
 * only: see kernel/qsgd.h.
 *
 * A code has 8 bits, a float's sign and exponent 9, so a bucket of B floats has a window of 127
 * exponents that ends just above its largest magnitude; only a bucket that reaches 1 has floats
 * below its window. Those round at random to the window's least power or to zero, also unbiased;
 * denormals inside a window round to 2^-126 or to zero. Values above 2^127, the largest power of
 * two, can only round down.
 *
 * Wire format, n floats, K = ceil(n / B) buckets:
 *   n bytes of codes: the sign in the highest bit; below it c, 0 for zero, else the magnitude with
 *           the exponent field window + c, that is 2^(window + c - 127)
 *   K bytes, the windows: 0 to 127. Any other (encoders write 255) marks a NaN or an infinity:
 *           that bucket alone decodes to NaN
 * 8 + 8 / B bits an element: 8.02 with B = 512. */
#include "compress/bucket.h"

#include <stdlib.h>

static const gw_opt natural_opts[] = {{"bucket", GW_OPT_INT, "512", GW_BLOCK, 65536, NULL, NULL,
                                       "floats that share a window of exponents, a multiple of 64"},
                                      {0}};

static size_t natural_codes_bytes(const void *self, size_t n) {
    (void)self;
    return n;
}

static gw_err natural_open(void **self, const gw_args *args) {
    static const gw_bucket_kernels *const levels[] = GW_SIMD_TABLE(gw_natural);
    gw_simd level;
    GW_TRY(gw_bucketed_open(self, args, "natural", GW_BLOCK, sizeof(gw_bucketed), &level));
    gw_bucketed *b = *self;
    b->k = *levels[level];
    b->head_bytes = 1;
    b->codes_bytes = natural_codes_bytes;
    return GW_OK;
}

const gw_codec_ops gw_codec_natural = {
    .head = {GW_CODEC_ABI, "natural", "powers of two, rounded at random", natural_opts},
    .caps = GW_CODEC_UNBIASED | GW_CODEC_FIXED,
    .open = natural_open,
    .close = free,
    .bound = gw_bucketed_bound,
    .encode = gw_bucketed_encode,
    .decode = gw_bucketed_decode,
};
