/* qsgd: stochastic rounding to 2, 4 or 8 bits. D. Alistarh, D. Grubic, J. Li, R. Tomioka,
 * M. Vojnovic, "QSGD: Communication-Efficient SGD via Gradient Quantization and Encoding", NIPS
 * 2017, with the max norm for scale and a fixed code length.
 *
 *   a bucket of B floats, m = max |x|, L = 2^(bits-1) - 1 levels (127, 7, 1):
 *   code = floor(t + u),  t = L x / m in steps of 2^-16,  u uniform in {0, ..., 65535} / 65536
 *   value = code * (m / L)
 *
 * so E[value] = x to the rounding of a float, the error of an element is below m / L, and x and -x
 * round alike in distribution. u comes from (key, bucket, element) only: see kernel/qsgd.h.
 *
 * Wire format, n floats, K = ceil(n / B) buckets:
 *   K  scales m, little-endian binary32, one a bucket
 *   ceil(n * bits / 8) bytes of codes, two's complement, element i in bits [i * bits, (i+1) * bits)
 *                      counted from the lowest bit of the first byte; unused bits are zero
 * bits + 32 / B bits an element: 8.06, 4.06, 2.06 with B = 512.
 *
 * A NaN or an infinity makes the scale of its bucket NaN: that bucket, and no other, decodes to
 * NaN. A bucket whose m is below 2^-100 is sent as zeros: its 1 / m would leave the range of a
 * float, and error feedback, where it is on, keeps what is dropped. */
#include "compress/codec.h"

#include "base/mem.h"
#include "base/rng.h"
#include "compress/kernel/qsgd.h"

#include <stdlib.h>
#include <string.h>

enum { SCALE_BYTES = 4 };
#define INFINITE 0x7f800000u /* bit patterns */
#define QUIET    0x7fc00000u
#define TINY     0x0d800000u /* 2^-100 */

typedef struct qsgd {
    const gw_qsgd_kernels *k;
    unsigned bits;
    size_t bucket;
    float levels;
} qsgd;

static const gw_opt opts[] = {{"bits", GW_OPT_CHOICE, "8", 0, 0, "2|4|8", NULL, "bits of a code"},
                              {"bucket", GW_OPT_INT, "512", GW_BLOCK, 65536, NULL, NULL,
                               "floats that share a scale, a multiple of 64"},
                              {0}};

