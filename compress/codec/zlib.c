/* zlib: lossless. The floats' bytes are sorted into planes, so that signs and exponents, which are
 * similar across a gradient, lie side by side; then deflate (P. Deutsch, RFC 1951). Its match
 * search finds almost nothing in such data, so the default is Z_RLE: runs of one byte and a Huffman
 * code. On shuffling: F. Alted, "Why Modern CPUs Are Starving and What Can Be Done about It",
 * Computing in Science & Engineering 12(2), 2010.
 *
 * Wire format (nothing for n = 0):
 *   kind   1 byte: 0 stored, 1 deflated
 *   stored: the bytes; deflated: a raw deflate stream (no header, no checksum) that holds them
 * and the bytes of n floats are
 *   shuffle on:  four planes of n bytes, plane p the bytes p, the lowest first, of little-endian
 *                binary32
 *   shuffle off: n binary32 in host order
 * At most 1 + 4 n bytes: data that deflate does not shorten is stored. The size depends on the
 * data: 25 to 27 bits an element on gradients.
 *
 * As a stage behind another codec, "qsgd:bits=4+zlib", it packs that codec's bytes the same way,
 * with shuffle off by default, since codes are single bytes. shuffle=on treats them as 4-byte
 * words; the last len mod 4 bytes follow the planes unchanged.
 *
 * The strategies are zlib's own. Only `default` searches for matches, so only it has levels. */
#include "compress/codec.h"

#include "base/mem.h"
#include "compress/kernel/shuffle.h"
#include "compress/scratch.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

enum { KIND = 1, STORED = 0, DEFLATED = 1, WORD = 4, RAW = -15, MEMORY = 8, ALIGN = 64 };

typedef struct codec {
    const gw_shuffle_kernels *k;
    int level, strategy;
    bool shuffle, stage_shuffle;
    size_t deflate_room, inflate_room; /* what the streams allocate */
    gw_scratch scratch;
} codec;

static const gw_opt zlib_opts[] = {
    {"level", GW_OPT_INT, "6", 1, 9, NULL, NULL,
     "effort of the match search (strategy=default only)"},
    {"shuffle", GW_OPT_CHOICE, "auto", 0, 0, "auto|on|off", NULL,
     "sort bytes into planes (auto: on for floats, off behind another codec)"},
    {"strategy", GW_OPT_CHOICE, "auto", 0, 0, "auto|rle|huffman|default", NULL,
     "strategy of deflate (auto: default if level is given, else rle)"},
    {0}};

/* ---- stream memory: from the call's scratch block ---- */

typedef struct arena {
    unsigned char *at; /* NULL: count only */
    size_t used, room;
} arena;

static void *zlib_take(void *opaque, uInt items, uInt size) {
    arena *a = opaque;
    size_t bytes = ((size_t)items * size + ALIGN - 1) / ALIGN * ALIGN;
    a->used += bytes;
    if (!a->at)
        return malloc(bytes);
    return a->used <= a->room ? a->at + a->used - bytes : NULL;
}

static void zlib_give(void *opaque, void *p) {
    const arena *a = opaque;
    if (!a->at)
        free(p);
}

static z_stream zlib_stream(arena *a) {
    return (z_stream){.zalloc = zlib_take, .zfree = zlib_give, .opaque = a};
}

static int zlib_start_deflate(const codec *c, z_stream *z) {
    return deflateInit2(z, c->level, Z_DEFLATED, RAW, MEMORY, c->strategy);
}

/* Find out how much memory this zlib's streams need. inflate allocates its window at the first
 * output that is followed by more input. */
static gw_err zlib_measure_streams(codec *c) {
    static const unsigned char byte_and_no_end[] = {0x00, 0x01, 0x00, 0xfe, 0xff, 'x'};
    unsigned char byte;
    arena out = {0}, in = {0};
    z_stream d = zlib_stream(&out), i = zlib_stream(&in);
    bool good = zlib_start_deflate(c, &d) == Z_OK;
    deflateEnd(&d);
    good = inflateInit2(&i, RAW) == Z_OK && good;
    i.next_in = (Bytef *)(uintptr_t)byte_and_no_end;
    i.avail_in = sizeof byte_and_no_end;
    i.next_out = &byte;
    i.avail_out = 1;
    good = good && inflate(&i, Z_SYNC_FLUSH) == Z_OK && i.avail_out == 0;
    inflateEnd(&i);
    c->deflate_room = out.used;
    c->inflate_room = in.used;
    return good ? GW_OK : gw_fail(GW_ERR_NOMEM, "zlib %s: cannot open a stream", zlibVersion());
}

