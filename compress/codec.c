#include "compress/codec.h"

#include "base/mem.h"
#include "base/text.h"
#include "compress/frame.h"
#include "compress/scratch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#define X(name) extern const gw_codec_ops gw_codec_##name;
#include "compress/codecs.def"
#undef X

static const gw_entry *const codec_entries[] = {
#define X(name) &gw_codec_##name.head,
#include "compress/codecs.def"
#undef X
    NULL,
};

static const gw_hook codec_needs[] = {GW_HOOK(gw_codec_ops, bound),
                                      GW_HOOK(gw_codec_ops, encode),
                                      GW_HOOK(gw_codec_ops, decode),
                                      {0}};

const gw_registry gw_codecs = {.kind = "codec",
                               .symbol = "gw_codec_plugin",
                               .abi = GW_CODEC_ABI,
                               .entries = codec_entries,
                               .needs = codec_needs};

const gw_spec gw_codec_exact = {.text = "none", .name = "none"};

typedef struct gw_stage {
    gw_codec codec;
    gw_scratch scratch;
} gw_stage;

static gw_err codec_open_one(gw_codec *out, const gw_spec *spec) {
    gw_codec c = {0};
    const gw_entry *entry = NULL;
    GW_TRY(gw_registry_find(&gw_codecs, spec->name, &entry));
    GW_TRY(gw_args_of(&c.args, entry->opts, entry->name, spec));
    c.ops = (const gw_codec_ops *)entry; /* head is the first member */
    const gw_codec_ops *o = c.ops;
    bool stage = o->pack || o->unpack || o->pack_bound;
    const char *lacks = stage && !(o->pack && o->unpack && o->pack_bound)
                            ? "pack, unpack and pack_bound belong together"
                        : o->add && o->unit_bytes == 0 ? "add needs unit_bytes"
                        : o->measure && !o->prefix     ? "measure needs prefix"
                                                       : NULL;
    gw_err e = lacks ? gw_fail(GW_ERR_INPUT, "codec %s: %s: fix the plugin", spec->text, lacks)
               : c.ops->open ? c.ops->open(&c.self, c.args)
                             : GW_OK;
    if (e != GW_OK) {
        gw_args_free(c.args);
        return e;
    }
    c.caps = c.ops->traits ? c.ops->traits(c.self) : c.ops->caps;
    c.fixed = c.caps & GW_CODEC_FIXED;
    gw_text_print(c.name, sizeof c.name, "%s", entry->name);
    *out = c;
    return GW_OK;
}

static gw_err codec_open_stage(gw_codec *c, const gw_spec *spec) {
    GW_TRY(gw_alloc(&c->stage, 1, sizeof *c->stage));
    GW_TRY(codec_open_one(&c->stage->codec, spec));
    if (!c->stage->codec.ops->pack)
        return gw_fail(GW_ERR_UNSUPPORTED,
                       "%s+%s: %s cannot follow a codec: only one that packs bytes can (zlib)",
                       c->ops->head.name, spec->text, c->stage->codec.ops->head.name);
    if (c->caps & GW_CODEC_IDENTITY)
        return gw_fail(GW_ERR_UNSUPPORTED, "none+%s: use %s alone", spec->text, spec->text);
    c->caps &= ~(unsigned)(GW_CODEC_FIXED | GW_CODEC_TIGHT | GW_CODEC_LINEAR);
    gw_text_print(c->name, sizeof c->name, "%s+%s", c->ops->head.name,
                  c->stage->codec.ops->head.name);
    return GW_OK;
}

gw_err gw_codec_open(gw_codec *out, const gw_spec *spec) {
    const gw_spec *stage = spec->parts ? spec->parts->next : NULL;
    gw_codec c = {0};
    if (stage && stage->next)
        return gw_fail(GW_ERR_UNSUPPORTED, "%s: more than one stage", spec->text);
    GW_TRY(codec_open_one(&c, stage ? spec->parts : spec));
    c.of = spec;
    c.spec = spec->text;
    gw_err e = stage ? codec_open_stage(&c, stage) : GW_OK;
    if (e == GW_OK)
        *out = c;
    else
        gw_codec_close(&c);
    return e;
}

static uint32_t codec_tag_text(uint32_t tag, const char *text) {
    return (uint32_t)crc32_z(tag, (const Bytef *)text, strlen(text) + 1);
}

/* A tag depends on the resolved name and options, not on spelling or on a plugin's path. Numbers
 * count by value, so that 0.1 and 0.10 give one tag. */
