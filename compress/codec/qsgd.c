/* qsgd: stochastic rounding to 2 to 8 bits. D. Alistarh, D. Grubic, J. Li, R. Tomioka,
 * M. Vojnovic, "QSGD: Communication-Efficient SGD via Gradient Quantization and Encoding", NIPS
 * 2017, with the max norm for scale and a fixed code length.
 *
 *   a bucket of B floats, m = max |x|, L = 2^(bits-1) - 1 levels (127, 63, 31, 15, 7, 3, 1):
 *   code = floor(t + u),  t = L x / m in steps of 2^-16,  u uniform in {0, ..., 65535} / 65536
 *   value = code * (m / L)
 *
 * so the error of an element is below m / L, and x and -x have mirrored distributions. E[value] = x
 * except for the steps of t, a bias of up to m / (L 2^17), and a few float roundings; in particular
 * |x| < m / (L 2^17) is never sent. u depends on (key, bucket, element) only: see kernel/qsgd.h.
 *
 * Wire format, n floats, K = ceil(n / B) buckets:
 *   ceil(n * bits / 8) bytes of codes, two's complement, element i in bits [i * bits, (i+1) * bits)
 *                      counted from the lowest bit of the first byte; unused bits are zero
 *   K scales m, little-endian binary32, one a bucket
 * The codes come first, so that they are aligned if the buffer is.
 * bits + 32 / B bits an element: 8.06, 7.06 .. 2.06 with B = 512.
 *
 * rounding=nearest takes the integer nearest to L (x / m), ties to even, and ignores the key. The
 * error of an element is at most m / 2L, besides float rounding, but it is biased and needs error
 * feedback. It exists to compare with stochastic rounding, has the same wire format and runs in
 * plain C only.
 *
 * A NaN or an infinity makes the scale of its bucket NaN; that bucket alone decodes to NaN. A
 * bucket whose m is below 2^-100 is sent as zeros, since 1 / m would overflow; error feedback keeps
 * what is dropped. */
#include "compress/kernel/qsgd.h"
#include "compress/bucket.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct qsgd {
    gw_bucketed b; /* first */
    unsigned bits;
    bool nearest;
} qsgd;

static const gw_opt qsgd_opts[] = {{"bits", GW_OPT_INT, "8", GW_QSGD_NARROWEST, GW_QSGD_WIDEST,
                                    NULL, NULL, "bits per element, besides the scales"},
                                   {"bucket", GW_OPT_INT, "512", GW_BLOCK, 1 << 30, NULL, NULL,
                                    "floats that share a scale, a multiple of 64"},
                                   {"rounding", GW_OPT_CHOICE, "stochastic", 0, 0,
                                    "stochastic|nearest", NULL,
                                    "at random (unbiased) or to the nearest level (biased)"},
                                   {0}};

static size_t qsgd_codes_bytes(const void *self, size_t n) {
    const qsgd *q = self;
    return n / 8 * q->bits + (n % 8 * q->bits + 7) / 8;
}

/* ---- rounding=nearest ---- */

/* A NaN compares above all numbers. */
static uint32_t qsgd_peak(const float *x, size_t n) {
    uint32_t top = 0;
    for (size_t i = 0; i < n; i++) {
        uint32_t magnitude = gw_float_bits(x[i]) & 0x7fffffff;
        top = magnitude > top ? magnitude : top;
    }
    return top;
}

static void qsgd_pack_nearest(const qsgd *q, const float *x, size_t n, float top,
                              unsigned char *out) {
    uint32_t held = 0, mask = (1u << q->bits) - 1;
    unsigned have = 0;
    for (size_t i = 0; i < n; i++) {
        held |= ((uint32_t)lrintf(x[i] / top * q->b.levels) & mask) << have;
        for (have += q->bits; have >= 8; have -= 8, held >>= 8)
            *out++ = (unsigned char)held;
    }
    if (have)
        *out = (unsigned char)held;
}

static void qsgd_encode_nearest(void *ctx, size_t lo, size_t hi) {
    const gw_bucket_encoding *e = ctx;
    const qsgd *q = e->codec;
    for (; lo < hi; lo += e->bucket) {
        size_t n = hi - lo < e->bucket ? hi - lo : e->bucket;
        uint32_t top = qsgd_peak(e->x + lo, n), scale = top < GW_QSGD_MOST ? top : GW_QSGD_MOST;
        unsigned char *out = e->codes + lo / 8 * q->bits;
        bool sent = top >= GW_SCALE_TINY && top < GW_SCALE_INFINITE;
        if (sent)
            qsgd_pack_nearest(q, e->x + lo, n, gw_float_of(top), out);
        else
            memset(out, 0, qsgd_codes_bytes(q, n));
        e->scales[lo / e->bucket] = gw_le32(sent ? scale : top < GW_SCALE_TINY ? 0 : GW_SCALE_NAN);
    }
}

/* ---- the codec ---- */

static gw_err qsgd_open(void **self, const gw_args *args) {
    static const gw_qsgd_level *const levels[] = GW_SIMD_TABLE(gw_qsgd);
    gw_simd level;
    GW_TRY(gw_bucketed_open(self, args, "qsgd", GW_BLOCK, sizeof(qsgd), &level));
    qsgd *q = *self;
    q->bits = (unsigned)gw_args_int(args, "bits");
    q->nearest = strcmp(gw_args_text(args, "rounding"), "nearest") == 0;
    q->b.k = levels[level]->width[q->bits - GW_QSGD_NARROWEST];
    q->b.levels = (float)((1 << (q->bits - 1)) - 1);
    q->b.head_bytes = sizeof(float);
    q->b.codes_bytes = qsgd_codes_bytes;
    if (q->nearest)
        q->b.k.encode = qsgd_encode_nearest;
    return GW_OK;
}

static unsigned qsgd_traits(const void *self) {
    const qsgd *q = self;
    return GW_CODEC_FIXED | (q->nearest ? GW_CODEC_BIASED : GW_CODEC_UNBIASED);
}

const gw_codec_ops gw_codec_qsgd = {
    .head = {GW_CODEC_ABI, "qsgd",
             "integers scaled by the largest magnitude of each bucket, rounded at random",
             qsgd_opts},
    .caps = GW_CODEC_UNBIASED | GW_CODEC_FIXED,
    .open = qsgd_open,
    .close = free,
    .traits = qsgd_traits,
    .bound = gw_bucketed_bound,
    .encode = gw_bucketed_encode,
    .decode = gw_bucketed_decode,
};
