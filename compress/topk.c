/* topk: the k elements largest in magnitude, exactly, as indices and values. A. F. Aji, K.
 * Heafield, "Sparse Communication for Distributed Gradient Descent", EMNLP 2017; the threshold
 * guessed from a sample after Y. Lin, S. Han, H. Mao, Y. Wang, W. J. Dally, "Deep Gradient
 * Compression", ICLR 2018, but never trusted.
 *
 *   k = max(1, floor(ratio * n + 1/2)), at most n; 0 of an empty span
 *
 * Among equal magnitudes the lower index wins, so the bytes are a function of the span alone, and
 * -x keeps what x keeps. A NaN counts as larger than infinity and is kept: it shows at once. Zeros
 * are kept only where fewer than k elements are not zero. Biased: it wants error feedback.
 *
 * Wire format (nothing for n = 0):
 *   k       little-endian 32-bit
 *   gaps    for each kept element, ascending, the number g of dropped ones before it: floor(g /
 *           255) bytes 255, then g mod 255
 *   values  k little-endian binary32
 * At most 4 + 5 k + floor((n - k) / 255) bytes: 0.43 bits an element at ratio = 0.01. */
#include "compress/codec.h"

#include "compress/kernel/topk.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    HEADER = 4,
    VALUE = 4,
    ESCAPE = 255,
    CHUNK = 4096, /* floats looked at between two looks at the room left: they stay in L1 */
    SAMPLES = 4096,
    BIN_BITS = 11,
    BINS = 1 << BIN_BITS
};

typedef struct topk {
    double ratio;
    gw_topk_pick pick;
} topk;

static const gw_opt opts[] = {
    {"ratio", GW_OPT_REAL, "0.01", 1e-9, 1, NULL, NULL, "part of the elements that is kept"}, {0}};

static gw_err open_topk(void **self, const gw_args *args) {
    gw_simd level;
    GW_TRY(gw_simd_pick(&level));
    topk *t = malloc(sizeof *t);
    if (!t)
        return gw_fail(GW_ERR_NOMEM, "topk: out of memory");
    t->ratio = gw_args_real(args, "ratio");
    t->pick = gw_topk_pick_portable;
#ifdef GW_X86
    if (level != GW_SIMD_PORTABLE)
        t->pick = level == GW_SIMD_AVX512 ? gw_topk_pick_avx512 : gw_topk_pick_avx2;
#endif
    *self = t;
    return GW_OK;
}

static size_t kept(const topk *t, size_t n) {
    size_t k = (size_t)(t->ratio * (double)n + 0.5);
    k = k ? k : 1;
    return k < n ? k : n;
}

static size_t bound(const void *self, size_t n) {
    size_t k = kept(self, n);
    return n ? HEADER + k * (1 + VALUE) + (n - k) / ESCAPE : 0;
}

/* ---- selection ---- */

static inline uint32_t magnitude(uint32_t bits) {
    return bits & GW_TOPK_MAGNITUDE;
}

/* The rank-th largest magnitude (1: the largest) of bits[0..n), by radix: histograms of ever
 * narrower ranges. *ties: how many of just this magnitude are among the rank largest. */
static uint32_t nth_largest(const uint32_t *bits, size_t n, size_t rank, size_t *ties) {
    uint32_t lo = GW_TOPK_MAGNITUDE, hi = 0;
    for (size_t i = 0; i < n; i++) {
        uint32_t m = magnitude(bits[i]);
        lo = m < lo ? m : lo;
        hi = m > hi ? m : hi;
    }
    while (lo < hi) {
        uint32_t span = hi - lo, count[BINS] = {0};
        int width = 32 - __builtin_clz(span), shift = width > BIN_BITS ? width - BIN_BITS : 0;
        for (size_t i = 0; i < n; i++) {
            uint32_t above = magnitude(bits[i]) - lo; /* wraps where it is below */
            if (above <= span)
                count[above >> shift]++;
        }
        uint32_t bin = span >> shift;
        while (rank > count[bin])
            rank -= count[bin--];
        lo += bin << shift;
        hi = (bin == span >> shift) ? hi : lo + (1u << shift) - 1;
    }
    *ties = rank;
    return lo;
}

/* Elements that may be among the k largest, by ascending index. */
typedef struct candidates {
    uint32_t *at, *bits;
    size_t n, room;
} candidates;

/* Keep the k largest of at least k; returns the least magnitude kept. */
static uint32_t prune(candidates *c, size_t k) {
    size_t ties, n = 0;
    uint32_t least = nth_largest(c->bits, c->n, k, &ties);
    for (size_t i = 0; i < c->n; i++) {
        uint32_t m = magnitude(c->bits[i]);
        size_t tie = m == least && ties > 0;
        c->at[n] = c->at[i];
        c->bits[n] = c->bits[i];
        n += (m > least) + tie;
        ties -= tie;
    }
    c->n = n;
    return least;
}

/* A magnitude that about k elements reach, rather more than fewer: a few standard deviations are
 * added to the rank in the sample. Drawn one a stride, at a place that no period of the data can
 * follow. 0: all elements. */
static uint32_t guess(const float *x, size_t n, size_t k) {
    uint32_t sample[SAMPLES];
    size_t m = n / 8 < SAMPLES ? n / 8 : SAMPLES, ties;
    double expected = (double)k * (double)m / (double)n;
    size_t rank = (size_t)(expected + 3 * sqrt(expected) + 1);
    if (rank >= m)
        return 0;
    size_t stride = n / m;
    for (size_t i = 0; i < m; i++) {
        uint64_t jitter = (uint32_t)(i * 0x9e3779b1u);
        sample[i] = magnitude(gw_float_bits(x[i * stride + (jitter * stride >> 32)]));
    }
    return nth_largest(sample, m, rank, &ties);
}

