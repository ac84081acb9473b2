/** An encoder codes a lane's messages. It has the codec, its residual of error feedback, what
 *  random numbers depend on, and the counts. Everything lossy on the way from a gradient to the
 *  wire happens here, so no strategy, algorithm or codec deals with error feedback.
 *
 *  Error feedback (Seide et al., INTERSPEECH 2014; Karimireddy et al., ICML 2019):
 *      v = g + e;  wire = encode(v);  e' = v - decode(wire).
 *
 *  Everybody may read the members; who opens an encoder sets them up. */
#ifndef GW_COMM_ENCODER_H
#define GW_COMM_ENCODER_H

#include "base/io.h"
#include "base/span.h"
#include "compress/codec.h"

#include <stdbool.h>

/** This rank has encoded so much of a part of the arena. */
typedef struct gw_coded {
    uint64_t bytes, floats;
} gw_coded;

/** The same with one codec, from any thread. */
typedef struct gw_codings {
    _Atomic uint64_t bytes, floats;
} gw_codings;

/** The memory of lanes whose messages have a length but no contents: for codecs of fixed size, over
 *  a fabric that does not move payloads (comm/fabric/sim.h). */
typedef struct gw_phantom {
    char *wire;        /* where encodings would lie: nobody touches them */
    float *floats;     /* what gw_lane_floats returns, with any contents */
    size_t room, used; /* of these */
    double bytes;      /* of an encoding per float, where data decide it; 0: its bound */
} gw_phantom;

/** The encoders of one arena share this: a lane's, those of the lanes split off it, and those of a
 *  mix's other codecs. */
typedef struct gw_encoders {
    const char *name; /* what they encode, for messages; NULL: unnamed */
    size_t n;         /* floats in the arena */
    uint64_t seed;
    uint64_t ticket;       /* what the next exchanges draw by; one per step, on all ranks */
    float *store;          /* memory of residuals, as long as the arena; NULL: no error feedback */
    float decay;           /* of the residual before each encoding */
    bool fed;              /* gradients are added to the residual before they are encoded */
    gw_phantom *phantom;   /* the owner's, on one rank; NULL: messages are real */
    const gw_span *layers; /* n_layers of the arena, for messages and counts; NULL: not known */
    int n_layers;
    gw_coded *coded; /* per layer; an encoding over several counts by their floats; or NULL */
    _Atomic uint64_t frames; /* received and checked */
} gw_encoders;

typedef struct gw_encoder {
    gw_encoders *of;
    const gw_codec *codec;
    int rank, ranks;     /* whose values are encoded, among how many: random numbers depend on it */
    float *residual;     /* of->store, or NULL: this codec has no error feedback */
    float *velocity;     /* the session's momentum, cleared where an element was sent; or NULL */
    gw_codings *codings; /* the owner's; or NULL */
} gw_encoder;

/** Take `codec` and, if error feedback is asked for and the codec is not lossless, a residual.
 *  gw_encoders_close frees what all encoders of `of` have. */
gw_err gw_encoder_open(gw_encoder *e, const gw_codec *codec, bool feedback);
void gw_encoders_close(gw_encoders *of);

/** Return where gradients are added before they are encoded: the residual. NULL: they are not. */
float *gw_encoder_fed(const gw_encoder *e);

enum {
    GW_ENCODE_ADOPT = 1, /* base[s] becomes what a peer will decode: an owner that forwards what it
                            owns must use its own encoding too, or the replicas drift apart */
    GW_ENCODE_ALONE = 2  /* these are not only this rank's own values, one summand on the lane:
                            draw without regard to the other ranks (gw_turn.ranks is 1) */
};

/** Encode base[s] into out, with error feedback base[s] + residual[s]; base[s] is undefined then.
 *  If the encoder is fed, residual[s] is that sum already, and base[s] is not read. `how`:
 *  GW_ENCODE_*, or 0. `ticket`: the exchange's; randomness depends only on (seed, ticket, rank,
 *  s.off). Any thread; overlapping spans one at a time. */
gw_err gw_encoder_encode(gw_encoder *e, uint64_t ticket, float *base, gw_span s, unsigned how,
                         void *out, size_t cap, size_t *len);

/** gw_encoder_encode in two halves, for a codec that agrees (gw_codec_agrees): the first fills the
 *  prefix at `out`, the caller replaces it by the elementwise maximum over the ranks, and the
 *  second encodes behind it. */
void gw_encoder_measure(gw_encoder *e, float *base, gw_span s, void *out);
gw_err gw_encoder_encode_agreed(gw_encoder *e, uint64_t ticket, float *base, gw_span s, bool adopt,
                                void *out, size_t cap, size_t *len);

/** base[s] = (add ? base[s] : 0) + value(in). A frame is checked and counted first. The message of
 *  GW_ERR_CORRUPT names the lane, the floats and their layers. */
gw_err gw_encoder_decode(gw_encoder *e, const void *in, size_t len, float *base, gw_span s,
                         bool add);

/** List the elements of s in `in`; else as gw_encoder_decode. */
gw_err gw_encoder_list(gw_encoder *e, const void *in, size_t len, gw_span s, gw_elements *out);

/** Save or load what encoders carry from step to step: residual and ticket, which their random
 *  numbers depend on. Nothing is in flight. */
gw_err gw_encoders_state(gw_encoders *of, gw_io *io);

#endif
