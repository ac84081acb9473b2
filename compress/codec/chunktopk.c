/* chunktopk: the k elements largest in magnitude of each chunk, in a few bits each. What SparseLoCo
 * sends (A. Sarfi et al., "Communication efficient LLM pre-training with SparseLoCo", arXiv
 * 2508.15706, 2025).
 *
 * The kept values of 16 chunks share a codebook of L = 2^bits floats. With their mean mu and
 * standard deviation sigma, bins lie on both sides of mu, 6 sigma / L wide, the outer ones open; a
 * value is sent as the number of its bin, which stands for the mean of the bin's values.
 *
 * Differences: chunks are runs of the arena (the paper's are squares of a matrix, at most 64 x 64,
 * and of a vector 64 elements, all kept); its codebooks are a tensor's; its middle bin has mu in
 * its centre, so that L bins cannot be symmetric, while here codec(-x) = -codec(x) unless a value
 * equals mu.
 *
 * A shorter last chunk of m floats keeps max(1, floor(k m / chunk)). Among equal magnitudes the
 * lower index wins. Where fewer than k of a chunk are not zero, zeros are kept, too, and become a
 * bin's mean; error feedback, which the codec needs anyway, takes that back. A NaN or infinity
 * makes all that shares its codebook NaN.
 *
 * Wire format, for each 16 chunks:
 *   the codebook, L little-endian binary32
 *   for each kept element, ascending, from the lowest bit of the first byte on:
 *         its place in its chunk, log2(chunk) bits, and its bin, `bits` bits; unused bits are zero
 * k (log2(chunk) + bits) / 8 bytes a chunk and 2^bits / 4 of the codebook: 112 + 1 by default,
 * 0.22 bits an element. */
#include "base/mem.h"
#include "compress/codec.h"
#include "compress/kernel/simd.h"
#include "compress/scratch.h"
#include "compress/select.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { GROUP = 16, MOST_BITS = 4, MOST_BINS = 1 << MOST_BITS };

typedef struct chunktopk {
    size_t chunk, k, bins;
    unsigned place_bits, bits;
    const gw_pick_kernels *kernels;
    gw_scratch scratch;
} chunktopk;

static const gw_opt chunktopk_opts[] = {
    {"k", GW_OPT_INT, "64", 1, 65536, NULL, NULL, "elements kept per chunk"},
    {"chunk", GW_OPT_INT, "4096", 64, 65536, NULL, NULL, "floats per chunk, a power of two"},
    {"bits", GW_OPT_INT, "2", 1, MOST_BITS, NULL, NULL, "bits per kept value"},
    {0}};

static gw_err chunktopk_open(void **self, const gw_args *args) {
    long long chunk = gw_args_int(args, "chunk"), k = gw_args_int(args, "k");
    const gw_pick_kernels *kernels;
    if (chunk & (chunk - 1))
        return gw_fail(GW_ERR_USAGE, "chunktopk: chunk=%lld: must be a power of two", chunk);
    if (k > chunk)
        return gw_fail(GW_ERR_USAGE, "chunktopk: k=%lld: a chunk has %lld elements", k, chunk);
    GW_TRY(gw_pick_open(&kernels));
    chunktopk *c = NULL;
    GW_TRY(gw_alloc(&c, 1, sizeof *c));
    c->chunk = (size_t)chunk;
    c->k = (size_t)k;
    c->bits = (unsigned)gw_args_int(args, "bits");
    c->bins = (size_t)1 << c->bits;
    c->place_bits = (unsigned)__builtin_ctzll((unsigned long long)chunk);
    c->kernels = kernels;
    *self = c;
    return GW_OK;
}

static void chunktopk_close(void *self) {
    chunktopk *c = self;
    if (c)
        gw_scratch_clear(&c->scratch);
    free(c);
}

/* Kept of a chunk of n floats. */
static size_t chunktopk_kept(const chunktopk *c, size_t n) {
    size_t k = n * c->k / c->chunk;
    return k == 0 && n > 0 ? 1 : k;
}

/* Return the bytes of n floats that begin with a chunk. */
static size_t chunktopk_group_bytes(const chunktopk *c, size_t n) {
    size_t kept = n / c->chunk * c->k + chunktopk_kept(c, n % c->chunk);
    return n ? c->bins * sizeof(float) + (kept * (c->place_bits + c->bits) + 7) / 8 : 0;
}

