/** The codec seam: WHAT bytes stand for a span of floats on the wire.
 *
 *  A codec is pure: no MPI, no clock, no hidden state. The turn fixes all of its randomness, so the
 *  same span gives the same bytes on one thread or many, blocking or overlapped. To add one:
 *  ONE new file compress/codec/NAME.c that defines `const gw_codec_ops gw_codec_NAME` and ONE line
 *  X(NAME) in codecs.def. Out of tree: a shared object that exports `gw_codec_plugin`. */
#ifndef GW_COMPRESS_CODEC_H
#define GW_COMPRESS_CODEC_H

#include "base/probe.h"
#include "base/registry.h"

#include <stdbool.h>
#include <stdint.h>

#define GW_CODEC_ABI 7

/** What a codec promises; gw_codec.caps. */
enum {
    GW_CODEC_IDENTITY = 1, /* the bytes are the floats themselves: no need to encode */
    GW_CODEC_LOSSLESS = 2, /* decode(encode(x)) == x: error feedback has nothing to do */
    GW_CODEC_UNBIASED = 4, /* E[decode(encode(x))] == x over keys, as nearly as the codec says */
    GW_CODEC_FIXED = 8,    /* encode always yields exactly bound(n) bytes */
    GW_CODEC_SPARSE = 16,  /* drops most values: encodings are gathered, not reduced; decode can
                              also subtract and clear */
    GW_CODEC_BIASED = 32,  /* drops or skews systematically: error feedback is on by default */
    GW_CODEC_LINEAR = 64,  /* with equal keys (and, with `measure`, an agreed prefix) the sum of
                              encodings (`add`) encodes the sum: hops add only rounding errors */
    GW_CODEC_SHARED = 128, /* all ranks draw the same numbers: they share one key */
    GW_CODEC_TIGHT = 256,  /* encode yields at least nine tenths of bound(n) for independent floats:
                              models without data take the bound */
    GW_CODEC_WARMS = 512   /* keeps more in its first exchanges than later */
};

/** Everything an encoding may depend on besides the floats. */
typedef struct gw_turn {
    uint64_t key;    /* fixes all randomness except what `common` fixes */
    uint64_t step;   /* number of this exchange, from 1: for schedules over a run */
    uint64_t common; /* fixes what all ranks draw alike */
    int rank, ranks; /* the floats are rank `rank`'s own, and the sum at this place has those of
                        `ranks` ranks; ranks < 2: nothing is known of others, for example when a
                        decoded sum is encoded again */
} gw_turn;

/** What decode does to y[0..n). */
typedef enum gw_into {
    GW_INTO_SET = 0,       /* y = value */
    GW_INTO_ADD = 1,       /* y += value */
    GW_INTO_SUBTRACT = -1, /* y -= value; GW_CODEC_SPARSE only */
    GW_INTO_CLEAR = 2      /* y = 0 where the encoding has an element; GW_CODEC_SPARSE only */
} gw_into;

/** Elements of a span: distinct indices from its start, ascending, and their values. Initialise to
 *  zero; the owner frees both arrays. */
typedef struct gw_elements {
    uint32_t *at;
    float *value;
    size_t n, room;
} gw_elements;

/** Make room for n elements; the old contents are lost. GW_ERR_NOMEM. */
gw_err gw_elements_reserve(gw_elements *l, size_t n);
void gw_elements_free(gw_elements *l);

/** How MPI can add encoded units. */
typedef enum gw_sum {
    GW_SUM_OWN = 0, /* by `add`, if there is one */
    GW_SUM_FLOAT,   /* a unit is a binary32 in host order: MPI_FLOAT, MPI_SUM */
    GW_SUM_INT8     /* a unit is an int8_t: MPI_INT8_T, MPI_SUM */
} gw_sum;

