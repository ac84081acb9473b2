/** The codec seam: WHAT bytes stand for a span of floats on the wire.
 *
 *  A codec is pure: no MPI, no clock, no hidden state; the turn fixes all of its randomness, so the
 *  same span gives the same bytes on one thread or many, blocking or overlapped. To add one:
 *  ONE new file compress/NAME.c that defines `const gw_codec_ops gw_codec_NAME` and ONE line
 *  X(NAME) in codecs.def. Out of tree: a shared object that exports `gw_codec_plugin`. */
#ifndef GW_COMPRESS_CODEC_H
#define GW_COMPRESS_CODEC_H

#include "base/registry.h"

#include <stdbool.h>
#include <stdint.h>

#define GW_CODEC_ABI 3

/** What a codec promises; gw_codec.caps. */
enum {
    GW_CODEC_IDENTITY = 1, /* the bytes are the floats themselves: nothing need be encoded */
    GW_CODEC_LOSSLESS = 2, /* decode(encode(x)) == x: error feedback has nothing to do */
    GW_CODEC_UNBIASED = 4, /* E[decode(encode(x))] == x over keys, as nearly as the codec says */
    GW_CODEC_FIXED = 8,    /* encode always yields exactly bound(n) bytes */
    GW_CODEC_SPARSE = 16,  /* most values are dropped: exchange by gathering encodings; decode
                              subtracts and clears, too */
    GW_CODEC_BIASED = 32,  /* drops or skews systematically: error feedback is on by default */
    GW_CODEC_LINEAR = 64,  /* with equal keys, and behind an agreed prefix where there is `measure`,
                              the sum of encodings (`add`) is an encoding of the sum: no error but
                              rounding from hop to hop */
    GW_CODEC_SHARED = 128  /* all ranks draw alike: one key for all of them */
};

/** What an encoding may depend on beside the floats: all of its randomness, and when it is. */
typedef struct gw_turn {
    uint64_t key;
    uint64_t step; /* exchanges before and with this one, from 1 on: for schedules over a run */
} gw_turn;

/** How decoded values go to y[0..n). */
typedef enum gw_into {
    GW_INTO_SET = 0,       /* y = value */
    GW_INTO_ADD = 1,       /* y += value */
    GW_INTO_SUBTRACT = -1, /* y -= value; GW_CODEC_SPARSE only */
    GW_INTO_CLEAR = 2      /* y = 0 where the encoding holds an element; GW_CODEC_SPARSE only */
} gw_into;

/** Elements of a span: places from its start, each once and ascending, and values. Zero it to begin
 *  with; both arrays are the owner's to free. */
typedef struct gw_elements {
    uint32_t *at;
    float *value;
    size_t n, room;
} gw_elements;

/** Room for n elements; what was there is lost. GW_ERR_NOMEM. */
gw_err gw_elements_reserve(gw_elements *l, size_t n);
void gw_elements_free(gw_elements *l);

/** How MPI can add encoded units. */
typedef enum gw_sum {
    GW_SUM_OWN = 0, /* by `add`, where there is one */
    GW_SUM_FLOAT,   /* a unit is a binary32 in host order: MPI_FLOAT, MPI_SUM */
    GW_SUM_INT8     /* a unit is an int8_t: MPI_INT8_T, MPI_SUM */
} gw_sum;

typedef struct gw_codec_ops {
    gw_entry head;
    unsigned caps;
    /** *self: the codec's settings out of `args`; may stay NULL. */
    gw_err (*open)(void **self, const gw_args *args);
    void (*close)(void *self);
    /** Optional: caps that depend on the options, in the place of `caps`. */
    unsigned (*traits)(const void *self);
    /** Optional: told once, before the first encode, of how many ranks encodings are summed up (1
     *  if never told). GW_ERR_UNSUPPORTED: so many cannot be, a sum of codes could overflow. */
    gw_err (*join)(void *self, int ranks);
    /** Most bytes that any n floats can take, of a GW_CODEC_FIXED codec all that they do: its
     *  formula, headers, scales and places included. Monotonic in n; bound(0) may be 0. */
    size_t (*bound)(const void *self, size_t n);
    /** Encode x[0..n) into out[0..cap), cap >= bound(n); *len bytes were written. */
    gw_err (*encode)(const void *self, gw_turn turn, const float *x, size_t n, void *out,
                     size_t cap, size_t *len);
    /** Optional, the same in fewer passes: e[i] += x[i]; encode e; take off e what was encoded.
     *  x stays as it is. */
    gw_err (*encode_feedback)(const void *self, gw_turn turn, const float *x, float *e, size_t n,
                              void *out, size_t cap, size_t *len);
    /** y[0..n) out of what `in` stands for. `in` is untrusted: GW_ERR_CORRUPT, never a write
     *  outside y[0..n) and never a read outside in[0..len). */
    gw_err (*decode)(const void *self, const void *in, size_t len, float *y, size_t n,
                     gw_into into);

    /** Optional, GW_CODEC_SPARSE: the elements that `in` holds, in place of y with the rest of it
     *  zeros, so that who adds up or updates need not touch that. Errors as decode. */
    gw_err (*list)(const void *self, const void *in, size_t len, size_t n, gw_elements *out);

    /* ---- optional: encodings that are added as they are ---- */

    /** Add encoded units to encoded units; len is a multiple of unit_bytes. One unit stands for
     *  one float, or for whatever count GW_CODEC_FIXED makes of n. An encoding is prefix(n) bytes
     *  that are alike on all ranks (NULL: none), then units. */
    gw_err (*add)(void *inout, const void *in, size_t len);
    size_t unit_bytes;
    gw_sum sum;
    size_t (*prefix)(const void *self, size_t n);
    /** Optional: the prefix is made of floats >= 0, binary32 in host order, that the ranks have to
     *  agree on by an elementwise maximum before anything is encoded (a shared scale). measure()
     *  fills it, and encode() finds the agreed one at out[0..prefix(n)) and writes behind it.
     *  encode_feedback(), which alone knows x + e, finds nothing there and writes the prefix, too.
     */
    void (*measure)(const void *self, const float *x, size_t n, void *out);

    /* ---- optional: a stage after another codec, "qsgd+zlib": bytes to fewer bytes ---- */

    size_t (*pack_bound)(const void *self, size_t len);
    gw_err (*pack)(const void *self, const void *in, size_t len, void *out, size_t cap,
                   size_t *packed);
    /** *len <= cap bytes; `in` is untrusted: GW_ERR_CORRUPT if it holds more, or nonsense. */
    gw_err (*unpack)(const void *self, const void *in, size_t packed, void *out, size_t cap,
                     size_t *len);
} gw_codec_ops;

