/* qsgd: stochastic rounding to 2 to 8 bits. D. Alistarh, D. Grubic, J. Li, R. Tomioka,
 * M. Vojnovic, "QSGD: Communication-Efficient SGD via Gradient Quantization and Encoding", NIPS
 * 2017, with the max norm for scale and a fixed code length.
 *
 *   a bucket of B floats, m = max |x|, L = 2^(bits-1) - 1 levels (127, 63, 31, 15, 7, 3, 1):
 *   code = floor(t + u),  t = L x / m in steps of 2^-16,  u uniform in {0, ..., 65535} / 65536
 *   value = code * (m / L)
 *
 * so E[value] = x to the rounding of a float, the error of an element is below m / L, and x and -x
 * round alike in distribution. u comes from (key, bucket, element) only: see kernel/qsgd.h.
 *
 * Wire format, n floats, K = ceil(n / B) buckets:
 *   ceil(n * bits / 8) bytes of codes, two's complement, element i in bits [i * bits, (i+1) * bits)
 *                      counted from the lowest bit of the first byte; unused bits are zero
 *   K scales m, little-endian binary32, one a bucket
 * The codes come first so that they are aligned where the buffer is.
 * bits + 32 / B bits an element: 8.06, 7.06 .. 2.06 with B = 512.
 *
 * rounding=nearest takes u = 1/2 instead: the error of an element is at most m / 2L, but the mean
 * is wrong, so it is biased and wants error feedback: what stochastic rounding is there to avoid,
 * for comparison. The same wire.
 *
 * A NaN or an infinity makes the scale of its bucket NaN: that bucket, and no other, decodes to
 * NaN. A bucket whose m is below 2^-100 is sent as zeros: its 1 / m would leave the range of a
 * float, and error feedback, where it is on, keeps what is dropped. */
#include "compress/codec.h"

#include "base/mem.h"
#include "compress/kernel/qsgd.h"
#include "compress/scratch.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SCALE_BYTES = 4 };
typedef struct qsgd {
    gw_qsgd_kernels k;
    unsigned bits;
    size_t bucket;
    float levels;
    bool nearest;
    gw_scratch scratch; /* of the nearest values */
} qsgd;

static const gw_opt opts[] = {
    {"bits", GW_OPT_INT, "8", GW_QSGD_NARROWEST, GW_QSGD_WIDEST, NULL, NULL, "bits of a code"},
    {"bucket", GW_OPT_INT, "512", GW_BLOCK, 1 << 30, NULL, NULL,
     "floats that share a scale, a multiple of 64"},
    {"rounding", GW_OPT_CHOICE, "stochastic", 0, 0, "stochastic|nearest", NULL,
     "at random, so that the mean is right; or to the nearest level, which is biased"},
    {0}};

static gw_err open_qsgd(void **self, const gw_args *args) {
    long long bucket = gw_args_int(args, "bucket");
    if (bucket % GW_BLOCK)
        return gw_fail(GW_ERR_USAGE, "qsgd: bucket=%lld: must be a multiple of %d", bucket,
                       GW_BLOCK);
    const gw_qsgd_level *level;
    GW_TRY(gw_qsgd_pick(&level));
    qsgd *q = NULL;
    GW_TRY(gw_alloc(&q, 1, sizeof *q));
    q->bits = (unsigned)gw_args_int(args, "bits");
    q->bucket = (size_t)bucket;
    q->levels = (float)((1 << (q->bits - 1)) - 1);
    q->nearest = strcmp(gw_args_text(args, "rounding"), "nearest") == 0;
    q->k = level->width[q->bits - GW_QSGD_NARROWEST];
    *self = q;
    return GW_OK;
}

static void close_qsgd(void *self) {
    qsgd *q = self;
    if (q)
        gw_scratch_clear(&q->scratch);
    free(q);
}

static unsigned traits(const void *self) {
    const qsgd *q = self;
    return GW_CODEC_FIXED | (q->nearest ? GW_CODEC_BIASED : GW_CODEC_UNBIASED);
}

static size_t scales_bytes(const qsgd *q, size_t n) {
    return (n / q->bucket + (n % q->bucket != 0)) * SCALE_BYTES;
}

static size_t codes_bytes(const qsgd *q, size_t n) {
    return n / 8 * q->bits + (n % 8 * q->bits + 7) / 8;
}

static size_t bound(const void *self, size_t n) {
    return scales_bytes(self, n) + codes_bytes(self, n);
}

static gw_err encode_plain(const qsgd *q, gw_turn turn, const float *x, size_t n, void *out,
                           size_t *len) {
    gw_qsgd_encoding e = {x,
                          q->bucket,
                          q->levels,
                          turn.key,
                          (gw_u32u *)(void *)((unsigned char *)out + codes_bytes(q, n)),
                          out};
    gw_simd_split(n, q->bucket, q->k.encode, &e);
    *len = bound(q, n);
    return GW_OK;
}

/* The level nearest to each element of a bucket; a bucket that is not finite stays as it is. */
static void to_nearest(float *y, const float *x, size_t n, float levels) {
    float top = 0;
    bool finite = true;
    for (size_t i = 0; i < n; i++) {
        top = fmaxf(top, fabsf(x[i]));
        finite &= isfinite(x[i]);
    }
    for (size_t i = 0; i < n; i++)
        y[i] = finite && top > 0 ? roundf(x[i] / top * levels) / levels * top : x[i];
}

/* What lies on a level is not rounded at random any more, so the same kernels serve. */
static gw_err encode_nearest(qsgd *q, gw_turn turn, const float *x, size_t n, void *out,
                             size_t *len) {
    float *y;
    gw_block *block;
    GW_TRY(gw_scratch_take(&q->scratch, "qsgd", n * sizeof *y, &y, &block));
    for (size_t lo = 0; lo < n; lo += q->bucket)
        to_nearest(y + lo, x + lo, n - lo < q->bucket ? n - lo : q->bucket, q->levels);
    gw_err e = encode_plain(q, turn, y, n, out, len);
    gw_scratch_give(&q->scratch, block);
    return e;
}

static gw_err encode(const void *self, gw_turn turn, const float *x, size_t n, void *out,
                     size_t cap, size_t *len) {
    (void)cap;
    qsgd *q = (qsgd *)self; /* for its scratch; nothing else changes */
    return q->nearest ? encode_nearest(q, turn, x, n, out, len)
                      : encode_plain(q, turn, x, n, out, len);
}

static gw_err decode(const void *self, const void *in, size_t len, float *y, size_t n,
                     gw_into into) {
    const qsgd *q = self;
    if (len != bound(q, n))
        return gw_fail(GW_ERR_CORRUPT, "qsgd: %zu bytes for %zu floats, expected %zu", len, n,
                       bound(q, n));
    gw_qsgd_decoding d = {
        y, q->bucket, q->levels,
        (const gw_u32u *)(const void *)((const unsigned char *)in + codes_bytes(q, n)), in};
    gw_simd_split(n, q->bucket, into == GW_INTO_ADD ? q->k.decode_add : q->k.decode, &d);
    return GW_OK;
}

const gw_codec_ops gw_codec_qsgd = {
    .head = {GW_CODEC_ABI, "qsgd",
             "stochastic rounding, max norm a bucket (2.06 to 8.06 bits an element)", opts},
    .caps = GW_CODEC_UNBIASED | GW_CODEC_FIXED,
    .open = open_qsgd,
    .close = close_qsgd,
    .traits = traits,
    .bound = bound,
    .encode = encode,
    .decode = decode,
};