static gw_err open_qsgd(void **self, const gw_args *args) {
    long long bucket = gw_args_int(args, "bucket");
    if (bucket % GW_BLOCK)
        return gw_fail(GW_ERR_USAGE, "qsgd: bucket=%lld: must be a multiple of %d", bucket,
                       GW_BLOCK);
    gw_simd level;
    GW_TRY(gw_simd_pick(&level));
    qsgd *q = NULL;
    GW_TRY(gw_alloc(&q, 1, sizeof *q));
    q->bits = (unsigned)atoi(gw_args_text(args, "bits"));
    q->bucket = (size_t)bucket;
    q->levels = (float)((1 << (q->bits - 1)) - 1);
    q->k = gw_qsgd_portable;
#ifdef GW_X86
    if (level != GW_SIMD_PORTABLE)
        q->k = level == GW_SIMD_AVX512 ? gw_qsgd_avx512 : gw_qsgd_avx2;
#endif
    q->k += q->bits == 8 ? 2 : q->bits / 4;
    *self = q;
    return GW_OK;
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

typedef struct job {
    const qsgd *q;
    uint64_t key;
    const float *x;
    float *y;
    gw_u32u *scales_out;
    const gw_u32u *scales_in;
    unsigned char *codes_out;
    const unsigned char *codes_in;
    int add;
} job;

static uint32_t peak(const qsgd *q, const float *x, size_t n) {
    size_t tail = n % GW_BLOCK;
    uint32_t top = q->k->peak(x, n - tail);
    if (tail) {
        float rest[GW_BLOCK] = {0};
        memcpy(rest, x + n - tail, tail * sizeof *rest);
        uint32_t of_rest = q->k->peak(rest, GW_BLOCK);
        top = of_rest > top ? of_rest : top;
    }
    return top;
}

static void encode_bucket(const job *j, size_t bucket, size_t n, uint32_t top) {
    const qsgd *q = j->q;
    const float *x = j->x + bucket * q->bucket;
    unsigned char *out = j->codes_out + codes_bytes(q, bucket * q->bucket);
    if (top >= INFINITE || top < TINY) {
        j->scales_out[bucket] = gw_le32(top < TINY ? 0 : QUIET);
        memset(out, 0, codes_bytes(q, n));
        return;
    }
    j->scales_out[bucket] = gw_le32(top);
    /* |x| * inv rounds to at most levels * 2^16: the error of inv is below half a step there. */
    float inv = q->levels * 65536.0f / gw_float_of(top);
    uint64_t seed = gw_rng_u64(j->key, bucket);
    size_t tail = n % GW_BLOCK, full = n - tail;
    q->k->quantize(x, full, inv, seed, 0, out);
    if (tail) {
        float rest[GW_BLOCK] = {0};
        unsigned char codes[GW_BLOCK];
        memcpy(rest, x + full, tail * sizeof *rest);
        q->k->quantize(rest, GW_BLOCK, inv, seed, (uint32_t)(full / 2), codes);
        memcpy(out + codes_bytes(q, full), codes, codes_bytes(q, tail));
    }
}

/* The peak of the next bucket is found before this one is written, so that its latency, and that
 * of its cache misses, hides behind the work. */
static void encode_part(void *ctx, size_t lo, size_t hi) {
    const job *j = ctx;
    size_t width = j->q->bucket, bucket = lo / width;
    size_t n = hi - lo < width ? hi - lo : width;
    uint32_t top = peak(j->q, j->x + lo, n);
    while (lo < hi) {
        size_t next = lo + n, next_n = hi - next < width ? hi - next : width;
        uint32_t next_top = next_n ? peak(j->q, j->x + next, next_n) : 0;
        encode_bucket(j, bucket++, n, top);
        lo = next, n = next_n, top = next_top;
    }
}

static gw_err encode(const void *self, uint64_t key, const float *x, size_t n, void *out,
                     size_t cap, size_t *len) {
    (void)cap;
    const qsgd *q = self;
    job j = {.q = q, .key = key, .x = x, .scales_out = out};
    j.codes_out = (unsigned char *)out + scales_bytes(q, n);
    gw_simd_split(n, q->bucket, encode_part, &j);
    *len = bound(q, n);
    return GW_OK;
}

static void decode_part(void *ctx, size_t lo, size_t hi) {
    const job *j = ctx;
    const qsgd *q = j->q;
    void (*kernel)(const void *, size_t, float, float *) = j->add ? q->k->decode_add : q->k->decode;
    for (size_t bucket = lo / q->bucket; lo < hi; bucket++, lo += q->bucket) {
        size_t n = hi - lo < q->bucket ? hi - lo : q->bucket, tail = n % GW_BLOCK, full = n - tail;
        float step = gw_float_of(gw_le32(j->scales_in[bucket])) / q->levels, *y = j->y + lo;
        const unsigned char *in = j->codes_in + codes_bytes(q, lo);
        kernel(in, full, step, y);
        if (tail) {
            float rest[GW_BLOCK] = {0};
            unsigned char codes[GW_BLOCK] = {0};
            memcpy(codes, in + codes_bytes(q, full), codes_bytes(q, tail));
            memcpy(rest, y + full, tail * sizeof *rest);
            kernel(codes, GW_BLOCK, step, rest);
            memcpy(y + full, rest, tail * sizeof *rest);
        }
    }
}

static gw_err decode(const void *self, const void *in, size_t len, float *y, size_t n, int add) {
    const qsgd *q = self;
    if (len != bound(q, n))
        return gw_fail(GW_ERR_CORRUPT, "qsgd: %zu bytes for %zu floats, expected %zu", len, n,
                       bound(q, n));
    job j = {.q = q, .y = y, .scales_in = in, .add = add};
    j.codes_in = (const unsigned char *)in + scales_bytes(q, n);
    gw_simd_split(n, q->bucket, decode_part, &j);
    return GW_OK;
}

const gw_codec_ops gw_codec_qsgd = {
    .head = {GW_CODEC_ABI, "qsgd", "stochastic rounding, max norm a bucket (8.06 bits an element)",
             opts},
    .caps = GW_CODEC_UNBIASED | GW_CODEC_FIXED,
    .open = open_qsgd,
    .close = free,
    .bound = bound,
    .encode = encode,
    .decode = decode,
};
