/** A lane: its own group of ranks, the codec that encodes its messages, and that codec's residual
 *  of error feedback. Everything lossy on the way from a gradient to the wire happens here, so no
 *  strategy, algorithm or codec deals with error feedback.
 *
 *  Error feedback (Seide et al., INTERSPEECH 2014; Karimireddy et al., ICML 2019):
 *      v = g + e;  wire = encode(v);  e' = v - decode(wire).
 *
 *  Its members are in comm/lane_parts.h, which no plugin sees. */
#ifndef GW_COMM_LANE_H
#define GW_COMM_LANE_H

#include "base/span.h"
#include "compress/codec.h"

#include <mpi.h>
#include <stdbool.h>

typedef struct gw_lane gw_lane;

int gw_lane_rank(const gw_lane *lane);
int gw_lane_size(const gw_lane *lane);
/** Return the lane's own communicator, with MPI_ERRORS_RETURN, for MPI's collectives. */
MPI_Comm gw_lane_comm(const gw_lane *lane);
/** gw_agree among the lane's ranks. */
gw_err gw_lane_agree(const gw_lane *lane, gw_err mine);
const gw_codec *gw_lane_codec(const gw_lane *lane);
/** True if waits yield the core: the node runs more threads than it has cores. */
bool gw_lane_yields(const gw_lane *lane);
/** Return the run's seed for random numbers; the same on all ranks. */
uint64_t gw_lane_seed(const gw_lane *lane);
/** True if parts of the arena use other codecs (comm/mix.h). */
bool gw_lane_mixed(const gw_lane *lane);

/** What this rank encoded so far of a part of the arena. */
typedef struct gw_coded {
    uint64_t bytes, floats;
} gw_coded;

/** Make a lane of the ranks with the same `color`, in their order; *sub is NULL if the color is
 *  below 0. It shares codec, residual and ticket, and is closed with its parent. Collective. */
gw_err gw_lane_split(gw_lane *lane, int color, gw_lane **sub);

/** Allocate n floats, zeroed, aligned to 64 bytes, freed with the lane. Collective. */
gw_err gw_lane_floats(gw_lane *lane, size_t n, float **out);

/** Keep `data` under `key` (any address that the caller owns); release(data) runs when the lane is
 *  closed, or at once if this fails. gw_lane_attached returns it, or NULL if there is none. */
gw_err gw_lane_attach(gw_lane *lane, const void *key, void *data, void (*release)(void *data));
void *gw_lane_attached(const gw_lane *lane, const void *key);

/** Add a line to the run's report on its communication, such as which algorithm was chosen. A line
 *  is noted once. */
void gw_lane_note(gw_lane *lane, const char *line);

/** What is encoded from now on is not parts of the arena: do not count bytes by its layers. */
void gw_lane_reshape(gw_lane *lane);

/** Multiply the residual by `decay` before each encoding, v = g + decay e; 1 unless set. The same
 *  on all ranks, before the first step. GW_ERR_USAGE: the lane keeps no residual. */
gw_err gw_lane_decay(gw_lane *lane, float decay);

/** True if messages are floats of the arena itself: no encoding, no wire buffer. */
bool gw_lane_exact(const gw_lane *lane);

enum {
    GW_ENCODE_ADOPT = 1, /* base[s] becomes what a peer will decode: an owner that forwards what it
                            owns must use its own encoding too, or the replicas drift apart */
    GW_ENCODE_ALONE = 2  /* these are not only this rank's own values, one summand on the lane:
                            draw without regard to the other ranks (gw_turn.ranks is 1) */
};

/** Encode base[s] into out, with error feedback base[s] + residual[s]; base[s] is undefined then.
 *  If the lane is fed, residual[s] is that sum already, and base[s] is not read. `how`:
 *  GW_ENCODE_*, or 0. `ticket`: the exchange's; randomness depends only on (seed, ticket, rank,
 *  s.off). Any thread; overlapping spans one at a time. */
gw_err gw_lane_encode(gw_lane *lane, uint64_t ticket, float *base, gw_span s, unsigned how,
                      void *out, size_t cap, size_t *len);

/** gw_lane_encode in two halves, for a codec that agrees (gw_codec_agrees): the first fills the
 *  prefix at `out`, the caller replaces it by the elementwise maximum over the ranks, and the
 *  second encodes behind it. */
void gw_lane_measure(gw_lane *lane, float *base, gw_span s, void *out);
gw_err gw_lane_encode_agreed(gw_lane *lane, uint64_t ticket, float *base, gw_span s, bool adopt,
                             void *out, size_t cap, size_t *len);

/** base[s] = (add ? base[s] : 0) + value(in). A frame is checked and counted first. The message of
 *  GW_ERR_CORRUPT names the lane, the floats and their layers. */
gw_err gw_lane_decode(gw_lane *lane, const void *in, size_t len, float *base, gw_span s, bool add);

/** List the elements of s in `in`; else as gw_lane_decode. */
gw_err gw_lane_list(gw_lane *lane, const void *in, size_t len, gw_span s, gw_elements *out);

#endif