typedef struct gw_codec_ops {
    gw_entry head;
    unsigned caps;
    /** Set *self to the codec's settings from `args`; it may stay NULL. */
    gw_err (*open)(void **self, const gw_args *args);
    void (*close)(void *self);
    /** Optional: return caps that depend on the options, in place of `caps`. */
    unsigned (*traits)(const void *self);
    /** Optional: called once before the first encode with the number of ranks whose encodings are
     *  summed (1 if never called). GW_ERR_UNSUPPORTED: a sum over so many could overflow. */
    gw_err (*join)(void *self, int ranks);
    /** Return an upper bound on the bytes of any n floats; for a GW_CODEC_FIXED codec, exactly what
     *  they take, with headers, scales and places. Monotonic in n; bound(0) may be 0. */
    size_t (*bound)(const void *self, size_t n);
    /** Encode x[0..n) into out[0..cap), cap >= bound(n); set *len to the bytes written. */
    gw_err (*encode)(const void *self, gw_turn turn, const float *x, size_t n, void *out,
                     size_t cap, size_t *len);
    /** Optional, with error feedback in fewer passes: e[i] += x[i]; encode e; subtract the encoded
     *  values from e. x does not change. */
    gw_err (*encode_feedback)(const void *self, gw_turn turn, const float *x, float *e, size_t n,
                              void *out, size_t cap, size_t *len);
    /** Decode `in` to y[0..n). `in` is untrusted: GW_ERR_CORRUPT, never a write outside y[0..n),
     *  never a read outside in[0..len). For a GW_CODEC_FIXED codec, len is bound(n). */
    gw_err (*decode)(const void *self, const void *in, size_t len, float *y, size_t n,
                     gw_into into);

    /** Optional, GW_CODEC_SPARSE: list the elements in `in`, so that the caller can add or update
     *  without touching the zeros between them. Errors as decode. */
    gw_err (*list)(const void *self, const void *in, size_t len, size_t n, gw_elements *out);

    /* ---- optional: encodings that can be summed without decoding ---- */

    /** Add encoded units to encoded units; len is a multiple of unit_bytes. A unit stands for one
     *  float, or for as many as GW_CODEC_FIXED makes of n. An encoding is prefix(n) bytes that are
     *  equal on all ranks (NULL: none), then units. */
    gw_err (*add)(void *inout, const void *in, size_t len);
    size_t unit_bytes;
    gw_sum sum;
    size_t (*prefix)(const void *self, size_t n);
    /** Optional: fill the prefix with floats >= 0 (binary32, host order), whose elementwise maximum
     *  the ranks agree on before they encode: a shared scale. encode() finds the agreed prefix at
     *  out[0..prefix(n)) and writes after it. Only encode_feedback() knows x + e, so it writes the
     *  prefix, too. */
    void (*measure)(const void *self, const float *x, size_t n, void *out);

    /* ---- optional: a stage behind another codec, "qsgd+zlib": packs bytes ---- */

    size_t (*pack_bound)(const void *self, size_t len);
    gw_err (*pack)(const void *self, const void *in, size_t len, void *out, size_t cap,
                   size_t *packed);
    /** Yield *len <= cap bytes; `in` is untrusted: GW_ERR_CORRUPT if it holds more or is
     *  malformed. */
    gw_err (*unpack)(const void *self, const void *in, size_t packed, void *out, size_t cap,
                     size_t *len);

    /** The greatest magnitude that it carries; a larger one becomes infinite, and error feedback
     *  would keep that forever. 0: any float. */
    float most;
} gw_codec_ops;

/** A codec's speed: coding n floats takes call_s + n * float_s, by kind; SUM only if it sums. */
typedef struct gw_codec_price {
    double call_s[GW_CODINGS], float_s[GW_CODINGS];
    double bytes; /* of an encoding, per float */
} gw_codec_price;