static size_t chunktopk_bound(const void *self, size_t n) {
    const chunktopk *c = self;
    size_t group = GROUP * c->chunk;
    return n / group * chunktopk_group_bytes(c, group) + chunktopk_group_bytes(c, n % group);
}

/* ---- encoding ---- */

/* What is kept of a group, and its codebook. */
typedef struct kept {
    uint32_t *at; /* in its chunk */
    float *value;
    size_t n;
    double mean, width; /* of a bin */
    float book[MOST_BINS];
} kept;

/* Of x, or with e (not NULL) of e after e += x. */
static void chunktopk_select(const chunktopk *c, const float *x, float *e, size_t n,
                             uint32_t *words, kept *g) {
    g->n = 0;
    for (size_t lo = 0; lo < n; lo += c->chunk) {
        size_t m = n - lo < c->chunk ? n - lo : c->chunk;
        gw_kept one;
        gw_select_largest(c->kernels, x + lo, e ? e + lo : NULL, m, chunktopk_kept(c, m), words,
                          &one);
        memcpy(g->at + g->n, one.at, one.n * sizeof *one.at);
        memcpy(g->value + g->n, one.bits, one.n * sizeof *one.bits);
        g->n += one.n;
    }
}

/* Of a NaN any one: the book has nothing but NaN then. */
static unsigned chunktopk_bin(const chunktopk *c, const kept *g, float x) {
    unsigned half = (unsigned)c->bins / 2;
    double from = g->width > 0 ? ((double)x - g->mean) / g->width : 0;
    double most = half - 1, steps = fabs(from) < most ? fabs(from) : most;
    return from < 0 ? half - 1 - (unsigned)steps : half + (unsigned)steps;
}

static void chunktopk_learn(const chunktopk *c, kept *g) {
    double sum = 0, square = 0, sums[MOST_BINS] = {0};
    size_t counts[MOST_BINS] = {0};
    for (size_t i = 0; i < g->n; i++)
        sum += (double)g->value[i];
    g->mean = sum / (double)g->n;
    for (size_t i = 0; i < g->n; i++)
        square += ((double)g->value[i] - g->mean) * ((double)g->value[i] - g->mean);
    g->width = 6 * sqrt(square / (double)g->n) / (double)c->bins;
    for (size_t i = 0; i < g->n; i++) {
        unsigned bin = chunktopk_bin(c, g, g->value[i]);
        sums[bin] += (double)g->value[i];
        counts[bin]++;
    }
    for (size_t b = 0; b < c->bins; b++)
        g->book[b] = !isfinite(g->width) ? NAN
                     : counts[b]         ? (float)(sums[b] / (double)counts[b])
                                         : 0;
}

static void chunktopk_write(const chunktopk *c, const kept *g, unsigned char *out) {
    for (size_t b = 0; b < c->bins; b++, out += sizeof(float))
        *(gw_u32u *)(void *)out = gw_le32(gw_float_bits(g->book[b]));
    uint64_t held = 0;
    unsigned have = 0;
    for (size_t i = 0; i < g->n; i++) {
        uint64_t bin = chunktopk_bin(c, g, g->value[i]);
        held |= (g->at[i] | bin << c->place_bits) << have;
        for (have += c->place_bits + c->bits; have >= 8; have -= 8, held >>= 8)
            *out++ = (unsigned char)held;
    }
    if (have)
        *out = (unsigned char)held;
}

/* An encoding by several threads, group by group. */
typedef struct work {
    chunktopk *c;
    const float *x;
    float *e; /* NULL: without error feedback */
    unsigned char *out;
    _Atomic(gw_err) failed;
} work;

static void chunktopk_encode_part(void *ctx, size_t lo, size_t hi) {
    work *w = ctx;
    chunktopk *c = w->c;
    size_t group = GROUP * c->chunk, each = GROUP * c->k, select = gw_select_words(c->chunk, c->k);
    uint32_t *words;
    gw_block *block;
    gw_err e = gw_scratch_take(&c->scratch, "chunktopk", (select + 2 * each) * sizeof *words,
                               &words, &block);
    if (e != GW_OK) {
        w->failed = e;
        return;
    }
    kept g = {.at = words + select, .value = (float *)(void *)(words + select + each)};
    for (; lo < hi; lo += group) {
        size_t n = hi - lo < group ? hi - lo : group;
        chunktopk_select(c, w->x + lo, w->e ? w->e + lo : NULL, n, words, &g);
        chunktopk_learn(c, &g);
        chunktopk_write(c, &g, w->out + chunktopk_bound(c, lo));
    }
    gw_scratch_give(&c->scratch, block);
}

