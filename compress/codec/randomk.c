/* randomk: k elements at random places, the same on all ranks, so that encodings can be summed
 * without decoding. S. U. Stich, J.-B. Cordonnier, M. Jaggi, "Sparsified SGD with Memory", NeurIPS
 * 2018; one draw for all ranks as in T. Vogels, S. P. Karimireddy, M. Jaggi, "PowerSGD", NeurIPS
 * 2019, appendix G.
 *
 *   k = max(1, floor(ratio * n + 1/2)), at most n; 0 of an empty span; more during the
 *       warm-up (ratio.h)
 *   places: k of n, each set of k equally likely, by ascending index
 *   value = x there, 0 elsewhere
 *
 * Values are not scaled by n / k: the codec is biased and needs error feedback. An unbiased variant
 * would scale again whenever an algorithm encodes a sum. A NaN shows only in the turn that draws
 * its place.
 *
 * Wire format (nothing for n = 0):
 *   key     little-endian 64-bit: with n and k it determines the places
 *   values  k binary32 in host order, so that MPI's own reduction adds them; the ranks of a job
 *           share one byte order
 * 8 + 4 k bytes: 0.32 bits an element at ratio = 0.01. With equal keys the sum of two encodings is
 * the encoding of the sum. */
#include "base/mem.h"
#include "base/rng.h"
#include "compress/kernel/simd.h"
#include "compress/ratio.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { KEY = 8, VALUE = 4, WORD = 64, DRAWS = 8 };

/* One bit an element. */
typedef struct places {
    uint64_t key;
    size_t n, k, room; /* words */
    uint64_t bits[];
} places;

/* All encodings of a span in one turn have the same places, so the last draws are cached. A call
 * that finds one in use on another thread draws anew. */
typedef struct randomk {
    gw_ratio ratio;
    _Atomic(places *) drawn[DRAWS];
} randomk;

static const gw_opt randomk_opts[] = {GW_RATIO_OPTS, {0}};

static gw_err randomk_open(void **self, const gw_args *args) {
    randomk *r = NULL;
    GW_TRY(gw_alloc(&r, 1, sizeof *r));
    r->ratio = gw_ratio_read(args);
    *self = r;
    return GW_OK;
}

static void randomk_close(void *self) {
    randomk *r = self;
    for (int i = 0; r && i < DRAWS; i++)
        free(atomic_exchange(&r->drawn[i], NULL));
    free(r);
}

/* During the warm-up its size changes, so MPI cannot know it in advance. */
static unsigned randomk_traits(const void *self) {
    const randomk *r = self;
    unsigned caps = GW_CODEC_SPARSE | GW_CODEC_BIASED | GW_CODEC_LINEAR | GW_CODEC_SHARED;
    return gw_ratio_steady(&r->ratio) ? caps | GW_CODEC_FIXED : caps | GW_CODEC_WARMS;
}

static size_t randomk_bound(const void *self, size_t n) {
    const randomk *r = self;
    return n ? KEY + VALUE * gw_ratio_most(&r->ratio, n) : 0;
}

static size_t randomk_prefix(const void *self, size_t n) {
    (void)self;
    return n ? KEY : 0;
}

/* Set k of n bits, all clear before: draw a place, and draw again if it is taken. */
static void randomk_draw(uint64_t key, size_t n, size_t k, uint64_t *bits) {
    uint64_t number = 0;
    while (k) {
        size_t at = (size_t)((unsigned __int128)gw_rng_u64(key, number++) * n >> 64);
        uint64_t bit = (uint64_t)1 << at % WORD, *word = &bits[at / WORD];
        k -= !(*word & bit);
        *word |= bit;
    }
}

/* To keep more than half, draw the places to drop. Every draw is uniform over the places, so every
 * set is equally likely. */
static void randomk_draw_places(places *p, uint64_t key, size_t n, size_t k) {
    size_t words = (n + WORD - 1) / WORD;
    p->key = key, p->n = n, p->k = k;
    memset(p->bits, 0, words * sizeof *p->bits);
    bool others = k > n / 2;
    randomk_draw(key, n, others ? n - k : k, p->bits);
    for (size_t w = 0; others && w < words; w++)
        p->bits[w] = ~p->bits[w];
    if (others && n % WORD)
        p->bits[words - 1] &= ((uint64_t)1 << n % WORD) - 1;
}

static gw_err randomk_take(const void *self, uint64_t key, size_t n, size_t k, places **out) {
    randomk *r = (randomk *)self; /* only its cached draws change */
    size_t words = (n + WORD - 1) / WORD;
    places *p = atomic_exchange(&r->drawn[key % DRAWS], NULL);
    *out = p;
    if (p && p->key == key && p->n == n && p->k == k)
        return GW_OK;
    if (!p || p->room < words) {
        free(p);
        p = malloc(sizeof *p + words * sizeof *p->bits);
        if (!p)
            return gw_fail(GW_ERR_NOMEM, "randomk: out of memory: %zu words of scratch memory",
                           words);
        p->room = words;
    }
    randomk_draw_places(p, key, n, k);
    *out = p;
    return GW_OK;
}

