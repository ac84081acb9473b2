/* thc: integers that can be added without decoding, of spans rotated at random. M. Li, R. Ben
 * Basat, S. Vargaftik, C. Lao, K. Xu, M. Mitzenmacher, M. Yu, "THC: Accelerating Distributed Deep
 * Learning Using Tensor Homomorphic Compression", NSDI 2024.
 *
 *   a bucket of B floats x over P ranks, H the Walsh-Hadamard matrix of order B over sqrt(B):
 *   x' = H (signs * x), random signs that all ranks draw alike: its elements are nearly normal
 *   M  = reach * max over the ranks of |x| / sqrt(B): what is beyond +-M is truncated to it, of a
 *        normal x' the fraction `truncate`
 *   a  = x' h / M, h = granularity / 2, rounded at random to the level below or above: E[level] = a
 *   value of a level, or of a sum of levels: signs * H (level M / h)
 *
 * There are 2^bits levels, integers in [-h, h] (the paper's table of 0 .. g, less g / 2, so that a
 * sum decodes alike for any P). They are symmetric, and of all such sets the one with the least
 * mean square error of a truncated normal a: of granularity 30 the 16 levels +-1 2 4 6 8 10 12 15.
 * Levels are what is sent, so only encoders need the table.
 *
 * Unbiased but for the truncation, for which it has error feedback. H is orthonormal: without
 * truncation the error's norm is at most sqrt(B) M / h times the widest gap between levels.
 *
 * With algo=native the ranks first agree on M by MPI_MAX, then MPI adds levels as int8_t. P h must
 * not exceed 127: 8 ranks at granularity 30; more are refused. So 8 bits an element travel, both
 * ways. The paper's 4 bits from a worker to whoever sums need a sum with wider lanes; `thc+zlib`
 * comes near them where an algorithm decodes (sra): 16 levels are few bits to deflate. There each
 * span has an M of its own.
 *
 * A shorter last bucket of n floats: B is the largest power of two not above n. The first B are
 * rotated, then the last B of the outcome; |x| is that of all n.
 *
 * Wire format, n floats, K = ceil(n / bucket) buckets; nothing for n = 0:
 *   signs   a whole number below 2^24 that they are drawn by; like
 *   K times M, binary32 in host order for MPI's own maximum: the prefix, equal on all ranks that
 *           sum; the ranks of a job share one byte order
 *   n levels, int8_t
 * 8 + 32 / bucket bits an element: 8.01 with 4096.
 *
 * A NaN or an infinity makes its bucket's M +Inf, which any maximum keeps: that bucket alone
 * decodes to NaN, on all ranks. A bucket whose M is below 2^-100 is sent as zeros. M is at most so
 * large that no encoding of one rank decodes to an infinity. */
#include "base/clones.h"
#include "base/rng.h"
#include "compress/bucket.h"
#include "compress/kernel/qsgd.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_BUCKET = 16384, MOST_HALF = 127, MOST_BITS = 7, SEED_BITS = 24, SUMS = 16 };

/* What lies in [k - half, k + 1 - half) is rounded to low[k] or to low[k] + gap[k]. */
typedef struct thc {
    gw_bucketed b; /* first; of it the bucket alone */
    int bits, half;
    double reach; /* M in standard deviations */
    float low[2 * MOST_HALF], gap[2 * MOST_HALF];
} thc;

static const gw_opt thc_opts[] = {
    {"bits", GW_OPT_INT, "4", 1, MOST_BITS, NULL, NULL, "2^bits levels"},
    {"granularity", GW_OPT_INT, "30", 2, 2 * MOST_HALF, NULL, NULL,
     "steps between the lowest and the highest level, an even number"},
    {"truncate", GW_OPT_REAL, "0.03125", 1e-9, 0.5, NULL, NULL,
     "fraction of normal values beyond the levels"},
    {"bucket", GW_OPT_INT, "4096", GW_BLOCK, MOST_BUCKET, NULL, NULL,
     "floats that are rotated together, a power of two"},
    {0}};

/* ---- levels ---- */

static double thc_below(double z) {
    return 0.5 * erfc(-z * M_SQRT1_2);
}

static double thc_density(double z) {
    return exp(-z * z / 2) / sqrt(2 * M_PI);
}