static gw_err chunktopk_encode_either(const void *self, const float *x, float *e, size_t n,
                                      void *out, size_t *len) {
    chunktopk *c = (chunktopk *)self; /* only its scratch changes */
    work w = {.c = c, .x = x, .e = e, .out = out};
    gw_simd_split(n, GROUP * c->chunk, chunktopk_encode_part, &w);
    *len = chunktopk_bound(c, n);
    return w.failed == GW_OK ? GW_OK : gw_fail(w.failed, "chunktopk: out of memory");
}

/* Nothing is random. */
static gw_err chunktopk_encode(const void *self, gw_turn turn, const float *x, size_t n, void *out,
                               size_t cap, size_t *len) {
    (void)turn, (void)cap;
    return chunktopk_encode_either(self, x, NULL, n, out, len);
}

/* ---- decoding ---- */

/* Elements of a group, bit by bit. */
typedef struct reader {
    const unsigned char *in;
    uint64_t held;
    unsigned have;
    float book[MOST_BINS];
} reader;

static uint32_t chunktopk_read(reader *r, unsigned bits) {
    for (; r->have < bits; r->have += 8)
        r->held |= (uint64_t)*r->in++ << r->have;
    uint32_t value = (uint32_t)(r->held & ((1u << bits) - 1));
    r->held >>= bits;
    r->have -= bits;
    return value;
}

static gw_err chunktopk_decode_chunk(const chunktopk *c, reader *r, float *y, size_t n,
                                     gw_into into) {
    size_t next = 0;
    if (into == GW_INTO_SET)
        memset(y, 0, n * sizeof *y);
    for (size_t i = chunktopk_kept(c, n); i > 0; i--) {
        size_t at = chunktopk_read(r, c->place_bits);
        float value = r->book[chunktopk_read(r, c->bits)];
        if (at < next || at >= n)
            return gw_fail(GW_ERR_CORRUPT,
                           "chunktopk: element %zu of a chunk of %zu, expected one from %zu on", at,
                           n, next);
        next = at + 1;
        y[at] = into == GW_INTO_SET   ? value
                : into == GW_INTO_ADD ? y[at] + value
                : into < 0            ? y[at] - value
                                      : 0;
    }
    return GW_OK;
}

static gw_err chunktopk_decode(const void *self, const void *in, size_t len, float *y, size_t n,
                               gw_into into) {
    (void)len;
    const chunktopk *c = self;
    const unsigned char *from = in;
    size_t group = GROUP * c->chunk;
    for (size_t lo = 0; lo < n; lo += group) {
        size_t m = n - lo < group ? n - lo : group;
        reader r = {.in = from + c->bins * sizeof(float)};
        for (size_t b = 0; b < c->bins; b++)
            r.book[b] = gw_float_of(gw_le32(((const gw_u32u *)(const void *)from)[b]));
        for (size_t at = 0; at < m; at += c->chunk) {
            size_t part = m - at < c->chunk ? m - at : c->chunk;
            GW_TRY(chunktopk_decode_chunk(c, &r, y + lo + at, part, into));
        }
        from += chunktopk_group_bytes(c, m);
    }
    return GW_OK;
}

/* The sum and the selection in one pass; the few values come off by decoding. */
static gw_err chunktopk_encode_feedback(const void *self, gw_turn turn, const float *x, float *e,
                                        size_t n, void *out, size_t cap, size_t *len) {
    (void)turn, (void)cap;
    GW_TRY(chunktopk_encode_either(self, x, e, n, out, len));
    return chunktopk_decode(self, out, *len, e, n, GW_INTO_SUBTRACT);
}

const gw_codec_ops gw_codec_chunktopk = {
    .head = {GW_CODEC_ABI, "chunktopk",
             "the largest elements of each chunk, each by its place and one of a few values",
             chunktopk_opts},
    .caps = GW_CODEC_FIXED | GW_CODEC_SPARSE | GW_CODEC_BIASED,
    .open = chunktopk_open,
    .close = chunktopk_close,
    .bound = chunktopk_bound,
    .encode = chunktopk_encode,
    .encode_feedback = chunktopk_encode_feedback,
    .decode = chunktopk_decode,
};
