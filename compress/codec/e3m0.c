/* e3m0: floats of 4 bits, a sign and 3 bits of exponent. What Streaming DiLoCo sends (A. Douillard
 * et al., "Streaming DiLoCo with overlapping communication", arXiv 2501.18512, 2025); the scale of
 * each bucket and the zero are ours, since the paper does not tell its own.
 *
 *   a bucket of B floats, m = max |x|:   value = 0 or +-m 2^(c-7), c = 1 .. 7
 *
 * rounding=stochastic: to one of the two values around |x|, at random, so that E[value] = x, as
 * `natural` does for powers of two. The bits depend on (key, bucket, element) only.
 * rounding=nearest: to the nearer value, the midpoint upwards; biased, so it needs error feedback.
 *
 * Wire format, n floats, K = ceil(n / B) buckets:
 *   ceil(n / 2) bytes of codes, element 0 in the lower half of the first: 8 for a negative value,
 *               plus c, or 0 for zero; the last half byte of an odd n is 0
 *   K scales m, little-endian binary32
 * 4 + 32 / B bits an element: 4.06 with B = 512.
 *
 * A NaN or an infinity makes the scale of its bucket NaN; that bucket alone decodes to NaN. A
 * bucket whose m is below 2^-100 is sent as zeros. */
#include "base/clones.h"
#include "base/norm.h"
#include "base/rng.h"
#include "compress/bucket.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    TOP = 7,       /* the code of m itself */
    ONE = 127,     /* the exponent field of 1 */
    MANTISSA = 23, /* bits of a float */
};

typedef struct e3m0 {
    gw_bucketed b; /* first */
    bool nearest;
} e3m0;

static const gw_opt e3m0_opts[] = {{"bucket", GW_OPT_INT, "512", GW_BLOCK, 1 << 30, NULL, NULL,
                                    "floats that share a scale, a multiple of 64"},
                                   {"rounding", GW_OPT_CHOICE, "stochastic", 0, 0,
                                    "stochastic|nearest", NULL,
                                    "at random (unbiased) or to the nearest value (biased)"},
                                   {0}};

static unsigned e3m0_traits(const void *self) {
    const e3m0 *c = self;
    return GW_CODEC_FIXED | (c->nearest ? GW_CODEC_BIASED : GW_CODEC_UNBIASED);
}

static size_t e3m0_codes_bytes(const void *self, size_t n) {
    (void)self;
    return n / 2 + n % 2;
}

/* Of x / m; `chance` has 23 bits, uniform, or is half of their range. A carry out of the mantissa
 * goes to the next power of two. Without branches, for the compiler's vectors. */
static inline uint32_t e3m0_code(float ratio, uint32_t chance) {
    uint32_t bits = gw_float_bits(ratio), sign = bits >> 31 << 3;
    uint32_t above = (((bits & 0x7fffffff) + chance) >> MANTISSA) - (ONE - TOP);
    float least = fabsf(ratio) * 0x1p6f; /* in units of the least power */
    uint32_t below = (float)(int32_t)chance * 0x1p-23f + least >= 1;
    uint32_t c = least < 1 ? below : above;
    return c ? sign | c : 0;
}

/* Two elements a draw; element `at` of the bucket and what follows, GW_BLOCK of them. */
GW_CLONES static void e3m0_encode_block(bool nearest, uint64_t key, size_t at, const float *x,
                                        float m, unsigned char *out) {
    const uint32_t mask = (1u << MANTISSA) - 1, half = 1u << (MANTISSA - 1);
    uint32_t code[GW_BLOCK];
    for (size_t i = 0; i < GW_BLOCK; i += 2) {
        uint64_t draw = gw_rng_u64(key, at + i);
        code[i] = nearest ? half : (uint32_t)draw & mask;
        code[i + 1] = nearest ? half : (uint32_t)(draw >> 32) & mask;
    }
    for (size_t i = 0; i < GW_BLOCK; i++)
        code[i] = e3m0_code(x[i] / m, code[i]);
    for (size_t i = 0; i < GW_BLOCK / 2; i++)
        out[i] = (unsigned char)(code[2 * i] | code[2 * i + 1] << 4);
}

