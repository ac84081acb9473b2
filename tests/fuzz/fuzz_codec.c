/* Hostile bytes into every decoder, odd floats into every encoder, buffers of exactly the size that
 * was promised. A spec is a codec's.
 *
 * An input's first byte: bits 0 to 2 what is done, 3 and 4 the gw_into, 5 to 7 the upper bits of
 * n; its second byte: the lower bits of n, the count of floats. The rest is, by what is done:
 *   0     the wire
 *   1     the wire, repeated up to bound(n)
 *   2     the wire of a framed codec; if its first byte is odd, the rest, in a frame that is right
 *   3     the floats, repeated: to be encoded and decoded
 *   4..7  damage (gw_fuzz_damage) to an encoding */
#include "fuzz.h"

#include "base/rng.h"
#include "compress/codec.h"
#include "compress/frame.h"
#include "compress/kernel/simd.h"

#include "../specs.h"

#include <string.h>

enum { HEAD = 2, SEED = 4711, RANKS = 2 };

static gw_codec plain[GW_SIMD_LEVELS], framed;
static unsigned levels;

static gw_codec open_at(const char *spec, int level, gw_err *e) {
    gw_codec c = {0};
    setenv("GW_SIMD", gw_simd_name((gw_simd)level), 1);
    *e = open_codec(&c, spec);
    unsetenv("GW_SIMD");
    if (*e == GW_OK)
        *e = gw_codec_join(&c, RANKS);
    return c;
}

static void codec_open(const char *spec) {
    gw_err e = GW_OK;
    for (levels = 0; levels < GW_SIMD_LEVELS; levels++) { /* the inputs take turns */
        plain[levels] = open_at(spec, (int)levels, &e);
        if (e != GW_OK)
            break;
    }
    if (levels == 0)
        gw_fuzz_stop(gw_err_text(), spec);
    framed = open_at(spec, (int)levels - 1, &e);
    gw_codec_frame(&framed);
}

static void codec_close(void) {
    while (levels > 0)
        gw_codec_close(&plain[--levels]);
    gw_codec_close(&framed);
}

/* Every registered codec with default options, and these. */
static void each(void (*f)(const char *spec)) {
    static const char *const more[] = {"qsgd:bits=2",         "qsgd:bits=4",      "qsgd:bits=5",
                                       "qsgd:bits=4+zlib",    "topk:ratio=0.3",   "topk:warmup=5",
                                       "randomk:warmup=5",    "zlib:shuffle=off", "fp16+zlib",
                                       "topk+zlib:shuffle=on"};
    for (const gw_entry *const *c = gw_codecs.entries; *c; c++)
        f((*c)->name);
    for (size_t i = 0; i < sizeof more / sizeof *more; i++)
        f(more[i]);
}

/* ---- buffers that end where they must ---- */

typedef struct buffer {
    void *block, *at;
    size_t n;
} buffer;

/* n bytes that start `off` bytes after an aligned address. */
static buffer buffer_new(size_t n, size_t off) {
    char *block = malloc(n + off);
    MUST(block || n + off == 0);
    return (buffer){block, block ? block + off : block, n};
}

static buffer floats_new(size_t n) {
    buffer b = buffer_new(n * sizeof(float), n & 2 ? sizeof(float) : 0);
    for (size_t i = 0; i < n; i++)
        ((float *)b.at)[i] = 1;
    return b;
}

static buffer wire_new(size_t len, size_t n) {
    return buffer_new(len, n & 1);
}

static void repeat(const uint8_t *data, size_t size, void *to, size_t n) {
    for (size_t i = 0; i < n; i++)
        ((uint8_t *)to)[i] = size ? data[i % size] : 0;
}

/* ---- what is done ---- */

/* An encoding's list equals what decoding makes of it, or both are refused. */
static void try_list(const gw_codec *c, const void *wire, size_t len, size_t n, gw_err decoded) {
    gw_elements list = {0};
    buffer y = floats_new(n), z = floats_new(n);
    MUST(gw_codec_list(c, wire, len, n, &list) == decoded);
    if (decoded == GW_OK) {
        MUST(gw_codec_decode(c, wire, len, y.at, n, GW_INTO_SET) == GW_OK);
        if (n)
            memset(z.at, 0, z.n);
        for (size_t i = 0; i < list.n; i++) {
            MUST(list.at[i] < n && (i == 0 || list.at[i] > list.at[i - 1]));
            ((float *)z.at)[list.at[i]] = list.value[i];
        }
        MUST(n == 0 || !memcmp(y.at, z.at, y.n));
    }
    gw_elements_free(&list);
    free(y.block);
    free(z.block);
}

static void try_decode(const gw_codec *c, const void *wire, size_t len, size_t n, gw_into into) {
    buffer in = wire_new(len, n), y = floats_new(n);
    if (len)
        memcpy(in.at, wire, len);
    if (!(c->caps & GW_CODEC_SPARSE))
        into = into == GW_INTO_SET ? GW_INTO_SET : GW_INTO_ADD;
    gw_err e = gw_codec_decode(c, in.at, len, y.at, n, into);
    MUST(e == GW_OK || e == GW_ERR_CORRUPT);
    if (e == GW_ERR_CORRUPT)
        MUST(*gw_err_text() && !strchr(gw_err_text(), '\n'));
    if (e == GW_OK && c->caps & GW_CODEC_FIXED)
        MUST(len == gw_codec_bound(c, n));
    if (gw_codec_lists(c))
        try_list(c, in.at, len, n, e);
    free(in.block);
    free(y.block);
}

