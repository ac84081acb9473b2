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

#include "base/mem.h"
#include "compress/kernel/topk.h"
#include "compress/scratch.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    HEADER = 4,
    VALUE = 4,
    ESCAPE = 255,
    CHUNK = 4096, /* floats looked at between two looks at the room left: they stay in L1 */
    SAMPLES = 8192,
    BIN_BITS = 11,
    BINS = 1 << BIN_BITS,
    CROWDED = 12, /* bins of 2^-11 of an octave: an octave in all */
    FEW = 256
};

typedef struct topk {
    double ratio;
    gw_topk_pick pick;
    gw_scratch scratch;
} topk;

static const gw_opt opts[] = {
    {"ratio", GW_OPT_REAL, "0.01", 1e-9, 1, NULL, NULL, "part of the elements that is kept"}, {0}};

static gw_err open_topk(void **self, const gw_args *args) {
    gw_simd level;
    GW_TRY(gw_simd_pick(&level));
    topk *t = NULL;
    GW_TRY(gw_alloc(&t, 1, sizeof *t));
    t->ratio = gw_args_real(args, "ratio");
    t->pick = gw_topk_pick_portable;
#ifdef GW_X86
    if (level != GW_SIMD_PORTABLE)
        t->pick = level == GW_SIMD_AVX512 ? gw_topk_pick_avx512 : gw_topk_pick_avx2;
#endif
    *self = t;
    return GW_OK;
}