static uint32_t codec_tag(const gw_codec *c, uint32_t tag) {
    tag = codec_tag_text(tag, c->ops->head.name);
    for (const gw_opt *o = c->ops->head.opts; o && o->name; o++) {
        char number[32] = "";
        const char *text = gw_args_text(c->args, o->name);
        tag = codec_tag_text(tag, o->name);
        if (!text)
            continue;
        if (gw_opt_is_int(o))
            snprintf(number, sizeof number, "%lld", gw_args_int(c->args, o->name));
        else if (o->type == GW_OPT_BYTES)
            snprintf(number, sizeof number, "%zu", gw_args_bytes(c->args, o->name));
        else if (o->type == GW_OPT_REAL) /* no -0 */
            snprintf(number, sizeof number, "%.17g", gw_args_real(c->args, o->name) + 0.0);
        tag = codec_tag_text(tag, *number ? number : text);
    }
    return c->stage ? codec_tag(&c->stage->codec, tag) : tag;
}

void gw_codec_frame(gw_codec *c) {
    c->framed = true;
    c->caps &= ~(unsigned)(GW_CODEC_IDENTITY | GW_CODEC_LINEAR);
    c->tag = codec_tag(c, 0);
}

gw_err gw_codec_join(gw_codec *c, int ranks) {
    c->ranks = ranks;
    return c->ops->join ? c->ops->join(c->self, ranks) : GW_OK;
}

void gw_codec_close(gw_codec *c) {
    if (c->stage) {
        gw_codec_close(&c->stage->codec);
        gw_scratch_clear(&c->stage->scratch);
        free(c->stage);
    }
    if (c->ops && c->ops->close)
        c->ops->close(c->self);
    gw_args_free(c->args);
    memset(c, 0, sizeof *c);
}

static size_t codec_bare_bound(const gw_codec *c, size_t n) {
    size_t inner = c->ops->bound(c->self, n);
    return c->stage ? c->stage->codec.ops->pack_bound(c->stage->codec.self, inner) : inner;
}

size_t gw_codec_bound(const gw_codec *c, size_t n) {
    size_t bare = codec_bare_bound(c, n);
    return c->framed && bare ? GW_FRAME_BYTES + bare : bare;
}

double gw_codec_bits(const gw_codec *c, size_t n) {
    return c->caps & GW_CODEC_FIXED ? 8.0 * (double)gw_codec_bound(c, n) / (double)n : 0;
}

bool gw_codec_summable(const gw_codec *c) {
    return !c->stage && !c->framed && (c->caps & GW_CODEC_FIXED) && c->ops->add;
}

size_t gw_codec_prefix(const gw_codec *c, size_t n) {
    return c->ops->prefix ? c->ops->prefix(c->self, n) : 0;
}

static gw_err codec_check_length(const gw_codec *c, size_t n, size_t len) {
    size_t bound = c->ops->bound(c->self, n);
    if (len > bound || (c->fixed && len != bound))
        return gw_fail(GW_ERR_INTERNAL, "codec %s: encoded %zu floats into %zu bytes, bound is %zu",
                       c->spec, n, len, bound);
    return GW_OK;
}

static gw_err codec_check_room(const gw_codec *c, size_t n, size_t cap) {
    size_t bound = gw_codec_bound(c, n);
    if (cap < bound)
        return gw_fail(GW_ERR_INTERNAL, "codec %s: %zu bytes for %zu floats, needs %zu", c->spec,
                       cap, n, bound);
    return GW_OK;
}

static gw_err codec_encode_one(const gw_codec *c, gw_turn turn, const float *x, float *e, size_t n,
                               void *out, size_t cap, size_t *len) {
    if (c->ops->measure && !e)
        c->ops->measure(c->self, x, n, out);
    if (e)
        GW_TRY(c->ops->encode_feedback(c->self, turn, x, e, n, out, cap, len));
    else
        GW_TRY(c->ops->encode(c->self, turn, x, n, out, cap, len));
    return codec_check_length(c, n, *len);
}

static gw_err codec_encode_bare(const gw_codec *c, gw_turn turn, const float *x, float *e, size_t n,
                                void *out, size_t cap, size_t *len) {
    gw_stage *s = c->stage;
    if (!s)
        return codec_encode_one(c, turn, x, e, n, out, cap, len);
    size_t room = c->ops->bound(c->self, n), inner;
    void *codes;
    gw_block *block;
    GW_TRY(gw_scratch_take(&s->scratch, c->spec, room, &codes, &block));
    gw_err err = codec_encode_one(c, turn, x, e, n, codes, room, &inner);
    if (err == GW_OK)
        err = s->codec.ops->pack(s->codec.self, codes, inner, out, cap, len);
    gw_scratch_give(&s->scratch, block);
    return err;
}

