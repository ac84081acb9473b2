/** A lane: a private communicator, the codec that its messages are written in, and the error-
 *  feedback residual of that codec. Everything lossy on the way from a gradient to the wire happens
 *  here, so no strategy, algorithm or codec knows of error feedback.
 *
 *  Error feedback (Seide et al., INTERSPEECH 2014; Karimireddy et al., ICML 2019):
 *      v = g + e;  wire = encode(v);  e' = v - decode(wire). */
#ifndef GW_COMM_LANE_H
#define GW_COMM_LANE_H

#include "base/agree.h"
#include "base/io.h"
#include "base/span.h"
#include "compress/codec.h"

#include <stdbool.h>

typedef struct gw_lane {
    MPI_Comm comm; /* private duplicate, MPI_ERRORS_RETURN */
    int rank, size;
    const gw_codec *codec; /* the session's */
    float *residual;       /* as long as the arena; NULL: no error feedback */
    size_t n;              /* floats in the arena */
    uint64_t seed;
    uint64_t ticket; /* number of the exchange; the same on all ranks, set once a step */
    bool yield;      /* waits give the core away: the node runs more threads than it has cores */
    int next_tag;    /* tag of the next schedule on this lane */
} gw_lane;

/** Collective over `parent`. n: floats of the arena the lane's spans lie in. `feedback`: keep a
 *  residual (ignored for lossless codecs: nothing would ever be in it). */
gw_err gw_lane_open(gw_lane **out, MPI_Comm parent, const gw_codec *codec, size_t n, bool feedback,
                    uint64_t seed, bool yield);
void gw_lane_close(gw_lane *lane); /* collective */

/** True if messages are the arena's own floats: no encoding, no wire buffer. */
static inline bool gw_lane_exact(const gw_lane *lane) {
    return lane->codec->ops->caps & GW_CODEC_IDENTITY;
}

/** Encode base[s] into out. With error feedback base[s] is first moved to base[s] + residual[s] and
 *  left there. `adopt`: base[s] becomes what a peer will decode: an owner that sends on what it
 *  owns must use its own encoding too, or the replicas drift apart. Randomness depends on (seed,
 *  ticket, rank, s.off) alone. Any thread, one at a time for overlapping spans. */
gw_err gw_lane_encode(gw_lane *lane, float *base, gw_span s, bool adopt, void *out, size_t cap,
                      size_t *len);

/** base[s] = (add ? base[s] : 0) + value(in). */
gw_err gw_lane_decode(const gw_lane *lane, const void *in, size_t len, float *base, gw_span s,
                      bool add);

/** Save or load the residual; the owner of the lane has drained it. */
gw_err gw_lane_state(gw_lane *lane, gw_io *io);

#endif
