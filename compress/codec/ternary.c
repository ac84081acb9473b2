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
#include "compress/bucket.h"
#include "compress/codec.h"

#include "base/clones.h"
#include "compress/kernel/ternary.h"

#include <stdlib.h>

enum { SCALE_BYTES = 4 };

typedef struct ternary {
    size_t bucket; /* first */
    const gw_ternary_kernels *k;
} ternary;

static const gw_opt ternary_opts[] = {{"bucket", GW_OPT_INT, "640", GW_TERNARY_GRAIN,
                                       GW_TERNARY_MOST, NULL, NULL,
                                       "floats that share a scale, a multiple of 320"},
                                      {0}};

static gw_err ternary_open(void **self, const gw_args *args) {
    static const gw_ternary_kernels *const levels[] = GW_SIMD_TABLE(gw_ternary);
    gw_simd level;
    GW_TRY(gw_bucket_open(self, args, "ternary", GW_TERNARY_GRAIN, sizeof(ternary), &level));
    ((ternary *)*self)->k = levels[level];
    return GW_OK;
}

static size_t ternary_trits_bytes(size_t n) {
    return n / GW_TERNARY_RUNS + (n % GW_TERNARY_RUNS != 0);
}

static size_t ternary_bound(const void *self, size_t n) {
    const ternary *c = self;
    return ternary_trits_bytes(n) + gw_bucket_count(n, c->bucket) * SCALE_BYTES;
}

static gw_err ternary_encode(const void *self, gw_turn turn, const float *x, size_t n, void *out,
                             size_t cap, size_t *len) {
    (void)cap;
    const ternary *c = self;
    gw_ternary_encoding e = {x, c->bucket, turn.key,
                             (gw_u32u *)(void *)((unsigned char *)out + ternary_trits_bytes(n)),
                             out};
    gw_simd_split(n, c->bucket, c->k->encode, &e);
    *len = ternary_bound(c, n);
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
    (void)len;
    const ternary *c = self;
    unsigned top = ternary_largest_byte(in, ternary_trits_bytes(n));
    if (top > GW_TERNARY_TOP)
        return gw_fail(GW_ERR_CORRUPT, "ternary: a byte %u: five trits make at most %d", top,
                       GW_TERNARY_TOP);
    gw_ternary_decoding d = {
        y, c->bucket,
        (const gw_u32u *)(const void *)((const unsigned char *)in + ternary_trits_bytes(n)), in};
    gw_simd_split(n, c->bucket, into == GW_INTO_ADD ? c->k->decode_add : c->k->decode, &d);
    return GW_OK;
}

const gw_codec_ops gw_codec_ternary = {
    .head = {GW_CODEC_ABI, "ternary",
             "-1, 0 or 1 times the largest magnitude of each bucket, at random", ternary_opts},
    .caps = GW_CODEC_UNBIASED | GW_CODEC_FIXED,
    .open = ternary_open,
    .close = free,
    .bound = ternary_bound,
    .encode = ternary_encode,
    .decode = ternary_decode,
};