/* All elements of magnitude `least` or more, less those found to have k others before them. */
static void collect(const topk *t, const float *x, size_t n, size_t k, uint32_t least,
                    candidates *c) {
    c->n = 0;
    for (size_t lo = 0; lo < n; lo += CHUNK) {
        size_t m = n - lo < CHUNK ? n - lo : CHUNK, tail = m % GW_BLOCK;
        if (c->room - c->n < m - tail + (tail ? GW_BLOCK : 0))
            least = prune(c, k) + 1; /* an equal one that comes later has lost */
        size_t had = c->n;
        c->n += t->pick(x + lo, m - tail, least, (uint32_t)lo, c->at + c->n);
        if (tail) {
            float block[GW_BLOCK] = {0};
            memcpy(block, x + n - tail, tail * sizeof *block);
            c->n += t->pick(block, GW_BLOCK, least, (uint32_t)(n - tail), c->at + c->n);
            while (c->n > had && c->at[c->n - 1] >= n)
                c->n--; /* padding */
        }
        for (size_t i = had; i < c->n; i++)
            c->bits[i] = gw_float_bits(x[c->at[i]]);
    }
}

static void choose(const topk *t, const float *x, size_t n, size_t k, candidates *c) {
    collect(t, x, n, k, guess(x, n, k), c);
    if (c->n < k) /* guessed too high */
        collect(t, x, n, k, 0, c);
    if (c->n > k)
        prune(c, k);
}

/* ---- wire ---- */

static size_t emit(const candidates *c, unsigned char *out) {
    *(gw_u32u *)(void *)out = gw_le32((uint32_t)c->n);
    unsigned char *gaps = out + HEADER;
    uint32_t next = 0;
    for (size_t i = 0; i < c->n; i++) {
        uint32_t gap = c->at[i] - next;
        next = c->at[i] + 1;
        for (; gap >= ESCAPE; gap -= ESCAPE)
            *gaps++ = ESCAPE;
        *gaps++ = (unsigned char)gap;
    }
    gw_u32u *values = (gw_u32u *)(void *)gaps;
    for (size_t i = 0; i < c->n; i++)
        values[i] = gw_le32(c->bits[i]);
    return (size_t)((unsigned char *)(values + c->n) - out);
}

/* Scratch is taken from malloc in each call, a few percent of the span: a codec keeps no state, and
 * malloc soon serves such a size without asking the system. */
static gw_err encode(const void *self, uint64_t key, const float *x, size_t n, void *out,
                     size_t cap, size_t *len) {
    (void)key, (void)cap;
    *len = 0;
    if (n == 0)
        return GW_OK;
    if (n > UINT32_MAX - GW_BLOCK)
        return gw_fail(GW_ERR_UNSUPPORTED,
                       "topk: a span of %zu floats, more than 2^32: use buckets", n);
    size_t k = kept(self, n), all = (n + GW_BLOCK - 1) / GW_BLOCK * GW_BLOCK;
    size_t room = k + (k > CHUNK ? k : CHUNK) + CHUNK;
    candidates c = {.room = room < all ? room : all};
    c.at = malloc(2 * c.room * sizeof *c.at);
    if (!c.at)
        return gw_fail(GW_ERR_NOMEM, "topk: out of memory: %zu bytes for a span of %zu floats",
                       2 * c.room * sizeof *c.at, n);
    c.bits = c.at + c.room;
    choose(self, x, n, k, &c);
    *len = emit(&c, out);
    free(c.at);
    return GW_OK;
}

/* That the gaps name k elements of n and nothing follows the last. */
static gw_err check_gaps(const unsigned char *gaps, size_t bytes, size_t k, size_t n) {
    size_t dropped = 0, named = 0;
    for (size_t i = 0; i < bytes; i++) {
        dropped += gaps[i];
        named += gaps[i] != ESCAPE;
    }
    if (named != k || gaps[bytes - 1] == ESCAPE || dropped > n - k)
        return gw_fail(GW_ERR_CORRUPT, "topk: %zu gaps that skip %zu elements, expected %zu of %zu",
                       named, dropped, k, n);
    return GW_OK;
}

static gw_err decode(const void *self, const void *in, size_t len, float *y, size_t n, int add) {
    size_t k = kept(self, n);
    if (n == 0 && len == 0)
        return GW_OK;
    if (n == 0 || len < HEADER + k * (1 + VALUE))
        return gw_fail(GW_ERR_CORRUPT, "topk: %zu bytes for %zu of %zu floats", len, k, n);
    size_t count = gw_le32(*(const gw_u32u *)in);
    if (count != k)
        return gw_fail(GW_ERR_CORRUPT, "topk: %zu of %zu floats, expected %zu", count, n, k);
    const unsigned char *gaps = (const unsigned char *)in + HEADER;
    size_t bytes = len - HEADER - k * VALUE;
    GW_TRY(check_gaps(gaps, bytes, k, n));
    const gw_u32u *value = (const gw_u32u *)(const void *)(gaps + bytes);
    if (!add)
        memset(y, 0, n * sizeof *y);
    for (size_t i = 0; i < bytes; i++) {
        y += gaps[i];
        if (gaps[i] == ESCAPE)
            continue;
        float v = gw_float_of(gw_le32(*value++));
        *y = add ? *y + v : v;
        y++;
    }
    return GW_OK;
}

const gw_codec_ops gw_codec_topk = {
    .head = {GW_CODEC_ABI, "topk", "the largest elements, exact (0.43 bits an element at 1%)",
             opts},
    .caps = GW_CODEC_SPARSE | GW_CODEC_BIASED,
    .open = open_topk,
    .close = free,
    .bound = bound,
    .encode = encode,
    .decode = decode,
};