gw_err gw_codec_encode_feedback(const gw_codec *c, gw_turn turn, const float *x, float *e, size_t n,
                                void *out, size_t cap, size_t *len) {
    GW_TRY(codec_check_room(c, n, cap));
    if (!c->framed || codec_bare_bound(c, n) == 0)
        return codec_encode_bare(c, turn, x, e, n, out, cap, len);
    char *frame = out;
    GW_TRY(codec_encode_bare(c, turn, x, e, n, frame + GW_FRAME_BYTES, cap - GW_FRAME_BYTES, len));
    gw_frame_seal(frame, c->tag, n, *len);
    *len += GW_FRAME_BYTES;
    return GW_OK;
}

gw_err gw_codec_encode(const gw_codec *c, gw_turn turn, const float *x, size_t n, void *out,
                       size_t cap, size_t *len) {
    return gw_codec_encode_feedback(c, turn, x, NULL, n, out, cap, len);
}

void gw_codec_measure(const gw_codec *c, const float *x, size_t n, void *out) {
    c->ops->measure(c->self, x, n, out);
}

gw_err gw_codec_encode_agreed(const gw_codec *c, gw_turn turn, const float *x, size_t n, void *out,
                              size_t cap, size_t *len) {
    GW_TRY(codec_check_room(c, n, cap));
    GW_TRY(c->ops->encode(c->self, turn, x, n, out, cap, len));
    return codec_check_length(c, n, *len);
}

/* Decode to `list`, or to floats if it is NULL. */
typedef struct target {
    float *y;
    gw_into into;
    gw_elements *list;
} target;

static gw_err codec_decode_one(const gw_codec *c, const void *in, size_t len, size_t n, target to) {
    if (c->fixed && len != c->ops->bound(c->self, n))
        return gw_fail(GW_ERR_CORRUPT, "%s: %zu bytes for %zu floats, expected %zu",
                       c->ops->head.name, len, n, c->ops->bound(c->self, n));
    return to.list ? c->ops->list(c->self, in, len, n, to.list)
                   : c->ops->decode(c->self, in, len, to.y, n, to.into);
}

static gw_err codec_decode_any(const gw_codec *c, const void *in, size_t len, size_t n, target to) {
    if (len > gw_codec_bound(c, n))
        return gw_fail(GW_ERR_CORRUPT, "codec %s: %zu bytes for %zu floats, at most %zu possible",
                       c->spec, len, n, gw_codec_bound(c, n));
    if (c->framed && codec_bare_bound(c, n) > 0) {
        GW_TRY(gw_frame_check(in, len, c->spec, c->tag, n, &len));
        in = (const char *)in + GW_FRAME_BYTES;
    }
    gw_stage *s = c->stage;
    if (!s)
        return codec_decode_one(c, in, len, n, to);
    size_t room = c->ops->bound(c->self, n), inner;
    void *codes;
    gw_block *block;
    GW_TRY(gw_scratch_take(&s->scratch, c->spec, room, &codes, &block));
    gw_err e = s->codec.ops->unpack(s->codec.self, in, len, codes, room, &inner);
    GW_THEN(e, codec_decode_one(c, codes, inner, n, to));
    gw_scratch_give(&s->scratch, block);
    return e;
}

gw_err gw_codec_decode(const gw_codec *c, const void *in, size_t len, float *y, size_t n,
                       gw_into into) {
    return codec_decode_any(c, in, len, n, (target){.y = y, .into = into});
}

gw_err gw_codec_list(const gw_codec *c, const void *in, size_t len, size_t n, gw_elements *out) {
    out->n = 0;
    return codec_decode_any(c, in, len, n, (target){.list = out});
}

gw_err gw_elements_reserve(gw_elements *l, size_t n) {
    if (n <= l->room)
        return GW_OK;
    gw_elements_free(l);
    l->at = malloc(n * sizeof *l->at);
    l->value = malloc(n * sizeof *l->value);
    if (!l->at || !l->value) {
        gw_elements_free(l);
        return gw_fail(GW_ERR_NOMEM, "out of memory: a list of %zu elements", n);
    }
    l->room = n;
    return GW_OK;
}

void gw_elements_free(gw_elements *l) {
    free(l->at);
    free(l->value);
    *l = (gw_elements){0};
}
