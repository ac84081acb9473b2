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
 * rounding=correlated: the ranks' errors of one element cancel in their sum. A. T. Suresh, Z. Sun,
 * J. H. Ro, F. Yu, "Correlated Quantization for Distributed Mean Estimation and Optimization", ICML
 * 2022; in allreduces: "DynamiQ", arXiv 2602.08923, 2026. Rank r of P draws
 *   u = (pi(r) + gamma) / P,  gamma uniform in {0, ..., 65535} / 65536, rounded down to 2^-16
 * where pi is a random permutation of 0 .. P-1, another one for each element, that all ranks draw
 * alike (gw_turn.common), and gamma is the rank's own. u is as uniform as above, so a rank's error
 * has the same distribution; but the P offsets of an element lie one in each P-th of [0, 1), and of
 * P equal values the mean has an error of variance (m / L)^2 / 6 P^2 on average, not / 6 P.
 * That helps where encodings of ranks' own values are all that is summed (algo=gathersum,
 * doubling). A sum that is encoded again (at each hop of a ring, by the owner of a slice in sra)
 * draws as rounding=stochastic does, with an error that hides the gain: offsets that depend on
 * those before would bias it. So does a rank that knows of no others. P words an element are drawn,
 * in plain C.
 *
 * A NaN or an infinity makes the scale of its bucket NaN; that bucket alone decodes to NaN. A
 * bucket whose m is below 2^-100 is sent as zeros, since 1 / m would overflow; error feedback keeps
 * what is dropped. */
#include "compress/kernel/qsgd.h"
#include "base/clones.h"
#include "base/norm.h"
#include "base/rng.h"
#include "compress/bucket.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct qsgd {
    gw_bucketed b; /* first */
    unsigned bits;
    bool nearest;
    gw_bucket_part *alone; /* rounding=stochastic */
} qsgd;

static const gw_opt qsgd_opts[] = {{"bits", GW_OPT_INT, "8", GW_QSGD_NARROWEST, GW_QSGD_WIDEST,
                                    NULL, NULL, "bits per element, besides the scales"},
                                   {"bucket", GW_OPT_INT, "512", GW_BLOCK, 1 << 30, NULL, NULL,
                                    "floats that share a scale, a multiple of 64"},
                                   {"rounding", GW_OPT_CHOICE, "stochastic", 0, 0,
                                    "stochastic|nearest|correlated", NULL,
                                    "at random (unbiased), to the nearest level (biased), or at "
                                    "random so that ranks' errors cancel (unbiased)"},
                                   {0}};

static size_t qsgd_codes_bytes(const void *self, size_t n) {
    const qsgd *q = self;
    return n / 8 * q->bits + (n % 8 * q->bits + 7) / 8;
}

/* ---- rounding=nearest and rounding=correlated, in plain C ---- */

/* The first n codes of a block: 8 are `bits` bytes. */
static void qsgd_pack_codes(unsigned bits, const int32_t *codes, size_t n, unsigned char *out) {
    unsigned char block[GW_BLOCK], *to = block;
    for (size_t i = 0; i < n; i += 8) {
        uint64_t held = 0, mask = (1u << bits) - 1;
        for (unsigned k = 0; k < 8; k++)
            held |= ((uint64_t)codes[i + k] & mask) << bits * k;
        for (unsigned k = 0; k < bits; k++)
            *to++ = (unsigned char)(held >> 8 * k);
    }
    memcpy(out, block, (n * bits + 7) / 8);
}

/* Codes of floats [at, at + n) of the span, which lie in one block; top: their bucket's peak. */
typedef void qsgd_round(const gw_bucket_encoding *e, size_t at, size_t n, float top,
                        int32_t *codes);

static void qsgd_encode_plain(const gw_bucket_encoding *e, size_t lo, size_t hi,
                              qsgd_round *round) {
    const qsgd *q = e->codec;
    for (; lo < hi; lo += e->bucket) {
        size_t n = hi - lo < e->bucket ? hi - lo : e->bucket;
        uint32_t top = gw_norm_greatest(e->x + lo, n),
                 scale = top < GW_QSGD_MOST ? top : GW_QSGD_MOST;
        bool sent = top >= GW_SCALE_TINY && top < GW_SCALE_INFINITE;
        e->scales[lo / e->bucket] = gw_le32(sent ? scale : top < GW_SCALE_TINY ? 0 : GW_SCALE_NAN);
        for (size_t i = 0; i < n; i += GW_BLOCK) {
            int32_t codes[GW_BLOCK] = {0};
            size_t m = n - i < GW_BLOCK ? n - i : GW_BLOCK;
            if (sent)
                round(e, lo + i, m, gw_float_of(top), codes);
            qsgd_pack_codes(q->bits, codes, m, e->codes + (lo + i) / 8 * q->bits);
        }
    }
}

