#include "compress/codec.h"

#include <string.h>

#define X(name) extern const gw_codec_ops gw_codec_##name;
#include "compress/codecs.def"
#undef X

static const gw_entry *const entries[] = {
#define X(name) &gw_codec_##name.head,
#include "compress/codecs.def"
#undef X
    NULL,
};

const gw_registry gw_codecs = {
    .kind = "codec", .symbol = "gw_codec_plugin", .abi = GW_CODEC_ABI, .entries = entries};

gw_err gw_codec_open(gw_codec *out, const char *spec) {
    gw_codec c = {0};
    const gw_entry *entry = NULL;
    GW_TRY(gw_registry_find(&gw_codecs, spec, &entry, &c.args));
    c.ops = (const gw_codec_ops *)entry; /* head is the first member */
    gw_err e = c.ops->open ? c.ops->open(&c.self, c.args) : GW_OK;
    if (e != GW_OK) {
        gw_args_free(c.args);
        return e;
    }
    *out = c;
    return GW_OK;
}

void gw_codec_close(gw_codec *c) {
    if (c->ops && c->ops->close)
        c->ops->close(c->self);
    gw_args_free(c->args);
    memset(c, 0, sizeof *c);
}

gw_err gw_codec_encode(const gw_codec *c, uint64_t key, const float *x, size_t n, void *out,
                       size_t cap, size_t *len) {
    size_t bound = gw_codec_bound(c, n);
    if (cap < bound)
        return gw_fail(GW_ERR_INTERNAL, "codec %s: %zu bytes for %zu floats, needs %zu",
                       c->ops->head.name, cap, n, bound);
    GW_TRY(c->ops->encode(c->self, key, x, n, out, cap, len));
    if (*len > bound || ((c->ops->caps & GW_CODEC_FIXED) && *len != bound))
        return gw_fail(GW_ERR_INTERNAL, "codec %s: encoded %zu floats into %zu bytes, bound is %zu",
                       c->ops->head.name, n, *len, bound);
    return GW_OK;
}

gw_err gw_codec_decode(const gw_codec *c, const void *in, size_t len, float *y, size_t n, int add) {
    if (len > gw_codec_bound(c, n))
        return gw_fail(GW_ERR_CORRUPT, "codec %s: %zu bytes for %zu floats, at most %zu can be",
                       c->ops->head.name, len, n, gw_codec_bound(c, n));
    return c->ops->decode(c->self, in, len, y, n, add);
}