/* Of the mean square error of a between two levels, the integral of (a - from) (to - a) over its
 * density, what depends on the table: all but that of -a a. from < 0: between 0 and the lowest
 * positive level. */
static double thc_cost(const thc *c, int from, int to) {
    double sd = c->half / c->reach, lo = (from < 0 ? 0 : from) / sd, hi = to / sd;
    double mass = thc_below(hi) - thc_below(lo), mean = thc_density(lo) - thc_density(hi);
    return sd * (from + to) * mean - (double)from * to * mass;
}

/* level[0..L): the positive ones, L = 2^(bits-1), the last is half. By how many are at most p and
 * where the last of them is. */
static void thc_solve(const thc *c, int *level) {
    int most = 1 << (c->bits - 1), at = c->half;
    double least[MOST_HALF + 1];
    unsigned char before[1 << (MOST_BITS - 1)][MOST_HALF + 1];
    for (int p = 1; p <= c->half; p++)
        least[p] = thc_cost(c, -p, p);
    for (int k = 1; k < most; k++)
        for (int p = c->half; p > k; p--) { /* downwards: below p are still those of k levels */
            double best = INFINITY;
            for (int q = k; q < p; q++) {
                double cost = least[q] + thc_cost(c, q, p);
                if (cost < best)
                    best = cost, before[k][p] = (unsigned char)q;
            }
            least[p] = best;
        }
    for (int k = most - 1; k > 0; at = before[k--][at])
        level[k] = at;
    level[0] = at;
}

static gw_err thc_open(void **self, const gw_args *args) {
    long long half = gw_args_int(args, "granularity"), bits = gw_args_int(args, "bits");
    long long bucket = gw_args_int(args, "bucket");
    gw_simd level;
    if (half % 2 || half < 1LL << bits)
        return gw_fail(GW_ERR_USAGE,
                       "thc: granularity=%lld: must be an even number, with bits=%lld at least "
                       "%lld",
                       half, bits, 1LL << bits);
    if (bucket & (bucket - 1))
        return gw_fail(GW_ERR_USAGE, "thc: bucket=%lld: must be a power of two", bucket);
    GW_TRY(gw_bucketed_open(self, args, "thc", GW_BLOCK, sizeof(thc), &level));
    thc *c = *self;
    c->bits = (int)bits;
    c->half = (int)half / 2;
    double truncate = gw_args_real(args, "truncate"), lo = 0;
    c->reach = 8; /* beyond which a normal value lies with that probability */
    for (int i = 0; i < 60; i++) {
        double mid = (lo + c->reach) / 2;
        *(2 * thc_below(-mid) > truncate ? &lo : &c->reach) = mid;
    }
    int positive[1 << (MOST_BITS - 1)], count = 1 << (c->bits - 1), at = 0;
    thc_solve(c, positive);
    for (int i = 1; i < 2 * count; i++) {
        int low = i <= count ? -positive[count - i] : positive[i - count - 1];
        int high = i < count ? -positive[count - i - 1] : positive[i - count];
        for (; at < high + c->half; at++) {
            c->low[at] = (float)low;
            c->gap[at] = (float)(high - low);
        }
    }
    return GW_OK;
}

static gw_err thc_join(void *self, int ranks) {
    const thc *c = self;
    int most = MOST_HALF / ranks;
    if (c->half <= most)
        return GW_OK;
    if (most == 0)
        return gw_fail(GW_ERR_UNSUPPORTED,
                       "thc: %d ranks: the sum of more than %d levels could overflow an int8; use "
                       "qsgd",
                       ranks, MOST_HALF);
    int bits = 31 - __builtin_clz((unsigned)(2 * most));
    return gw_fail(GW_ERR_UNSUPPORTED,
                   "thc: %d ranks: the sum of %d levels up to %d could overflow an int8; use "
                   "granularity=%d,bits=%d or less, or an algorithm that decodes (algo=sra)",
                   ranks, ranks, c->half, 2 * most, bits < MOST_BITS ? bits : MOST_BITS);
}

/* ---- the rotation ---- */

static size_t thc_order(size_t n) {
    return (size_t)1 << (63 - __builtin_clzll(n));
}

static float thc_root(size_t order) {
    int log = __builtin_ctzll(order);
    return ldexpf(log % 2 ? (float)M_SQRT1_2 : 1, -(log / 2));
}