static gw_err zlib_open(void **self, const gw_args *args) {
    static const gw_shuffle_kernels *const levels[] = GW_SIMD_TABLE(gw_shuffle);
    const char *strategy = gw_args_text(args, "strategy"), *shuffle = gw_args_text(args, "shuffle");
    bool leveled = gw_args_given(args, "level");
    gw_simd simd;
    codec *c = NULL;
    GW_TRY(gw_simd_pick(&simd));
    if (strcmp(strategy, "auto") == 0)
        strategy = leveled ? "default" : "rle";
    if (leveled && strcmp(strategy, "default") != 0)
        return gw_fail(GW_ERR_USAGE,
                       "zlib: level=%lld: strategy=%s has no levels: remove one of them",
                       gw_args_int(args, "level"), strategy);
    GW_TRY(gw_alloc(&c, 1, sizeof *c));
    c->k = levels[simd];
    c->level = (int)gw_args_int(args, "level");
    c->strategy = strcmp(strategy, "default") == 0 ? Z_DEFAULT_STRATEGY
                  : strcmp(strategy, "rle") == 0   ? Z_RLE
                                                   : Z_HUFFMAN_ONLY;
    c->shuffle = strcmp(shuffle, "off") != 0;
    c->stage_shuffle = strcmp(shuffle, "on") == 0;
    gw_err e = zlib_measure_streams(c);
    GW_OPENED(e, self, c, free);
}

static void zlib_close(void *self) {
    codec *c = self;
    if (c)
        gw_scratch_clear(&c->scratch);
    free(c);
}

typedef struct shuffling {
    const gw_shuffle_kernels *k;
    unsigned char *planes;
    void *words; /* floats */
    size_t n;
    bool add;
} shuffling;

static void zlib_split_part(void *ctx, size_t lo, size_t hi) {
    const shuffling *s = ctx;
    size_t tail = (hi - lo) % GW_BLOCK, end = hi - tail;
    const char *words = s->words;
    s->k->split(words + WORD * lo, end - lo, s->planes + lo, s->n);
    if (tail) {
        char block[WORD * GW_BLOCK] = {0};
        unsigned char planes[GW_PLANES * GW_BLOCK];
        memcpy(block, words + WORD * end, WORD * tail);
        s->k->split(block, GW_BLOCK, planes, GW_BLOCK);
        for (size_t p = 0; p < GW_PLANES; p++)
            memcpy(s->planes + p * s->n + end, planes + p * GW_BLOCK, tail);
    }
}

static void zlib_join_part(void *ctx, size_t lo, size_t hi) {
    const shuffling *s = ctx;
    size_t tail = (hi - lo) % GW_BLOCK, end = hi - tail;
    char *words = s->words;
    if (s->add)
        s->k->join_add(s->planes + lo, s->n, end - lo, (float *)s->words + lo);
    else
        s->k->join(s->planes + lo, s->n, end - lo, words + WORD * lo);
    if (tail) {
        unsigned char planes[GW_PLANES * GW_BLOCK] = {0};
        float block[GW_BLOCK], *y = (float *)s->words + end;
        for (size_t p = 0; p < GW_PLANES; p++)
            memcpy(planes + p * GW_BLOCK, s->planes + p * s->n + end, tail);
        s->k->join(planes, GW_BLOCK, GW_BLOCK, block);
        for (size_t i = 0; s->add && i < tail; i++)
            y[i] += block[i];
        if (!s->add)
            memcpy(words + WORD * end, block, WORD * tail);
    }
}

/* *packed is 0 if the result is not shorter. `room`: deflate_room bytes. */
static gw_err zlib_deflate(const codec *c, void *room, const unsigned char *in, size_t len,
                           unsigned char *out, size_t *packed) {
    arena a = {.at = room, .room = c->deflate_room};
    z_stream z = zlib_stream(&a);
    if (zlib_start_deflate(c, &z) != Z_OK)
        return gw_fail(GW_ERR_INTERNAL, "zlib: a stream needs more than %zu bytes",
                       c->deflate_room);
    z.next_in = (Bytef *)(uintptr_t)in; /* zlib only reads it */
    z.avail_in = (uInt)len;
    z.next_out = out;
    z.avail_out = (uInt)len - 1;
    *packed = deflate(&z, Z_FINISH) == Z_STREAM_END ? z.total_out : 0;
    deflateEnd(&z);
    return GW_OK;
}