static void close_topk(void *self) {
    topk *t = self;
    if (t)
        gw_scratch_clear(&t->scratch);
    free(t);
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

/* The rank-th largest (1: the largest) of a few magnitudes, which are sorted for it. */
static uint32_t nth_of_few(uint32_t *few, size_t n, size_t rank, size_t *ties) {
    for (size_t i = 1; i < n; i++) {
        uint32_t m = few[i];
        size_t j = i;
        for (; j > 0 && few[j - 1] < m; j--)
            few[j] = few[j - 1];
        few[j] = m;
    }
    uint32_t nth = few[rank - 1];
    for (*ties = 1; *ties < rank && few[rank - 1 - *ties] == nth;)
        ++*ties;
    return nth;
}

/* The same of bits[0..n), no magnitude of which is below `lo`. *ties: how many equal ones of just
 * this magnitude are among the rank largest. Radix selection: the histogram of a range gives the
 * bin that holds it, which is the next range; the last bin takes all that lies above. Over a
 * threshold magnitudes crowd, so the first bins are narrow there, and without one as wide as it
 * takes. */
static uint32_t nth_largest(const uint32_t *bits, size_t n, uint32_t lo, size_t rank,
                            size_t *ties) {
    uint32_t hi = GW_TOPK_MAGNITUDE;
    int shift = lo ? CROWDED : 31 - BIN_BITS;
    size_t inside = n;
    while (lo < hi && inside > FEW) {
        uint32_t count[BINS] = {0}, span = hi - lo, bin = 0;
        for (size_t i = 0; i < n; i++) {
            uint32_t above = magnitude(bits[i]) - lo; /* wraps where it is below */
            if (above <= span)
                count[above >> shift < BINS ? above >> shift : BINS - 1]++;
        }
        size_t skip = inside - rank;
        while (skip >= count[bin])
            skip -= count[bin++];
        inside = count[bin];
        rank = inside - skip;
        lo += bin << shift;
        if (bin < BINS - 1 && bin < span >> shift)
            hi = lo + (1u << shift) - 1;
        int width = lo < hi ? 32 - __builtin_clz(hi - lo) : 0;
        shift = width > BIN_BITS ? width - BIN_BITS : 0;
    }
    if (lo == hi) {
        *ties = rank;
        return lo;
    }
    uint32_t few[FEW + 1]; /* one more: what is outside is written, too, and overwritten */
    size_t found = 0;
    for (size_t i = 0; i < n; i++) {
        uint32_t m = magnitude(bits[i]);
        few[found] = m;
        found += m - lo <= hi - lo;
    }
    return nth_of_few(few, found, rank, ties);
}

/* Elements that may be among the k largest, by ascending index. */
typedef struct candidates {
    uint32_t *at, *bits;
    size_t n, room;
    uint32_t floor; /* none is of lower magnitude */
} candidates;

/* Keep the k largest of at least k. */
static void prune(candidates *c, size_t k) {
    uint32_t *at = c->at, *bits = c->bits;
    size_t ties, n = 0;
    uint32_t least = nth_largest(bits, c->n, c->floor, k, &ties);
    for (size_t i = 0, left = ties; i < c->n; i++) {
        uint32_t m = magnitude(bits[i]);
        size_t keep = m > least;
        if (__builtin_expect(m == least, 0)) /* a branch: seldom taken, or always */
            keep = left > 0, left -= keep;
        at[n] = at[i];
        bits[n] = bits[i];
        n += keep;
    }
    c->n = n;
    c->floor = least;
}

/* A magnitude that about k elements reach: more than k, in a sample from data in any order, unless
 * chance strays by `sigmas` standard deviations. Drawn one a stride, at a place that no period of
 * the data can follow. 0, which all elements reach, where the sample is too small to tell. */
static uint32_t guess(const float *x, size_t n, size_t k, double sigmas) {
    uint32_t sample[SAMPLES];
    size_t m = n / 128 < SAMPLES ? n / 128 : SAMPLES, ties;
    m = m > 1024 ? m : n / 8 < 1024 ? n / 8 : 1024;
    double expected = (double)k * (double)m / (double)n;
    double rank = expected + sigmas * sqrt(expected) + 1;
    if (rank >= (double)m)
        return 0;
    size_t stride = n / m;
    for (size_t i = 0; i < m; i++) {
        uint64_t jitter = (uint32_t)(i * 0x9e3779b1u);
        sample[i] = magnitude(gw_float_bits(x[i * stride + (jitter * stride >> 32)]));
    }
    return nth_largest(sample, m, 0, (size_t)rank, &ties);
}

/* All elements of magnitude `least` or more, less those found to have k others before them. */
static void collect(const topk *t, const float *x, size_t n, size_t k, uint32_t least,
                    candidates *c) {
    c->n = 0;
    c->floor = least;
    for (size_t lo = 0; lo < n; lo += CHUNK) {
        size_t m = n - lo < CHUNK ? n - lo : CHUNK, tail = m % GW_BLOCK;
        if (c->room - c->n < m - tail + (tail ? GW_BLOCK : 0))
            prune(c, k), least = c->floor + 1; /* an equal one that comes later has lost */
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

/* The k largest. */
static void choose(const topk *t, const float *x, size_t n, size_t k, candidates *c) {
    double sigmas = 2.5;
    do {
        collect(t, x, n, k, guess(x, n, k, sigmas), c);
        sigmas *= 4;
    } while (c->n < k); /* guessed too high: seldom, and in the end the guess is 0 */
    prune(c, k);
}

/* ---- wire ---- */

static size_t emit(const candidates *c, unsigned char *out) {
    *(gw_u32u *)(void *)out = gw_le32((uint32_t)c->n);
    unsigned char *gaps = out + HEADER;
    const uint32_t *at = c->at, *bits = c->bits;
    uint32_t next = 0;
    for (size_t i = 0; i < c->n; i++) {
        uint32_t gap = at[i] - next;
        next = at[i] + 1;
        for (; gap >= ESCAPE; gap -= ESCAPE)
            *gaps++ = ESCAPE;
        *gaps++ = (unsigned char)gap;
    }
    gw_u32u *values = (gw_u32u *)(void *)gaps;
    for (size_t i = 0; i < c->n; i++)
        values[i] = gw_le32(bits[i]);
    return (size_t)(gaps - out) + c->n * VALUE;
}

static gw_err encode(const void *self, gw_turn turn, const float *x, size_t n, void *out,
                     size_t cap, size_t *len) {
    (void)turn, (void)cap;
    topk *t = (topk *)self; /* for its scratch; nothing else changes */
    *len = 0;
    if (n == 0)
        return GW_OK;
    if (n > UINT32_MAX - GW_BLOCK)
        return gw_fail(GW_ERR_UNSUPPORTED,
                       "topk: a span of %zu floats, 32 bits count them: use buckets", n);
    size_t k = kept(t, n), all = (n + GW_BLOCK - 1) / GW_BLOCK * GW_BLOCK;
    size_t room = k + (k > CHUNK ? k : CHUNK) + CHUNK;
    room = room < all ? room : all;
    uint32_t *words;
    gw_block *block;
    GW_TRY(gw_scratch_take(&t->scratch, "topk", 2 * room * sizeof *words, &words, &block));
    candidates c = {.at = words, .bits = words + room, .room = room};
    choose(t, x, n, k, &c);
    *len = emit(&c, out);
    gw_scratch_give(&t->scratch, block);
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

static gw_err decode(const void *self, const void *in, size_t len, float *y, size_t n,
                     gw_into into) {
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
    if (into == GW_INTO_SET)
        memset(y, 0, n * sizeof *y);
    for (size_t i = 0; i < bytes; i++) {
        y += gaps[i];
        if (gaps[i] == ESCAPE)
            continue;
        float v = gw_float_of(gw_le32(*value++));
        switch (into) {
        case GW_INTO_SET: *y = v; break;
        case GW_INTO_ADD: *y += v; break;
        case GW_INTO_SUBTRACT: *y -= v; break;
        case GW_INTO_CLEAR: *y = 0; break;
        }
        y++;
    }
    return GW_OK;
}

const gw_codec_ops gw_codec_topk = {
    .head = {GW_CODEC_ABI, "topk", "the largest elements, exact (0.43 bits an element at 1%)",
             opts},
    .caps = GW_CODEC_SPARSE | GW_CODEC_BIASED,
    .open = open_topk,
    .close = close_topk,
    .bound = bound,
    .encode = encode,
    .decode = decode,
};
