/* int8sum: stochastic rounding to 8-bit codes on a scale that all ranks share, so that MPI itself
 * can add the codes as integers. The shared scale: W. Wen, C. Xu, F. Yan, C. Wu, Y. Wang, Y. Chen,
 * H. Li, "TernGrad: Ternary Gradients to Reduce Communication in Distributed Deep Learning", NIPS
 * 2017; integers that a plain allreduce adds: K. Mishchenko, B. Wang, D. Kovalev, P. Richtarik,
 * "IntSGD: Adaptive Floatless Compression of Stochastic Gradients", ICLR 2022.
 *
 *   a bucket of B floats over P ranks, m = max |x| of all ranks, L = floor(127 / P) levels:
 *   code = floor(t + u),  t = L x / m in steps of 2^-16,  u uniform in {0, ..., 65535} / 65536
 *   value of a code, or of a sum of codes = code * (m / L)
 *
 * |code| <= L, so a sum of P codes stays within +-127; more than 127 ranks are refused. The error
 * of an element is below m / L, that of the sum of P values below P m / L. E[value] = x except for
 * the steps of t, a bias of up to m / (L 2^17), and a few float roundings; in particular
 * |x| < m / (L 2^17) is never sent. With algo=native the ranks first agree on m by MPI_MAX. Other
 * algorithms encode each span with its own m and the levels for P ranks: such encodings cannot be
 * summed, so the codec is linear only behind an agreed prefix.
 *
 * Wire format, n floats, K = ceil(n / B) buckets:
 *   K scales m, one a bucket, binary32 in host order for MPI's own maximum: the prefix, equal on
 *           all ranks that sum; the ranks of a job share one byte order
 *   n codes, int8_t
 * 8 + 32 / B bits an element: 8.06 with B = 512.
 *
 * A NaN or an infinity makes its bucket's scale +Inf, which any maximum keeps: that bucket alone
 * decodes to NaN, on all ranks. A bucket whose m is below 2^-100 is sent as zeros. */
#include "compress/bucket.h"
#include "compress/kernel/qsgd.h"

#include <stdlib.h>

enum { MOST_CODE = 127 };

typedef struct int8sum {
    gw_bucketed b; /* first */
    const gw_qsgd_level *k;
} int8sum;

static const gw_opt int8sum_opts[] = {{"bucket", GW_OPT_INT, "512", GW_BLOCK, 65536, NULL, NULL,
                                       "floats that share a scale, a multiple of 64"},
                                      {0}};

static gw_err int8sum_open(void **self, const gw_args *args) {
    static const gw_qsgd_level *const levels[] = GW_SIMD_TABLE(gw_qsgd);
    gw_simd level;
    GW_TRY(gw_bucketed_open(self, args, "int8sum", GW_BLOCK, sizeof(int8sum), &level));
    int8sum *c = *self;
    c->k = levels[level];
    c->b.levels = MOST_CODE;
    return GW_OK;
}

static gw_err int8sum_join(void *self, int ranks) {
    if (ranks > MOST_CODE)
        return gw_fail(GW_ERR_UNSUPPORTED,
                       "int8sum: %d ranks: the sum of more than %d codes could overflow an int8; "
                       "use qsgd",
                       ranks, MOST_CODE);
    ((int8sum *)self)->b.levels = (float)(MOST_CODE / ranks);
    return GW_OK;
}

static size_t int8sum_prefix(const void *self, size_t n) {
    return gw_bucketed_count(self, n) * sizeof(float);
}

static size_t int8sum_bound(const void *self, size_t n) {
    return int8sum_prefix(self, n) + n;
}

static gw_bucket_encoding int8sum_encoding(const int8sum *c, const float *x, size_t n, uint64_t key,
                                           void *out) {
    return (gw_bucket_encoding){.x = x,
                                .bucket = c->b.bucket,
                                .levels = c->b.levels,
                                .key = key,
                                .heads = out,
                                .codes = (unsigned char *)out + int8sum_prefix(c, n)};
}

static void int8sum_measure(const void *self, const float *x, size_t n, void *out) {
    const int8sum *c = self;
    gw_bucket_encoding e = int8sum_encoding(c, x, n, 0, out);
    gw_simd_split(n, c->b.bucket, c->k->measure, &e);
}

static gw_err int8sum_encode(const void *self, gw_turn turn, const float *x, size_t n, void *out,
                             size_t cap, size_t *len) {
    (void)cap;
    const int8sum *c = self;
    gw_bucket_encoding e = int8sum_encoding(c, x, n, turn.key, out);
    gw_simd_split(n, c->b.bucket, c->k->encode_agreed, &e);
    *len = int8sum_bound(c, n);
    return GW_OK;
}

static gw_err int8sum_decode(const void *self, const void *in, size_t len, float *y, size_t n,
                             gw_into into) {
    (void)len;
    const int8sum *c = self;
    const gw_bucket_kernels *k = &c->k->width[8 - GW_QSGD_NARROWEST];
    gw_bucket_decoding d = {.y = y,
                            .bucket = c->b.bucket,
                            .levels = c->b.levels,
                            .heads = in,
                            .codes = (const unsigned char *)in + int8sum_prefix(c, n),
                            .host_order = true};
    gw_simd_split(n, c->b.bucket, into == GW_INTO_ADD ? k->decode_add : k->decode, &d);
    return GW_OK;
}

const gw_codec_ops gw_codec_int8sum = {
    .head = {GW_CODEC_ABI, "int8sum",
             "integers on a scale that all ranks share, rounded at random; MPI sums them",
             int8sum_opts},
    .caps = GW_CODEC_UNBIASED | GW_CODEC_FIXED | GW_CODEC_LINEAR,
    .open = int8sum_open,
    .close = free,
    .join = int8sum_join,
    .bound = int8sum_bound,
    .encode = int8sum_encode,
    .decode = int8sum_decode,
    .add = gw_bucketed_add_int8,
    .unit_bytes = 1,
    .sum = GW_SUM_INT8,
    .prefix = int8sum_prefix,
    .measure = int8sum_measure,
};