/* One stage of the transform: log2 of them give all of it, in natural order (M. C. Pease, "An
 * adaptation of the fast Fourier transform for parallel processing", JACM 1968). */
GW_CLONES static void thc_stage(const float *restrict in, float *restrict out, size_t half) {
    for (size_t i = 0; i < half; i++) {
        float a = in[i], b = in[i + half];
        out[2 * i] = a + b;
        out[2 * i + 1] = a - b;
    }
}

static void thc_transform(float *v, size_t order) {
    float spare[MOST_BUCKET], *from = v, *to = spare;
    for (size_t left = order; left > 1; left /= 2) {
        thc_stage(from, to, order / 2);
        float *next = from;
        from = to, to = next;
    }
    if (from != v)
        memcpy(v, from, order * sizeof *v);
}

GW_CLONES static void thc_flip(float *v, size_t n, float by, uint64_t seed) {
    for (size_t i = 0; i < n; i++) {
        uint32_t word = gw_qsgd_mix(seed, (uint32_t)i) * GW_QSGD_MUL2;
        v[i] *= word & 0x80000000u ? -by : by;
    }
}

/* Signs of bucket number `bucket`, of its first part or the other one. */
static uint64_t thc_signs(uint32_t signs, size_t bucket, int part) {
    return gw_rng_u64(gw_rng_key(signs, bucket), (uint64_t)part);
}

static void thc_rotate(float *v, size_t n, uint32_t signs, size_t bucket) {
    size_t order = thc_order(n);
    for (int part = 0; part < (order < n ? 2 : 1); part++) {
        float *from = v + (part ? n - order : 0);
        thc_flip(from, order, thc_root(order), thc_signs(signs, bucket, part));
        thc_transform(from, order);
    }
}

static void thc_rotate_back(float *v, size_t n, uint32_t signs, size_t bucket) {
    size_t order = thc_order(n);
    for (int part = order < n ? 1 : 0; part >= 0; part--) {
        float *from = v + (part ? n - order : 0);
        thc_transform(from, order);
        thc_flip(from, order, thc_root(order), thc_signs(signs, bucket, part));
    }
}

/* ---- buckets ---- */

typedef struct job {
    const thc *c;
    const float *x;
    float *y;
    uint64_t key;
    gw_u32u *prefix; /* signs, and the Ms */
    signed char *levels;
    bool add;
} job;

static size_t thc_prefix(const void *self, size_t n) {
    return n ? (1 + gw_bucketed_count(self, n)) * sizeof(float) : 0;
}

static size_t thc_bound(const void *self, size_t n) {
    return thc_prefix(self, n) + n;
}

static job thc_job(const thc *c, size_t n, const void *wire) {
    unsigned char *at = (unsigned char *)wire; /* decode only reads */
    return (job){
        .c = c, .prefix = (gw_u32u *)(void *)at, .levels = (signed char *)at + thc_prefix(c, n)};
}

static void thc_split(job *j, size_t n, void (*part)(void *ctx, size_t lo, size_t hi)) {
    gw_simd_split(n, j->c->b.bucket, part, j);
}

GW_CLONES static double thc_energy(const float *x, size_t n) {
    double sum[SUMS] = {0}, all = 0;
    size_t i = 0;
    for (; i + SUMS <= n; i += SUMS)
        for (size_t k = 0; k < SUMS; k++)
            sum[k] += (double)x[i + k] * (double)x[i + k];
    for (; i < n; i++)
        sum[0] += (double)x[i] * (double)x[i];
    for (size_t k = 0; k < SUMS; k++)
        all += sum[k];
    return all;
}

static void thc_measure_part(void *ctx, size_t lo, size_t hi) {
    const job *j = ctx;
    for (size_t bucket = j->c->b.bucket; lo < hi; lo += bucket) {
        size_t n = hi - lo < bucket ? hi - lo : bucket;
        double order = (double)thc_order(n), energy = thc_energy(j->x + lo, n);
        double range = fmin(j->c->reach * sqrt(energy / order), FLT_MAX / sqrt(2 * order));
        uint32_t bits = gw_float_bits((float)range);
        j->prefix[1 + lo / bucket] = !(energy <= DBL_MAX)   ? GW_SCALE_INFINITE
                                     : bits < GW_SCALE_TINY ? 0
                                                            : bits;
    }
}

