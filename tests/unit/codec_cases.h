/** What the codec tests share: the specs they loop over, gradient-like data, guarded buffers. */
#ifndef GW_TESTS_CODEC_CASES_H
#define GW_TESTS_CODEC_CASES_H

#include "base/mem.h"
#include "base/rng.h"
#include "compress/codec.h"
#include "compress/kernel/simd.h"

#include "../specs.h"
#include "unit.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* Every registered codec with default options, and these. */
static const char *const more_specs[] = {
    "qsgd:bits=2",
    "qsgd:bits=3",
    "qsgd:bits=5",
    "qsgd:bits=6",
    "qsgd:bits=7,bucket=64",
    "int8sum:bucket=64",
    "qsgd:bits=4",
    "qsgd:bits=8,bucket=64",
    "qsgd:bits=4,bucket=1024",
    "topk:ratio=0.1",
    "topk:ratio=0.6",
    "topk:ratio=1",
    "topk:warmup=10",
    "randomk:ratio=0.1",
    "randomk:ratio=0.7",
    "randomk:warmup=10",
    "threshold:value=0.03",
    "threshold:value=0",
    "zlib:shuffle=off",
    "zlib:level=9",
    "qsgd:bits=4+zlib",
    "topk+zlib:shuffle=on",
    "fp16+zlib",
    "onebit:bucket=64",
    "natural:bucket=64",
    "ternary:bucket=320",
    "qsgd:bits=4,rounding=nearest",
    "e3m0:bucket=64",
    "e3m0:rounding=nearest",
    "chunktopk:k=8,chunk=64,bits=1",
    "chunktopk:k=100,chunk=1024,bits=4",
    "qsgd:bits=8,rounding=nearest",
    "qsgd:bits=4,rounding=correlated",
    "adaptive:bits=3,bucket=64",
    "adaptive:bits=8",
    "thc:bucket=64",
    "thc:bits=6,granularity=126,truncate=1e-9,bucket=512",
};
static const size_t lengths[] = {0,  1,   2,   15,  16,  17,   63,   64,
                                 65, 511, 512, 513, 576, 1000, 1024, 65537};
enum { LENGTHS = sizeof lengths / sizeof *lengths };

/** Calls check(spec) for all of them. */
static inline void each_spec(void (*check)(const char *spec)) {
    for (const gw_entry *const *c = gw_codecs.entries; *c; c++)
        check((*c)->name);
    for (size_t i = 0; i < sizeof more_specs / sizeof *more_specs; i++)
        check(more_specs[i]);
}

static inline gw_codec must_open(const char *spec) {
    gw_codec c;
    if (open_codec(&c, spec) != GW_OK)
        fail_msg("%s: %s", spec, gw_err_text());
    return c;
}

static const char *const level_names[] = {"portable", "avx2", "avx512"};

/** Opens `spec` at a level of instructions; false: this CPU has none. */
static inline bool open_at(gw_codec *c, const char *spec, int level) {
    setenv("GW_SIMD", level_names[level], 1);
    gw_err e = open_codec(c, spec);
    unsetenv("GW_SIMD");
    assert_true(e == GW_OK || (level > 0 && e == GW_ERR_USAGE));
    return e == GW_OK;
}

/** Floats that share a scale: what one bad value may spoil. */
static inline size_t bucket_of(const gw_codec *c) {
    for (const gw_opt *o = c->ops->head.opts; o && o->name; o++)
        if (strcmp(o->name, "bucket") == 0)
            return (size_t)gw_args_int(c->args, "bucket");
    return 1;
}

/** Whether the tests know how far a bucket reaches, and what becomes of zeros and denormals: the
 *  contract leaves these open, so a new codec need not be named here. */
static inline bool is_described(const gw_codec *c) {
    static const char *const names[] = {"none",    "fp16",      "bf16",   "qsgd",    "e3m0",
                                        "natural", "ternary",   "onebit", "int8sum", "topk",
                                        "randomk", "threshold", "zlib"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(c->ops->head.name, names[i]) == 0)
            return true;
    return false;
}

