/* adaptive: qsgd whose buckets have widths of their own, from 2 to 8 bits, as few in all as the
 * error of one width for all of them allows. M. Alimohammadi, I. Markov, E. Frantar, D. Alistarh,
 * "L-GreCo: Layerwise-adaptive gradient compression for efficient and accurate deep learning",
 * MLSys 2024, chooses so for layers, every few epochs, by dynamic programming over what codecs were
 * measured to lose. Here the parts are buckets, and each encoding chooses anew by its own scales:
 * nothing is kept from step to step, and it works where a span is cut at any place.
 *
 *   a bucket of n floats with scale s = max |x|, w bits, L(w) = 2^(w-1) - 1 levels: its squared
 *   error is n s^2 / 6 L(w)^2 on average, where what is left of x L / s is spread evenly
 *   least sum of n w, so that sum of n s^2 / L(w)^2 <= sum of n s^2 / L(bits)^2
 *
 * An extra bit gains less error the wider the bucket is, so the choice is that of a price: each
 * bucket is widened while a bit gains at least `price`, which is the highest that keeps within the
 * error (H. Everett, "Generalized Lagrange multiplier method for solving problems of optimum
 * allocation of resources", Operations Research 11, 1963). It falls short of the best choice by
 * less than a bit of one bucket, or of those with equal scales. If `bits` for all were no more
 * bytes, all have them.
 *
 * Where all scales are alike nothing is gained; the more they differ, the more. With bits=8 nothing
 * is: no bucket could make up for another.
 *
 * Wire format, n floats, K = ceil(n / bucket) buckets:
 *   K widths, a byte each: 0 of a bucket of zeros
 *   codes of one bucket behind another, as qsgd's: ceil(n w / 8) bytes
 *   K scales, little-endian binary32
 * At most `bits` + 40 / bucket bits an element.
 *
 * Values, NaN and infinities as in qsgd; a bucket that decodes to NaN has the least width. */
#include "base/clones.h"
#include "base/rng.h"
#include "compress/bucket.h"
#include "compress/kernel/qsgd.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { WIDTHS = GW_QSGD_WIDEST - GW_QSGD_NARROWEST + 1, HALVINGS = 30, HEAD = 5 };

typedef struct adaptive {
    gw_bucketed b; /* first; of it the bucket alone */
    int bits;
    const gw_qsgd_level *level;
    double error[WIDTHS]; /* 1 / L^2 of each width */
} adaptive;

static const gw_opt adaptive_opts[] = {{"bits", GW_OPT_INT, "4", GW_QSGD_NARROWEST, GW_QSGD_WIDEST,
                                        NULL, NULL, "bits of the qsgd whose error is allowed"},
                                       {"bucket", GW_OPT_INT, "512", GW_BLOCK, 1 << 30, NULL, NULL,
                                        "floats that share a scale and a width, a multiple of 64"},
                                       {0}};

static float adaptive_levels(int width) {
    return (float)((1 << (width - 1)) - 1);
}

static gw_err adaptive_open(void **self, const gw_args *args) {
    static const gw_qsgd_level *const levels[] = GW_SIMD_TABLE(gw_qsgd);
    gw_simd level;
    GW_TRY(gw_bucketed_open(self, args, "adaptive", GW_BLOCK, sizeof(adaptive), &level));
    adaptive *a = *self;
    a->bits = (int)gw_args_int(args, "bits");
    a->level = levels[level];
    for (int i = 0; i < WIDTHS; i++)
        a->error[i] = pow(adaptive_levels(GW_QSGD_NARROWEST + i), -2);
    return GW_OK;
}

static size_t adaptive_floats(const adaptive *a, size_t n, size_t bucket) {
    size_t at = bucket * a->b.bucket;
    return n - at < a->b.bucket ? n - at : a->b.bucket;
}

static size_t adaptive_bytes(size_t floats, int width) {
    return (floats * (size_t)width + 7) / 8;
}

/* Whole buckets are whole blocks, so no bits of a code are lost between two. */
static size_t adaptive_bound(const void *self, size_t n) {
    const adaptive *a = self;
    return gw_bucketed_count(&a->b, n) * HEAD + n / 8 * (size_t)a->bits +
           adaptive_bytes(n % 8, a->bits);
}

/* ---- widths ---- */

/* What a price comes to, in units of whole buckets. */
typedef struct sums {
    double error, bits;
} sums;

/* One that is sent as zeros, or as NaN, has no say. */
static inline double adaptive_square(uint32_t bits) {
    float scale = gw_float_of(bits);
    return scale >= 0x1p-100f && scale < INFINITY ? (double)scale * (double)scale : 0;
}