static gw_err zlib_check_count(size_t len) {
    return len <= UINT32_MAX
               ? GW_OK
               : gw_fail(GW_ERR_UNSUPPORTED,
                         "zlib: %zu bytes are too many for 32-bit lengths: use buckets", len);
}

/* Pack in[0..len) to out[0..1 + len), with or without shuffling, which copies the bytes after the
 * last whole word. */
static gw_err zlib_pack_bytes(codec *c, bool shuffle, const void *in, size_t len,
                              unsigned char *out, size_t *packed) {
    *packed = 0;
    if (len == 0)
        return GW_OK;
    GW_TRY(zlib_check_count(len));
    unsigned char *room;
    gw_block *block;
    size_t extra = shuffle ? len : 0, got = 0;
    GW_TRY(gw_scratch_take(&c->scratch, "zlib", c->deflate_room + extra, &room, &block));
    const unsigned char *bytes = in;
    if (shuffle) {
        size_t words = len / WORD, rest = len % WORD;
        unsigned char *planes = room + c->deflate_room;
        shuffling s = {c->k, planes, (void *)(uintptr_t)in, words, false};
        gw_simd_split(words, GW_BLOCK, zlib_split_part, &s);
        memcpy(planes + len - rest, bytes + len - rest, rest);
        bytes = planes;
    }
    gw_err e = zlib_deflate(c, room, bytes, len, out + KIND, &got);
    if (e == GW_OK) {
        out[0] = got ? DEFLATED : STORED;
        if (!got)
            memcpy(out + KIND, bytes, len);
        *packed = KIND + (got ? got : len);
    }
    gw_scratch_give(&c->scratch, block);
    return e;
}

/* Inflate the whole stream in[0..packed) to *len <= cap bytes: never more, whatever the stream
 * claims. */
static gw_err zlib_inflate(const codec *c, void *room, const unsigned char *in, size_t packed,
                           unsigned char *out, size_t cap, size_t *len) {
    arena a = {.at = room, .room = c->inflate_room};
    z_stream z = zlib_stream(&a);
    if (inflateInit2(&z, RAW) != Z_OK)
        return gw_fail(GW_ERR_INTERNAL, "zlib: a stream needs more than %zu bytes",
                       c->inflate_room);
    z.next_in = (Bytef *)(uintptr_t)in;
    z.avail_in = (uInt)packed;
    z.next_out = out;
    z.avail_out = (uInt)cap;
    int status = inflate(&z, Z_FINISH);
    *len = z.total_out;
    size_t rest = z.avail_in;
    const char *why = z.msg ? z.msg : rest ? "it holds more" : "it ends too early";
    inflateEnd(&z);
    if (status == Z_STREAM_END && rest == 0)
        return GW_OK;
    if (status == Z_STREAM_END)
        why = "bytes follow its end";
    return gw_fail(GW_ERR_CORRUPT, "zlib: %zu bytes, for at most %zu: %s", packed, cap, why);
}

/* Get the bytes that in[0..packed), packed > 0, stands for: *len <= cap of them at *bytes, which
 * points into `in` or to `out`. */
static gw_err zlib_open_bytes(const codec *c, void *room, const unsigned char *in, size_t packed,
                              unsigned char *out, size_t cap, const unsigned char **bytes,
                              size_t *len) {
    if (in[0] > DEFLATED)
        return gw_fail(GW_ERR_CORRUPT, "zlib: kind %u, expected %d or %d", in[0], STORED, DEFLATED);
    if (in[0] == DEFLATED) {
        *bytes = out;
        return zlib_inflate(c, room, in + KIND, packed - KIND, out, cap, len);
    }
    *bytes = in + KIND;
    *len = packed - KIND;
    if (*len > cap)
        return gw_fail(GW_ERR_CORRUPT, "zlib: %zu bytes stored, at most %zu possible", *len, cap);
    return GW_OK;
}

/* ---- as a codec ---- */