/** A codec bound to its options, and the stage behind it if there is one. */
typedef struct gw_codec {
    const gw_codec_ops *ops;
    void *self;
    gw_args *args;
    unsigned caps;  /* of the chain */
    bool partial;   /* for some tensors of a model only */
    int ranks;      /* how many encodings are summed up; 0: not told */
    char spec[128]; /* what it was opened by, shortened if need be */
    char name[64];  /* that without options: "qsgd", "qsgd+zlib" */
    struct gw_stage *stage;
    bool framed;  /* encodings travel in frames (compress/frame.h) */
    uint32_t tag; /* that names it there */
} gw_codec;

extern const gw_registry gw_codecs;

/** Open "name[:opt=value,...]", or a chain "name[:...]+stage[:...]" whose second is a codec that
 *  packs bytes. Errors as gw_registry_find and the codecs' own open; GW_ERR_UNSUPPORTED: no such
 *  chain can be. */
gw_err gw_codec_open(gw_codec *out, const char *spec);

/** From now on each encoding but that of no floats is in a frame of GW_FRAME_BYTES more, checked
 *  before it is decoded: what is damaged, cut off or another codec's is GW_ERR_CORRUPT. Before
 *  anything that depends on caps or bounds; MPI cannot add frames. */
void gw_codec_frame(gw_codec *c);

/** Tell it of how many ranks encodings are summed up. GW_ERR_UNSUPPORTED: they cannot be. */
gw_err gw_codec_join(gw_codec *c, int ranks);

/** Close; safe on a zeroed gw_codec. */
void gw_codec_close(gw_codec *c);

/** Most bytes of any n floats. */
size_t gw_codec_bound(const gw_codec *c, size_t n);

/** Bits an element of n > 0 floats by the codec's formula; 0: as the data are. */
double gw_codec_bits(const gw_codec *c, size_t n);

/** True if MPI can reduce encodings as they are. */
bool gw_codec_summable(const gw_codec *c);

/** Bytes before the units of n floats. */
size_t gw_codec_prefix(const gw_codec *c, size_t n);

/** True if the prefix must be agreed on first: measure, take the maximum over the ranks, then
 *  gw_codec_encode_agreed. gw_codec_encode does without the others. */
static inline bool gw_codec_agrees(const gw_codec *c) {
    return !c->stage && !c->framed && c->ops->measure;
}

/** The promises of gw_codec_ops, checked: capacity before, length after. Any thread. */
gw_err gw_codec_encode(const gw_codec *c, gw_turn turn, const float *x, size_t n, void *out,
                       size_t cap, size_t *len);
void gw_codec_measure(const gw_codec *c, const float *x, size_t n, void *out);
gw_err gw_codec_encode_agreed(const gw_codec *c, gw_turn turn, const float *x, size_t n, void *out,
                              size_t cap, size_t *len);
/** e += x; encode e; e -= what was encoded. x stays. The codec must have encode_feedback. */
gw_err gw_codec_encode_feedback(const gw_codec *c, gw_turn turn, const float *x, float *e, size_t n,
                                void *out, size_t cap, size_t *len);
static inline bool gw_codec_feeds_back(const gw_codec *c) {
    return c->ops->encode_feedback;
}
gw_err gw_codec_decode(const gw_codec *c, const void *in, size_t len, float *y, size_t n,
                       gw_into into);
/** The elements that `in` holds. The codec must list. */
gw_err gw_codec_list(const gw_codec *c, const void *in, size_t len, size_t n, gw_elements *out);
static inline bool gw_codec_lists(const gw_codec *c) {
    return c->ops->list;
}

#endif