GW_CLONES static sums adaptive_total(const gw_u32u *scale, size_t buckets, const double *error,
                                     double price) {
    double e = 0, bits = 0;
    for (size_t i = 0; i < buckets; i++) {
        double square = adaptive_square(scale[i]), left = error[0], wider = 0;
        for (int w = 1; w < WIDTHS; w++) {
            double gain = error[w - 1] - error[w];
            bool widen = square > 0 && square * gain >= price;
            left -= widen ? gain : 0;
            wider += widen;
        }
        e += square * left;
        bits += square > 0 ? GW_QSGD_NARROWEST + wider : 0;
    }
    return (sums){e, bits};
}

static int adaptive_width(const adaptive *a, uint32_t scale, double price) {
    double square = adaptive_square(scale);
    int width = GW_QSGD_NARROWEST;
    if (square == 0)
        return scale < GW_SCALE_INFINITE ? 0 : width;
    for (int w = 1; w < WIDTHS; w++)
        width += square * (a->error[w - 1] - a->error[w]) >= price;
    return width;
}

/* All buckets; the last may be short. */
static sums adaptive_sums(const adaptive *a, const gw_u32u *scale, size_t n, double price) {
    size_t whole = n / a->b.bucket, rest = n % a->b.bucket;
    sums all = adaptive_total(scale, whole, a->error, price);
    if (rest) {
        double part = (double)rest / (double)a->b.bucket;
        sums last = adaptive_total(scale + whole, 1, a->error, price);
        all.error += part * last.error;
        all.bits += part * last.bits;
    }
    return all;
}

/* The highest price whose error is at most `most`, from one that has it: `low`. */
static double adaptive_price(const adaptive *a, const gw_u32u *scale, size_t n, double most,
                             double low, double high) {
    for (int i = 0; i < HALVINGS && low < high; i++) {
        double mid = sqrt(low) * sqrt(high);
        *(adaptive_sums(a, scale, n, mid).error <= most ? &low : &high) = mid;
    }
    return low;
}

static void adaptive_choose(const adaptive *a, const gw_u32u *scale, size_t n,
                            unsigned char *widths) {
    size_t buckets = gw_bucketed_count(&a->b, n);
    double least = INFINITY, largest = 0, uniform = 0, live = 0;
    int at = a->bits - GW_QSGD_NARROWEST;
    for (size_t i = 0; i < buckets; i++) {
        double square = adaptive_square(scale[i]);
        double part = (double)adaptive_floats(a, n, i) / (double)a->b.bucket;
        least = square > 0 && square < least ? square : least;
        largest = square > largest ? square : largest;
        uniform += part * square;
        live += square > 0 ? part : 0;
    }
    double most = uniform * a->error[at] * (1 + 0x1p-40); /* sums in another order are rounded */
    double gain = at > 0 ? a->error[at - 1] - a->error[at] : 0, price = 0;
    bool chosen = at > 0 && at < WIDTHS - 1 && largest > 0;
    if (chosen) { /* at the least one's price all have `bits` or more; above the largest's, fewer */
        price = adaptive_price(a, scale, n, most, least * gain, 2 * largest * gain);
        chosen = adaptive_sums(a, scale, n, price).bits < live * a->bits;
    }
    for (size_t i = 0; i < buckets; i++)
        widths[i] = (unsigned char)(chosen ? adaptive_width(a, scale[i], price)
                                    : adaptive_square(scale[i]) > 0 ? a->bits
                                    : scale[i] < GW_SCALE_INFINITE  ? 0
                                                                    : GW_QSGD_NARROWEST);
}

/* ---- buckets ---- */

typedef struct job {
    const adaptive *a;
    const float *x;
    float *y;
    size_t n;
    gw_turn turn;
    gw_u32u *scales;
    unsigned char *widths, *codes;
    bool add;
} job;

static job adaptive_job(const adaptive *a, size_t n, const void *wire) {
    unsigned char *at = (unsigned char *)wire; /* decode only reads */
    size_t buckets = gw_bucketed_count(&a->b, n);
    return (job){.a = a, .n = n, .widths = at, .codes = at + buckets};
}

/* Codes before those of a bucket; of all buckets in the end. */
static size_t adaptive_before(const job *j, size_t bucket) {
    size_t bytes = 0;
    for (size_t i = 0; i < bucket; i++)
        bytes += adaptive_bytes(adaptive_floats(j->a, j->n, i), j->widths[i]);
    return bytes;
}

