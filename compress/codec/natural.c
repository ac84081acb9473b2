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
#include "compress/codec.h"

#include "compress/kernel/natural.h"

#include <stdlib.h>

typedef struct natural {
    size_t bucket; /* first */
    const gw_natural_kernels *k;
} natural;

static const gw_opt natural_opts[] = {{"bucket", GW_OPT_INT, "512", GW_BLOCK, 65536, NULL, NULL,
                                       "floats that share a window of exponents, a multiple of 64"},
                                      {0}};

static gw_err natural_open(void **self, const gw_args *args) {
    static const gw_natural_kernels *const levels[] = GW_SIMD_TABLE(gw_natural);
    gw_simd level;
    GW_TRY(gw_bucket_open(self, args, "natural", GW_BLOCK, sizeof(natural), &level));
    ((natural *)*self)->k = levels[level];
    return GW_OK;
}

static size_t natural_bound(const void *self, size_t n) {
    const natural *c = self;
    return n + gw_bucket_count(n, c->bucket);
}

static gw_err natural_encode(const void *self, gw_turn turn, const float *x, size_t n, void *out,
                             size_t cap, size_t *len) {
    (void)cap;
    const natural *c = self;
    gw_natural_encoding e = {x, c->bucket, turn.key, (unsigned char *)out + n, out};
    gw_simd_split(n, c->bucket, c->k->encode, &e);
    *len = natural_bound(c, n);
    return GW_OK;
}

static gw_err natural_decode(const void *self, const void *in, size_t len, float *y, size_t n,
                             gw_into into) {
    (void)len;
    const natural *c = self;
    gw_natural_decoding d = {y, c->bucket, (const unsigned char *)in + n, in};
    gw_simd_split(n, c->bucket, into == GW_INTO_ADD ? c->k->decode_add : c->k->decode, &d);
    return GW_OK;
}

const gw_codec_ops gw_codec_natural = {
    .head = {GW_CODEC_ABI, "natural", "powers of two, rounded at random", natural_opts},
    .caps = GW_CODEC_UNBIASED | GW_CODEC_FIXED,
    .open = natural_open,
    .close = free,
    .bound = natural_bound,
    .encode = natural_encode,
    .decode = natural_decode,
};