static size_t zlib_bound(const void *self, size_t n) {
    (void)self;
    return n ? KIND + n * WORD : 0;
}

static gw_err zlib_encode(const void *self, gw_turn turn, const float *x, size_t n, void *out,
                          size_t cap, size_t *len) {
    (void)turn, (void)cap;
    codec *c = (codec *)self; /* only its scratch changes */
    return zlib_pack_bytes(c, c->shuffle, x, n * WORD, out, len);
}

static gw_err zlib_decode(const void *self, const void *in, size_t len, float *y, size_t n,
                          gw_into into) {
    codec *c = (codec *)self;
    size_t want = n * WORD, got = 0;
    if (n == 0 && len == 0)
        return GW_OK;
    if (n == 0 || len == 0)
        return gw_fail(GW_ERR_CORRUPT, "zlib: %zu bytes for %zu floats", len, n);
    GW_TRY(zlib_check_count(want));
    unsigned char *room;
    const unsigned char *bytes = NULL;
    gw_block *block;
    GW_TRY(gw_scratch_take(&c->scratch, "zlib", c->inflate_room + want, &room, &block));
    gw_err e = zlib_open_bytes(c, room, in, len, room + c->inflate_room, want, &bytes, &got);
    if (e == GW_OK && got != want)
        e = gw_fail(GW_ERR_CORRUPT, "zlib: %zu bytes for %zu floats, expected %zu", got, n, want);
    shuffling s = {c->k, (unsigned char *)(uintptr_t)bytes, y, n, into == GW_INTO_ADD};
    if (e == GW_OK && c->shuffle)
        gw_simd_split(n, GW_BLOCK, zlib_join_part, &s);
    else if (e == GW_OK && !s.add)
        memcpy(y, bytes, want);
    for (size_t i = 0; e == GW_OK && !c->shuffle && s.add && i < n; i++) {
        float v;
        memcpy(&v, bytes + WORD * i, sizeof v);
        y[i] += v;
    }
    gw_scratch_give(&c->scratch, block);
    return e;
}

/* ---- as a stage ---- */

static size_t zlib_pack_bound(const void *self, size_t len) {
    (void)self;
    return len ? KIND + len : 0;
}

static gw_err zlib_pack(const void *self, const void *in, size_t len, void *out, size_t cap,
                        size_t *packed) {
    (void)cap;
    codec *c = (codec *)self;
    return zlib_pack_bytes(c, c->stage_shuffle, in, len, out, packed);
}

static gw_err zlib_unpack(const void *self, const void *in, size_t packed, void *out, size_t cap,
                          size_t *len) {
    codec *c = (codec *)self;
    *len = 0;
    if (packed == 0)
        return GW_OK;
    GW_TRY(zlib_check_count(cap));
    unsigned char *room, *to = out;
    const unsigned char *bytes = NULL;
    gw_block *block;
    size_t extra = c->stage_shuffle ? cap : 0;
    GW_TRY(gw_scratch_take(&c->scratch, "zlib", c->inflate_room + extra, &room, &block));
    to = c->stage_shuffle ? room + c->inflate_room : to;
    gw_err e = zlib_open_bytes(c, room, in, packed, to, cap, &bytes, len);
    if (e == GW_OK && c->stage_shuffle) {
        size_t words = *len / WORD, rest = *len % WORD;
        shuffling s = {c->k, (unsigned char *)(uintptr_t)bytes, out, words, false};
        gw_simd_split(words, GW_BLOCK, zlib_join_part, &s);
        memcpy((char *)out + *len - rest, bytes + *len - rest, rest);
    } else if (e == GW_OK && bytes != out) {
        memcpy(out, bytes, *len);
    }
    gw_scratch_give(&c->scratch, block);
    return e;
}

const gw_codec_ops gw_codec_zlib = {
    .head = {GW_CODEC_ABI, "zlib", "byte planes, deflated (25 to 27 bits per element on gradients)",
             zlib_opts},
    .caps = GW_CODEC_LOSSLESS | GW_CODEC_UNBIASED,
    .open = zlib_open,
    .close = zlib_close,
    .bound = zlib_bound,
    .encode = zlib_encode,
    .decode = zlib_decode,
    .pack_bound = zlib_pack_bound,
    .pack = zlib_pack,
    .unpack = zlib_unpack,
};
