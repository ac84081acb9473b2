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
#include "compress/codec.h"

#include "compress/kernel/onebit.h"

#include <stdlib.h>

enum { SCALE_BYTES = 4 };

typedef struct onebit {
    size_t bucket; /* first */
    const gw_onebit_kernels *k;
} onebit;

static const gw_opt onebit_opts[] = {{"bucket", GW_OPT_INT, "512", GW_BLOCK, 65536, NULL, NULL,
                                      "floats that share a mean, a multiple of 64"},
                                     {0}};

static gw_err onebit_open(void **self, const gw_args *args) {
    static const gw_onebit_kernels *const levels[] = GW_SIMD_TABLE(gw_onebit);
    gw_simd level;
    GW_TRY(gw_bucket_open(self, args, "onebit", GW_BLOCK, sizeof(onebit), &level));
    ((onebit *)*self)->k = levels[level];
    return GW_OK;
}

static size_t onebit_signs_bytes(size_t n) {
    return n / 8 + (n % 8 != 0);
}

static size_t onebit_bound(const void *self, size_t n) {
    const onebit *o = self;
    return onebit_signs_bytes(n) + gw_bucket_count(n, o->bucket) * SCALE_BYTES;
}

static gw_onebit_encoding onebit_encoding_of(const onebit *o, const float *x, float *e, size_t n,
                                             void *out) {
    return (gw_onebit_encoding){
        x, e, o->bucket, (gw_u32u *)(void *)((unsigned char *)out + onebit_signs_bytes(n)), out};
}

static gw_err onebit_encode(const void *self, gw_turn turn, const float *x, size_t n, void *out,
                            size_t cap, size_t *len) {
    (void)turn, (void)cap;
    const onebit *o = self;
    gw_onebit_encoding c = onebit_encoding_of(o, x, NULL, n, out);
    gw_simd_split(n, o->bucket, o->k->encode, &c);
    *len = onebit_bound(o, n);
    return GW_OK;
}

static gw_err onebit_encode_feedback(const void *self, gw_turn turn, const float *x, float *e,
                                     size_t n, void *out, size_t cap, size_t *len) {
    (void)turn, (void)cap;
    const onebit *o = self;
    gw_onebit_encoding c = onebit_encoding_of(o, x, e, n, out);
    gw_simd_split(n, o->bucket, o->k->encode_feedback, &c);
    *len = onebit_bound(o, n);
    return GW_OK;
}

static gw_err onebit_decode(const void *self, const void *in, size_t len, float *y, size_t n,
                            gw_into into) {
    (void)len;
    const onebit *o = self;
    gw_onebit_decoding d = {
        y, o->bucket,
        (const gw_u32u *)(const void *)((const unsigned char *)in + onebit_signs_bytes(n)), in};
    gw_simd_split(n, o->bucket, into == GW_INTO_ADD ? o->k->decode_add : o->k->decode, &d);
    return GW_OK;
}

const gw_codec_ops gw_codec_onebit = {
    .head = {GW_CODEC_ABI, "onebit", "signs, and one mean magnitude per bucket", onebit_opts},
    .caps = GW_CODEC_BIASED | GW_CODEC_FIXED,
    .open = onebit_open,
    .close = free,
    .bound = onebit_bound,
    .encode = onebit_encode,
    .encode_feedback = onebit_encode_feedback,
    .decode = onebit_decode,
};