/** A codec bound to its options, and the stage behind it if there is one. */
typedef struct gw_codec {
    const gw_codec_ops *ops;
    void *self;
    gw_args *args;
    unsigned caps;     /* of the chain */
    bool partial;      /* only for some tensors of a model */
    bool fixed;        /* GW_CODEC_FIXED, whatever stage is behind it */
    int ranks;         /* whose encodings are summed; 0: not known */
    const gw_spec *of; /* the spec that opened it, which outlives it */
    const char *spec;  /* that spec as text */
    char name[64];     /* the spec without options: "qsgd", "qsgd+zlib" */
    struct gw_stage *stage;
    bool framed;                 /* encodings travel in frames (compress/frame.h) */
    uint32_t tag;                /* identifies the codec in a frame */
    const gw_codec_price *price; /* of coding in virtual time; the owner's; NULL: it takes none */
} gw_codec;

extern const gw_registry gw_codecs;

/** The codec `none`, which changes nothing. */
extern const gw_spec gw_codec_exact;

/** Open an entry, or a chain of two whose second codec packs bytes; keeps `spec`. Errors of
 *  gw_registry_find, gw_args_of and the codec's own open; GW_ERR_UNSUPPORTED: these two cannot be
 *  chained. */
gw_err gw_codec_open(gw_codec *out, const gw_spec *spec);

/** Put each later encoding of n > 0 floats in a frame, GW_FRAME_BYTES longer, that is checked
 *  before decoding: damage, truncation or another codec's encoding is GW_ERR_CORRUPT. Call it
 *  before anything that depends on caps or bounds; MPI cannot sum frames. */
void gw_codec_frame(gw_codec *c);

/** Set the number of ranks whose encodings are summed. GW_ERR_UNSUPPORTED: they cannot be. */
gw_err gw_codec_join(gw_codec *c, int ranks);

/** Close; safe on a zeroed gw_codec. */
void gw_codec_close(gw_codec *c);

/** Return an upper bound on the bytes of any n floats. */
size_t gw_codec_bound(const gw_codec *c, size_t n);

/** Return the bits per element of n > 0 floats by the codec's formula; 0: the data decide. */
double gw_codec_bits(const gw_codec *c, size_t n);

/** Return true if MPI can reduce encodings without decoding. */
bool gw_codec_summable(const gw_codec *c);

/** Return the number of bytes before the units of n floats. */
size_t gw_codec_prefix(const gw_codec *c, size_t n);

/** Return true if the ranks must agree on the prefix first: measure, take the maximum over the
 *  ranks, then gw_codec_encode_agreed. gw_codec_encode uses this rank's prefix alone. */
static inline bool gw_codec_agrees(const gw_codec *c) {
    return !c->stage && !c->framed && c->ops->measure;
}

/** The hooks of gw_codec_ops, with checks of capacity before and of length after. Any thread. */
gw_err gw_codec_encode(const gw_codec *c, gw_turn turn, const float *x, size_t n, void *out,
                       size_t cap, size_t *len);
void gw_codec_measure(const gw_codec *c, const float *x, size_t n, void *out);
gw_err gw_codec_encode_agreed(const gw_codec *c, gw_turn turn, const float *x, size_t n, void *out,
                              size_t cap, size_t *len);
/** e += x; encode e; e -= the encoded values. x does not change. Needs encode_feedback. With e NULL
 *  it is gw_codec_encode. */
gw_err gw_codec_encode_feedback(const gw_codec *c, gw_turn turn, const float *x, float *e, size_t n,
                                void *out, size_t cap, size_t *len);
static inline bool gw_codec_feeds_back(const gw_codec *c) {
    return c->ops->encode_feedback;
}
gw_err gw_codec_decode(const gw_codec *c, const void *in, size_t len, float *y, size_t n,
                       gw_into into);
/** List the elements in `in`. Needs `list`. */
gw_err gw_codec_list(const gw_codec *c, const void *in, size_t len, size_t n, gw_elements *out);
static inline bool gw_codec_lists(const gw_codec *c) {
    return c->ops->list;
}

#endif
