/* ternary: -1, 0 or 1 at random, five to a byte. W. Wen, C. Xu, F. Yan, C. Wu, Y.
 * Wang, Y. Chen, H. Li, "TernGrad: Ternary Gradients to Reduce Communication in Distributed Deep
 * Learning", NIPS 2017, with the largest magnitude of a bucket for that of a layer, and without
 * clipping.
 *
 *   a bucket of B floats, m = max |x|
 *   code = floor(t + u),  t = x / m in steps of 2^-16,  u uniform in {0, ..., 65535} / 65536
 *   value = code * m, and code is sign(x) with probability |x| / m, else 0
 *
 * so E[value] = x except for the steps of t, a bias of up to m / 2^17, and a few float roundings;
 * in particular |x| < m / 2^17 is never sent. u depends on (key, bucket, element) only: see
 * kernel/qsgd.h.
 *
 * Wire format, n floats, K = ceil(n / B) buckets, B a multiple of 320:
 *   ceil(n / 5) bytes of trits. A bucket of b floats (the last may be short) has R = ceil(b / 5)
 *               bytes and its floats lie in five runs of R: byte j holds the floats j, R + j, ..,
 *               4 R + j, each as code + 1, as digits in base 3, the first the highest: 0 to 242.
 *               Floats missing in the last run count as 0
 *   K scales m, little-endian binary32, one a bucket
 * 8 / 5 + 32 / B bits an element: 1.65 with B = 640.
 *
 * A NaN or an infinity makes the scale of its bucket NaN, with all codes 1; that bucket alone
 * decodes to NaN, as with any scale that is not a number or is negative. A bucket whose m is below
 * 2^-100 is sent as zeros, since 1 / m would overflow. */
#include "compress/kernel/ternary.h"
#include "base/clones.h"
#include "compress/bucket.h"

#include <stdlib.h>

static const gw_opt ternary_opts[] = {{"bucket", GW_OPT_INT, "640", GW_TERNARY_GRAIN,
                                       GW_TERNARY_MOST, NULL, NULL,
                                       "floats that share a scale, a multiple of 320"},
                                      {0}};

static size_t ternary_trits_bytes(const void *self, size_t n) {
    (void)self;
    return n / GW_TERNARY_RUNS + (n % GW_TERNARY_RUNS != 0);
}

static gw_err ternary_open(void **self, const gw_args *args) {
    static const gw_bucket_kernels *const levels[] = GW_SIMD_TABLE(gw_ternary);
    gw_simd level;
    GW_TRY(gw_bucketed_open(self, args, "ternary", GW_TERNARY_GRAIN, sizeof(gw_bucketed), &level));
    gw_bucketed *b = *self;
    b->k = *levels[level];
    b->head_bytes = sizeof(float);
    b->codes_bytes = ternary_trits_bytes;
    return GW_OK;
}

GW_CLONES static unsigned char ternary_largest_byte(const unsigned char *bytes, size_t n) {
    unsigned char top = 0;
    for (size_t i = 0; i < n; i++)
        top = bytes[i] > top ? bytes[i] : top;
    return top;
}

static gw_err ternary_decode(const void *self, const void *in, size_t len, float *y, size_t n,
                             gw_into into) {
    unsigned top = ternary_largest_byte(in, ternary_trits_bytes(self, n));
    if (top > GW_TERNARY_TOP)
        return gw_fail(GW_ERR_CORRUPT, "ternary: a byte %u: five trits make at most %d", top,
                       GW_TERNARY_TOP);
    return gw_bucketed_decode(self, in, len, y, n, into);
}

const gw_codec_ops gw_codec_ternary = {
    .head = {GW_CODEC_ABI, "ternary",
             "-1, 0 or 1 times the largest magnitude of each bucket, at random", ternary_opts},
    .caps = GW_CODEC_UNBIASED | GW_CODEC_FIXED,
    .open = ternary_open,
    .close = free,
    .bound = gw_bucketed_bound,
    .encode = gw_bucketed_encode,
    .decode = ternary_decode,
};