static void e3m0_encode_part(void *ctx, size_t lo, size_t hi) {
    const gw_bucket_encoding *e = ctx;
    const e3m0 *c = e->codec;
    for (; lo < hi; lo += e->bucket) {
        size_t n = hi - lo < e->bucket ? hi - lo : e->bucket, at = 0;
        uint64_t key = gw_rng_u64(e->key, lo / e->bucket);
        const float *x = e->x + lo;
        unsigned char *out = e->codes + lo / 2;
        float m = gw_float_of(gw_norm_greatest(x, n));
        m = m < 0x1p-100f ? 0 : isfinite(m) ? m : gw_float_of(GW_SCALE_NAN);
        e->scales[lo / e->bucket] = gw_le32(gw_float_bits(m));
        if (!(m > 0)) { /* zero or NaN */
            memset(out, 0, e3m0_codes_bytes(c, n));
            continue;
        }
        for (; at + GW_BLOCK <= n; at += GW_BLOCK)
            e3m0_encode_block(c->nearest, key, at, x + at, m, out + at / 2);
        if (at == n)
            continue;
        float rest[GW_BLOCK] = {0}; /* a zero's code is 0 */
        unsigned char codes[GW_BLOCK / 2];
        memcpy(rest, x + at, (n - at) * sizeof *rest);
        e3m0_encode_block(c->nearest, key, at, rest, m, codes);
        memcpy(out + at / 2, codes, e3m0_codes_bytes(c, n - at));
    }
}

static void e3m0_decode_span(const gw_bucket_decoding *d, size_t lo, size_t hi, bool add) {
    for (; lo < hi; lo += d->bucket) {
        size_t n = hi - lo < d->bucket ? hi - lo : d->bucket;
        uint32_t scale = gw_le32(d->scales[lo / d->bucket]); /* a sender need not be one of us */
        float m = gw_float_of(scale < GW_SCALE_INFINITE ? scale : GW_SCALE_NAN), value[16];
        for (int c = 0; c < 16; c++) {
            float magnitude = c % 8 ? ldexpf(m, c % 8 - TOP) : m * 0; /* a NaN's zeros are NaN */
            value[c] = c < 8 ? magnitude : -magnitude;
        }
        const unsigned char *codes = d->codes + lo / 2;
        for (size_t i = 0; i < n; i++) {
            float v = value[codes[i / 2] >> i % 2 * 4 & 15];
            d->y[lo + i] = add ? d->y[lo + i] + v : v;
        }
    }
}

static void e3m0_decode(void *ctx, size_t lo, size_t hi) {
    e3m0_decode_span(ctx, lo, hi, false);
}

static void e3m0_decode_add(void *ctx, size_t lo, size_t hi) {
    e3m0_decode_span(ctx, lo, hi, true);
}

static gw_err e3m0_open(void **self, const gw_args *args) {
    gw_simd level; /* its loops are plain C: the compiler's vectors */
    GW_TRY(gw_bucketed_open(self, args, "e3m0", GW_BLOCK, sizeof(e3m0), &level));
    e3m0 *c = *self;
    c->nearest = strcmp(gw_args_text(args, "rounding"), "nearest") == 0;
    c->b.k = (gw_bucket_kernels){e3m0_encode_part, e3m0_decode, e3m0_decode_add, NULL};
    c->b.head_bytes = sizeof(float);
    c->b.codes_bytes = e3m0_codes_bytes;
    return GW_OK;
}

const gw_codec_ops gw_codec_e3m0 = {
    .head = {GW_CODEC_ABI, "e3m0",
             "4-bit floats: sign and exponent below the largest magnitude of each bucket",
             e3m0_opts},
    .caps = GW_CODEC_UNBIASED | GW_CODEC_FIXED,
    .open = e3m0_open,
    .close = free,
    .traits = e3m0_traits,
    .bound = gw_bucketed_bound,
    .encode = gw_bucketed_encode,
    .decode = gw_bucketed_decode,
};