/* a to the level below or above it, at random. */
GW_CLONES static void thc_round(const thc *c, const float *restrict v, size_t n, uint64_t seed,
                                signed char *restrict levels) {
    float half = (float)c->half;
    int last = 2 * c->half - 1;
    for (size_t i = 0; i < n; i++) {
        float a = v[i] > half ? half : v[i];
        a = a < -half ? -half : a;
        int k = (int)(a + half);
        k = k < last ? k : last;
        uint32_t word = gw_qsgd_mix(seed, (uint32_t)i) * GW_QSGD_MUL2;
        float chance = (float)(int32_t)(word >> 8) * 0x1p-24f * c->gap[k];
        levels[i] = (signed char)(c->low[k] + (chance < a - c->low[k] ? c->gap[k] : 0));
    }
}

static void thc_encode_part(void *ctx, size_t lo, size_t hi) {
    const job *j = ctx;
    for (size_t bucket = j->c->b.bucket; lo < hi; lo += bucket) {
        float v[MOST_BUCKET];
        size_t n = hi - lo < bucket ? hi - lo : bucket, number = lo / bucket;
        uint32_t range = j->prefix[1 + number];
        if (range < GW_SCALE_TINY || range >= GW_SCALE_INFINITE) {
            memset(j->levels + lo, 0, n);
            continue;
        }
        for (size_t i = 0; i < n; i++)
            v[i] = j->x[lo + i] / gw_float_of(range) * (float)j->c->half;
        thc_rotate(v, n, j->prefix[0], number);
        thc_round(j->c, v, n, gw_rng_u64(j->key, number), j->levels + lo);
    }
}

static void thc_decode_part(void *ctx, size_t lo, size_t hi) {
    const job *j = ctx;
    for (size_t bucket = j->c->b.bucket; lo < hi; lo += bucket) {
        float v[MOST_BUCKET], *y = j->y + lo;
        size_t n = hi - lo < bucket ? hi - lo : bucket, number = lo / bucket;
        uint32_t range = j->prefix[1 + number];
        float step =
            gw_float_of(range < GW_SCALE_INFINITE ? range : GW_SCALE_NAN) / (float)j->c->half;
        for (size_t i = 0; i < n; i++)
            v[i] = j->levels[lo + i];
        thc_rotate_back(v, n, j->prefix[0], number);
        for (size_t i = 0; i < n; i++)
            y[i] = j->add ? y[i] + v[i] * step : v[i] * step;
    }
}

/* ---- the codec ---- */

static void thc_measure(const void *self, const float *x, size_t n, void *out) {
    job j = thc_job(self, n, out);
    j.x = x;
    if (n > 0)
        j.prefix[0] = 0; /* encode fills it: it knows the turn */
    thc_split(&j, n, thc_measure_part);
}

static gw_err thc_encode(const void *self, gw_turn turn, const float *x, size_t n, void *out,
                         size_t cap, size_t *len) {
    (void)cap;
    job j = thc_job(self, n, out);
    j.x = x;
    j.key = turn.key;
    if (n > 0)
        j.prefix[0] = gw_float_bits((float)(turn.common >> (64 - SEED_BITS)));
    thc_split(&j, n, thc_encode_part);
    *len = thc_bound(self, n);
    return GW_OK;
}

static gw_err thc_decode(const void *self, const void *in, size_t len, float *y, size_t n,
                         gw_into into) {
    (void)len;
    job j = thc_job(self, n, in);
    j.y = y;
    j.add = into == GW_INTO_ADD;
    thc_split(&j, n, thc_decode_part);
    return GW_OK;
}

const gw_codec_ops gw_codec_thc = {
    .head = {GW_CODEC_ABI, "thc",
             "spans rotated at random, rounded to a few integers that MPI sums", thc_opts},
    .caps = GW_CODEC_BIASED | GW_CODEC_FIXED | GW_CODEC_LINEAR,
    .open = thc_open,
    .close = free,
    .join = thc_join,
    .bound = thc_bound,
    .encode = thc_encode,
    .decode = thc_decode,
    .add = gw_bucketed_add_int8,
    .unit_bytes = 1,
    .sum = GW_SUM_INT8,
    .prefix = thc_prefix,
    .measure = thc_measure,
};
