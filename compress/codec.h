/** The codec seam: WHAT bytes stand for a span of floats on the wire.
 *
 *  A codec is pure: no MPI, no clock, no hidden state; `key` fixes all of its randomness, so the
 *  same span gives the same bytes on one thread or many, blocking or overlapped. To add one:
 *  ONE new file compress/NAME.c that defines `const gw_codec_ops gw_codec_NAME` and ONE line
 *  X(NAME) in codecs.def. Out of tree: a shared object that exports `gw_codec_plugin`. */
#ifndef GW_COMPRESS_CODEC_H
#define GW_COMPRESS_CODEC_H

#include "base/registry.h"

#include <stdint.h>

#define GW_CODEC_ABI 1

enum {
    GW_CODEC_IDENTITY = 1, /* the bytes are the floats themselves: nothing need be encoded */
    GW_CODEC_LOSSLESS = 2, /* decode(encode(x)) == x: error feedback has nothing to do */
    GW_CODEC_UNBIASED = 4, /* E[decode(encode(x))] == x over keys */
    GW_CODEC_FIXED = 8,    /* encode always yields exactly bound(n) bytes */
    GW_CODEC_SPARSE = 16,  /* most values are dropped: exchange by gathering encodings; decode
                              subtracts, too */
    GW_CODEC_BIASED = 32   /* drops or skews systematically: error feedback is on by default */
};

typedef struct gw_codec_ops {
    gw_entry head;
    unsigned caps;
    /** *self: the codec's settings out of `args`; may stay NULL. */
    gw_err (*open)(void **self, const gw_args *args);
    void (*close)(void *self);
    /** Most bytes that any n floats can take; monotonic in n; bound(0) may be 0. */
    size_t (*bound)(const void *self, size_t n);
    /** Encode x[0..n) into out[0..cap), cap >= bound(n); *len bytes were written. */
    gw_err (*encode)(const void *self, uint64_t key, const float *x, size_t n, void *out,
                     size_t cap, size_t *len);
    /** y[0..n) = (add ? y : 0) + value(in); a GW_CODEC_SPARSE one takes add = -1, too, for y[0..n)
     *  -= value(in). `in` is untrusted: GW_ERR_CORRUPT, never a write outside y[0..n) and never a
     *  read outside in[0..len). */
    gw_err (*decode)(const void *self, const void *in, size_t len, float *y, size_t n, int add);
    /** Optional: add encoded bytes to encoded bytes, so that MPI can reduce them (MPI_Op).
     *  Both hold len bytes, a multiple of unit_bytes; one unit stands for one float. */
    gw_err (*add)(void *inout, const void *in, size_t len);
    size_t unit_bytes;
} gw_codec_ops;

/** A codec bound to its options. */
typedef struct gw_codec {
    const gw_codec_ops *ops;
    void *self;
    gw_args *args;
} gw_codec;

extern const gw_registry gw_codecs;

/** Open "name[:opt=value,...]". Errors as gw_registry_find and the codec's own open. */
gw_err gw_codec_open(gw_codec *out, const char *spec);

/** Close; safe on a zeroed gw_codec. */
void gw_codec_close(gw_codec *c);

static inline size_t gw_codec_bound(const gw_codec *c, size_t n) {
    return c->ops->bound(c->self, n);
}

/** The promises of gw_codec_ops, checked: capacity before, length after. */
gw_err gw_codec_encode(const gw_codec *c, uint64_t key, const float *x, size_t n, void *out,
                       size_t cap, size_t *len);
gw_err gw_codec_decode(const gw_codec *c, const void *in, size_t len, float *y, size_t n, int add);

#endif