static void try_framed(const uint8_t *data, size_t size, size_t n, gw_into into) {
    if (size == 0 || data[0] % 2 == 0) {
        try_decode(&framed, data, size, n, into);
        return;
    }
    size_t len = size - 1;
    buffer wire = buffer_new(GW_FRAME_BYTES + len, 0);
    memcpy((char *)wire.at + GW_FRAME_BYTES, data + 1, len);
    gw_frame_seal(wire.at, framed.tag, n, len);
    try_decode(&framed, wire.at, wire.n, n, into);
    free(wire.block);
}

static buffer encode(const gw_codec *c, const float *x, size_t n) {
    size_t len = 0;
    buffer wire = wire_new(gw_codec_bound(c, n), n);
    MUST(gw_codec_encode(c, (gw_turn){SEED, 1}, x, n, wire.at, wire.n, &len) == GW_OK);
    MUST(len <= wire.n);
    if (c->caps & GW_CODEC_FIXED)
        MUST(len == wire.n);
    wire.n = len;
    return wire;
}

static void try_feedback(const gw_codec *c, const float *x, size_t n) {
    size_t len = 0;
    buffer wire = wire_new(gw_codec_bound(c, n), n), e = floats_new(n);
    MUST(gw_codec_encode_feedback(c, (gw_turn){SEED, 1}, x, e.at, n, wire.at, wire.n, &len) ==
         GW_OK);
    try_decode(c, wire.at, len, n, GW_INTO_ADD);
    free(wire.block);
    free(e.block);
}

static void try_sum(const gw_codec *c, const buffer *wire, size_t n) {
    size_t prefix = gw_codec_prefix(c, n);
    buffer sum = wire_new(wire->n, n);
    if (wire->n > prefix) {
        memcpy(sum.at, wire->at, wire->n);
        MUST(c->ops->add((char *)sum.at + prefix, (char *)wire->at + prefix, wire->n - prefix) ==
             GW_OK);
    }
    try_decode(c, sum.at, sum.n, n, GW_INTO_SET);
    free(sum.block);
}

static void try_round_trip(const gw_codec *c, const uint8_t *data, size_t size, size_t n,
                           gw_into into) {
    buffer x = floats_new(n), y = floats_new(n);
    repeat(data, size, x.at, x.n);
    buffer wire = encode(c, x.at, n), reference = encode(&plain[0], x.at, n);
    MUST(wire.n == reference.n && (wire.n == 0 || !memcmp(wire.at, reference.at, wire.n)));
    MUST(gw_codec_decode(c, wire.at, wire.n, y.at, n, GW_INTO_SET) == GW_OK);
    if (c->caps & GW_CODEC_LOSSLESS && n)
        MUST(!memcmp(x.at, y.at, x.n));
    try_decode(c, wire.at, wire.n, n, into);
    if (gw_codec_feeds_back(c))
        try_feedback(c, x.at, n);
    if (gw_codec_summable(c))
        try_sum(c, &wire, n);
    buffer frame = encode(&framed, x.at, n);
    MUST(gw_codec_decode(&framed, frame.at, frame.n, y.at, n, GW_INTO_SET) == GW_OK);
    free(frame.block);
    free(reference.block);
    free(wire.block);
    free(x.block);
    free(y.block);
}

static void try_damaged(const gw_codec *c, const uint8_t *data, size_t size, size_t n,
                        gw_into into) {
    buffer x = floats_new(n);
    for (size_t i = 0; i < n; i++)
        ((float *)x.at)[i] = i % 7 ? (float)gw_rng_normal(n, i) : 0.0f;
    buffer wire = encode(c, x.at, n);
    try_decode(c, wire.at, gw_fuzz_damage(wire.at, wire.n, data, size), n, into);
    free(wire.block);
    free(x.block);
}

static void one(const uint8_t *data, size_t size) {
    static const gw_into intos[] = {GW_INTO_SET, GW_INTO_ADD, GW_INTO_SUBTRACT, GW_INTO_CLEAR};
    if (size < HEAD)
        return;
    gw_into into = intos[data[0] >> 3 & 3];
    size_t n = data[1] + 256u * (data[0] >> 5);
    const gw_codec *c = &plain[n % levels];
    int what = data[0] & 7;
    data += HEAD, size -= HEAD;
    if (what == 0) {
        try_decode(c, data, size, n, into);
    } else if (what == 1) {
        buffer wire = buffer_new(gw_codec_bound(c, n), 0);
        repeat(data, size, wire.at, wire.n);
        try_decode(c, wire.at, wire.n, n, into);
        free(wire.block);
    } else if (what == 2) {
        try_framed(data, size, n, into);
    } else if (what == 3) {
        try_round_trip(c, data, size, n, into);
    } else {
        try_damaged(c, data, size, n, into);
    }
}

const gw_fuzz_target gw_fuzz_codec = {.name = "codec",
                                      .mutations = 8000, /* a codec */
                                      .each = each,
                                      .open = codec_open,
                                      .close = codec_close,
                                      .one = one};