static void randomk_give(const void *self, places *p) {
    free(atomic_exchange(&((randomk *)self)->drawn[p->key % DRAWS], p));
}

static uint64_t randomk_swap_key(uint64_t key) {
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    key = __builtin_bswap64(key);
#endif
    return key;
}

static gw_err randomk_encode(const void *self, gw_turn turn, const float *x, size_t n, void *out,
                             size_t cap, size_t *len) {
    (void)cap;
    const randomk *r = self;
    *len = 0;
    if (n == 0)
        return GW_OK;
    size_t k = gw_ratio_kept(&r->ratio, turn.step, n);
    uint64_t wire_key = randomk_swap_key(turn.key);
    places *p;
    GW_TRY(randomk_take(self, turn.key, n, k, &p));
    memcpy(out, &wire_key, KEY);
    gw_u32u *value = (gw_u32u *)(void *)((char *)out + KEY);
    for (size_t i = 0; i < n; i += WORD)
        for (uint64_t word = p->bits[i / WORD]; word; word &= word - 1)
            *value++ = gw_float_bits(x[i + (size_t)__builtin_ctzll(word)]);
    randomk_give(self, p);
    *len = KEY + VALUE * k;
    return GW_OK;
}

static void randomk_scatter(const uint64_t *bits, const gw_u32u *value, float *y, size_t n,
                            gw_into into) {
    for (size_t i = 0; i < n; i += WORD)
        for (uint64_t word = bits[i / WORD]; word; word &= word - 1) {
            float *to = y + i + (size_t)__builtin_ctzll(word), v = gw_float_of(*value++);
            switch (into) {
            case GW_INTO_SET: *to = v; break;
            case GW_INTO_ADD: *to += v; break;
            case GW_INTO_SUBTRACT: *to -= v; break;
            case GW_INTO_CLEAR: *to = 0; break;
            }
        }
}

/* Decode to y, or to a list if y is NULL. Any key gives k places below n: a corrupt one gives wrong
 * places, never places outside. */
static gw_err randomk_decode_either(const void *self, const void *in, size_t len, float *y,
                                    size_t n, gw_into into, gw_elements *out) {
    const randomk *r = self;
    size_t k = len < KEY ? 0 : (len - KEY) / VALUE;
    size_t least = gw_ratio_least(&r->ratio, n), most = gw_ratio_most(&r->ratio, n);
    uint64_t key;
    places *p;
    if (n == 0 && len == 0)
        return GW_OK;
    if (n == 0 || len != KEY + VALUE * k || k < least || k > most)
        return gw_fail(GW_ERR_CORRUPT,
                       "randomk: %zu bytes for %zu floats, expected 8 + 4 k, k from %zu to %zu",
                       len, n, least, most);
    memcpy(&key, in, KEY);
    GW_TRY(randomk_take(self, randomk_swap_key(key), n, k, &p));
    const gw_u32u *value = (const gw_u32u *)(const void *)((const char *)in + KEY);
    gw_err e = y ? GW_OK : gw_elements_reserve(out, k);
    if (y && into == GW_INTO_SET)
        memset(y, 0, n * sizeof *y);
    if (y)
        randomk_scatter(p->bits, value, y, n, into);
    for (size_t i = 0; !y && e == GW_OK && i < n; i += WORD)
        for (uint64_t word = p->bits[i / WORD]; word; word &= word - 1) {
            out->value[out->n] = gw_float_of(value[out->n]);
            out->at[out->n++] = (uint32_t)(i + (size_t)__builtin_ctzll(word));
        }
    randomk_give(self, p);
    return e;
}

static gw_err randomk_decode(const void *self, const void *in, size_t len, float *y, size_t n,
                             gw_into into) {
    return randomk_decode_either(self, in, len, y, n, into, NULL);
}

static gw_err randomk_list(const void *self, const void *in, size_t len, size_t n,
                           gw_elements *out) {
    return randomk_decode_either(self, in, len, NULL, n, GW_INTO_SET, out);
}

static gw_err randomk_add(void *inout, const void *in, size_t len) {
    gw_u32u *sum = inout;
    const gw_u32u *more = in;
    for (size_t i = 0; i < len / VALUE; i++)
        sum[i] = gw_float_bits(gw_float_of(sum[i]) + gw_float_of(more[i]));
    return GW_OK;
}

const gw_codec_ops gw_codec_randomk = {
    .head = {GW_CODEC_ABI, "randomk", "elements drawn at random, the same on all ranks",
             randomk_opts},
    .open = randomk_open,
    .close = randomk_close,
    .traits = randomk_traits,
    .bound = randomk_bound,
    .encode = randomk_encode,
    .decode = randomk_decode,
    .list = randomk_list,
    .add = randomk_add,
    .unit_bytes = VALUE,
    .sum = GW_SUM_FLOAT,
    .prefix = randomk_prefix,
};