static inline void *must_alloc(size_t bytes) {
    void *p = NULL;
    assert_int_equal(gw_alloc(&p, bytes, 1), GW_OK);
    return p;
}

/** Normal values, a scale a 300 floats, one zero in eight. Kept by key, since drawing them would
 *  take most of a test's time. */
static inline void fill_gradient(uint64_t key, float *x, size_t n) {
    static struct {
        uint64_t key;
        size_t n;
        float *x;
    } kept[1024], *k;
    k = &kept[key % 1024];
    if (k->key != key || k->n < n) {
        free(k->x);
        k->key = key, k->n = n, k->x = must_alloc(n * sizeof *k->x);
        for (size_t i = 0; i < n; i++) {
            float scale = (float)(1 + i / 300 % 7) * 0.01f;
            int zero = gw_rng_u64(key + 1, i) >> 61 == 0;
            k->x[i] = zero ? 0.0f : scale * (float)gw_rng_normal(key, i);
        }
    }
    if (n > 0)
        memcpy(x, k->x, n * sizeof *x);
}

/** Compare floats as bits, but any NaN equals any other: which of two NaNs an addition keeps is not
 * defined. */
static inline void assert_same_floats(const float *a, const float *b, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (!isnan(a[i]) || !isnan(b[i]))
            assert_memory_equal(&a[i], &b[i], sizeof *a);
}

/** Encode into a fresh buffer, *len bytes. */
static inline unsigned char *encoded(const gw_codec *c, uint64_t key, const float *x, size_t n,
                                     size_t *len) {
    size_t cap = gw_codec_bound(c, n);
    unsigned char *wire = must_alloc(cap);
    assert_int_equal(gw_codec_encode(c, (gw_turn){key, 1}, x, n, wire, cap, len), GW_OK);
    return wire;
}

/** y = decode(encode(x)). */
static inline void round_trip(const gw_codec *c, uint64_t key, const float *x, size_t n, float *y) {
    size_t len;
    unsigned char *wire = encoded(c, key, x, n, &len);
    assert_int_equal(gw_codec_decode(c, wire, len, y, n, 0), GW_OK);
    free(wire);
}

/** `bytes` bytes between two pages that trap; `at_end`: next to the upper one. */
typedef struct guarded {
    void *p, *map;
    size_t map_bytes;
} guarded;

static inline guarded guard(size_t bytes, int at_end) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE), body = (bytes + page - 1) / page * page;
    guarded g = {.map_bytes = body + 2 * page};
    g.map = mmap(NULL, g.map_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(g.map != MAP_FAILED);
    unsigned char *low = (unsigned char *)g.map + page;
    if (body)
        assert_int_equal(mprotect(low, body, PROT_READ | PROT_WRITE), 0);
    g.p = at_end ? low + body - bytes : low;
    return g;
}

static inline void unguard(guarded g) {
    munmap(g.map, g.map_bytes);
}

/** A corrupt encoding: no way of decoding takes it, or changes a float first. */
static inline void refuse(const gw_codec *c, const unsigned char *wire, size_t len, size_t n) {
    guarded in = guard(len, 1), out = guard(n * sizeof(float), 1);
    bool sparse = c->caps & GW_CODEC_SPARSE;
    int last = sparse ? GW_INTO_CLEAR : GW_INTO_ADD;
    float *y = out.p;
    memcpy(in.p, wire, len);
    for (size_t i = 0; i < n; i++)
        y[i] = 7;
    for (int into = sparse ? GW_INTO_SUBTRACT : GW_INTO_SET; into <= last; into++)
        assert_int_equal(gw_codec_decode(c, in.p, len, y, n, (gw_into)into), GW_ERR_CORRUPT);
    for (size_t i = 0; i < n; i++)
        assert_true(y[i] == 7);
    unguard(in), unguard(out);
}

#endif