static void qsgd_round_nearest(const gw_bucket_encoding *e, size_t at, size_t n, float top,
                               int32_t *codes) {
    for (size_t i = 0; i < n; i++)
        codes[i] = (int32_t)lrintf(e->x[at + i] / top * e->levels);
}

static void qsgd_encode_nearest(void *ctx, size_t lo, size_t hi) {
    qsgd_encode_plain(ctx, lo, hi, qsgd_round_nearest);
}

/* A word for each element of a block. */
static inline uint32_t qsgd_word(uint64_t seed, uint32_t i) {
    return gw_qsgd_mix(seed, i) * GW_QSGD_MUL2;
}

/* +1 where the word of `seed` is below that of `mine`, or equal if `first`. */
GW_CLONES static void qsgd_count_below(uint64_t seed, bool first, uint64_t mine, int32_t *below) {
    for (uint32_t i = 0; i < GW_BLOCK; i++) {
        uint32_t word = qsgd_word(seed, i), own = qsgd_word(mine, i);
        below[i] += (word < own) | ((word == own) & first);
    }
}

/* t + u, u = (pi + gamma) / P, in steps of 2^-16. */
GW_CLONES static void qsgd_round_strata(const float *restrict x, float inv, uint64_t seed,
                                        double part, int32_t *restrict codes) {
    for (uint32_t i = 0; i < GW_BLOCK; i++) {
        double place = (double)codes[i] * 65536 + (int32_t)(qsgd_word(seed, i) >> 16);
        codes[i] = ((int32_t)rintf(x[i] * inv) + (int32_t)((place + 0.5) * part)) >> 16;
    }
}

/* pi(rank) is how many ranks draw a lower word than this one: of all permutations each is equally
 * likely. */
static void qsgd_round_correlated(const gw_bucket_encoding *e, size_t at, size_t n, float top,
                                  int32_t *codes) {
    const gw_turn *t = e->turn;
    uint64_t common = gw_rng_key(t->common, at / GW_BLOCK);
    uint64_t mine = gw_rng_u64(common, (uint64_t)t->rank);
    float x[GW_BLOCK] = {0};
    memcpy(x, e->x + at, n * sizeof *x);
    for (int r = 0; r < t->ranks; r++)
        if (r != t->rank)
            qsgd_count_below(gw_rng_u64(common, (uint64_t)r), r < t->rank, mine, codes);
    qsgd_round_strata(x, e->levels * 65536.0f / top, gw_rng_u64(e->key, at / GW_BLOCK),
                      1.0 / t->ranks, codes);
    memset(codes + n, 0, (GW_BLOCK - n) * sizeof *codes);
}

static void qsgd_encode_correlated(void *ctx, size_t lo, size_t hi) {
    const gw_bucket_encoding *e = ctx;
    if (e->turn->ranks < 2)
        ((const qsgd *)e->codec)->alone(ctx, lo, hi);
    else
        qsgd_encode_plain(e, lo, hi, qsgd_round_correlated);
}

/* ---- the codec ---- */

static gw_err qsgd_open(void **self, const gw_args *args) {
    static const gw_qsgd_level *const levels[] = GW_SIMD_TABLE(gw_qsgd);
    gw_simd level;
    GW_TRY(gw_bucketed_open(self, args, "qsgd", GW_BLOCK, sizeof(qsgd), &level));
    qsgd *q = *self;
    q->bits = (unsigned)gw_args_int(args, "bits");
    const char *rounding = gw_args_text(args, "rounding");
    q->nearest = strcmp(rounding, "nearest") == 0;
    q->b.k = levels[level]->width[q->bits - GW_QSGD_NARROWEST];
    q->b.levels = (float)((1 << (q->bits - 1)) - 1);
    q->b.head_bytes = sizeof(float);
    q->b.codes_bytes = qsgd_codes_bytes;
    q->alone = q->b.k.encode;
    if (q->nearest)
        q->b.k.encode = qsgd_encode_nearest;
    else if (strcmp(rounding, "correlated") == 0)
        q->b.k.encode = qsgd_encode_correlated;
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