static void adaptive_measure_part(void *ctx, size_t lo, size_t hi) {
    const job *j = ctx;
    gw_bucket_encoding e = {.x = j->x, .bucket = j->a->b.bucket, .scales = j->scales};
    j->a->level->measure(&e, lo, hi);
}

static void adaptive_encode_part(void *ctx, size_t lo, size_t hi) {
    const job *j = ctx;
    size_t bucket = j->a->b.bucket;
    unsigned char *codes = j->codes + adaptive_before(j, lo / bucket);
    for (; lo < hi; lo += bucket) {
        size_t n = hi - lo < bucket ? hi - lo : bucket, number = lo / bucket;
        int width = j->widths[number];
        gw_bucket_encoding e = {.x = j->x + lo,
                                .bucket = bucket,
                                .levels = width ? adaptive_levels(width) : 0,
                                .key = gw_rng_key(j->turn.key, number),
                                .scales = j->scales + number,
                                .codes = codes};
        if (width)
            j->a->level->width[width - GW_QSGD_NARROWEST].encode(&e, 0, n);
        else
            j->scales[number] = 0;
        codes += adaptive_bytes(n, width);
    }
}

static void adaptive_decode_part(void *ctx, size_t lo, size_t hi) {
    const job *j = ctx;
    size_t bucket = j->a->b.bucket;
    const unsigned char *codes = j->codes + adaptive_before(j, lo / bucket);
    for (; lo < hi; lo += bucket) {
        size_t n = hi - lo < bucket ? hi - lo : bucket;
        int width = j->widths[lo / bucket];
        gw_bucket_decoding d = {.y = j->y + lo,
                                .bucket = bucket,
                                .levels = width ? adaptive_levels(width) : 0,
                                .scales = j->scales + lo / bucket,
                                .codes = codes};
        const gw_bucket_kernels *k = &j->a->level->width[width ? width - GW_QSGD_NARROWEST : 0];
        if (width)
            (j->add ? k->decode_add : k->decode)(&d, 0, n);
        else if (!j->add)
            memset(j->y + lo, 0, n * sizeof *j->y);
        codes += adaptive_bytes(n, width);
    }
}

/* ---- the codec ---- */

/* Scales are first written where they would be at the longest, for the choice alone. */
static gw_err adaptive_encode(const void *self, gw_turn turn, const float *x, size_t n, void *out,
                              size_t cap, size_t *len) {
    (void)cap;
    job j = adaptive_job(self, n, out);
    size_t buckets = gw_bucketed_count(&j.a->b, n), most = adaptive_bound(self, n);
    j.x = x;
    j.turn = turn;
    j.scales = (gw_u32u *)(void *)((char *)out + most - buckets * sizeof(float));
    gw_simd_split(n, j.a->b.bucket, adaptive_measure_part, &j);
    adaptive_choose(j.a, j.scales, n, j.widths);
    size_t codes = adaptive_before(&j, buckets);
    j.scales = (gw_u32u *)(void *)(j.codes + codes);
    gw_simd_split(n, j.a->b.bucket, adaptive_encode_part, &j);
    *len = buckets * HEAD + codes;
    return GW_OK;
}

static gw_err adaptive_decode(const void *self, const void *in, size_t len, float *y, size_t n,
                              gw_into into) {
    job j = adaptive_job(self, n, in);
    size_t buckets = gw_bucketed_count(&j.a->b, n);
    bool whole = len >= buckets * HEAD;
    for (size_t i = 0; whole && i < buckets; i++)
        whole = j.widths[i] <= GW_QSGD_WIDEST && j.widths[i] != 1;
    if (!whole || len != buckets * HEAD + adaptive_before(&j, buckets))
        return gw_fail(
            GW_ERR_CORRUPT,
            "adaptive: %zu bytes are no encoding of %zu floats: widths and codes do not add up",
            len, n);
    j.scales = (gw_u32u *)(void *)(j.codes + adaptive_before(&j, buckets));
    j.y = y;
    j.add = into == GW_INTO_ADD;
    gw_simd_split(n, j.a->b.bucket, adaptive_decode_part, &j);
    return GW_OK;
}

const gw_codec_ops gw_codec_adaptive = {
    .head = {GW_CODEC_ABI, "adaptive",
             "qsgd with a width for each bucket: fewest bits for the error of one width",
             adaptive_opts},
    .caps = GW_CODEC_UNBIASED,
    .open = adaptive_open,
    .close = free,
    .bound = adaptive_bound,
    .encode = adaptive_encode,
    .decode = adaptive_decode,
};
