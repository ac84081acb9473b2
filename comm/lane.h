/** A lane carries encoded messages between ranks: a channel (comm/channel.h) and an encoder
 *  (comm/encoder.h), with what strategies and algorithms attach to them. */
#ifndef GW_COMM_LANE_H
#define GW_COMM_LANE_H

#include "comm/encoder.h"

#include <mpi.h>

struct gw_algo;
struct gw_channel;
struct gw_fabric;

typedef struct gw_lane gw_lane;

int gw_lane_rank(const gw_lane *lane);
int gw_lane_size(const gw_lane *lane);
/** Return the lane's own communicator, with MPI_ERRORS_RETURN, for MPI's collectives. */
MPI_Comm gw_lane_comm(const gw_lane *lane);
/** gw_agree among the lane's ranks. */
gw_err gw_lane_agree(const gw_lane *lane, gw_err mine);
/** True if waits yield the core: the node runs more threads than it has cores. */
bool gw_lane_yields(const gw_lane *lane);
/** Return what encodes its messages, for work that does so by itself. */
gw_encoder *gw_lane_encoder(const gw_lane *lane);
const gw_codec *gw_lane_codec(const gw_lane *lane);
/** True if messages are floats of the arena itself: no encoding, no wire buffer. */
bool gw_lane_exact(const gw_lane *lane);
/** Return the run's seed for random numbers; the same on all ranks. */
uint64_t gw_lane_seed(const gw_lane *lane);
/** True if parts of the arena use other codecs (comm/mix.h). */
bool gw_lane_mixed(const gw_lane *lane);

/** Make a lane of the ranks with the same `color`, in their order; *sub is NULL if the color is
 *  below 0. It shares codec, residual and ticket, and is closed with its parent. Collective. */
gw_err gw_lane_split(gw_lane *lane, int color, gw_lane **sub);

/** Make a lane of the same ranks for another codec, which nobody counts; else as gw_lane_split.
 *  `apart` as in gw_lane_setup; `feedback`: with the residual that the whole family shares (ignored
 *  for lossless codecs). Collective. */
gw_err gw_lane_branch(gw_lane *lane, gw_codec *codec, bool apart, bool feedback, gw_lane **branch);

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

/** Return the rank that `rank` of this lane has on the root of its family. */
int gw_lane_root_rank(const gw_lane *lane, int rank);

/* ---- for who owns a lane ---- */

/** What lanes note, for their owner, who frees it: lines for a report, and rows for the run
 *  folder's algo.csv (comm/tuning.h). NULL: none. */
typedef struct gw_lane_notes {
    char *lines, *choices;
} gw_lane_notes;

typedef struct gw_lane_setup {
    gw_codec *codec; /* learns over how many ranks its encodings are added without decoding; */
    bool apart;      /* only 1: the algorithm decodes each (it is not GW_ALGO_ORDERED) */
    size_t n;        /* floats of the arena that the lane's spans lie in */
    bool feedback;   /* keep a residual (ignored for lossless codecs: it would always be zero); */
    bool fed;        /* gradients are added to it before they are encoded, on several ranks */
    float *velocity; /* as in gw_encoder */
    uint64_t seed;
    bool yield;
    bool shared;           /* gw_lane_floats returns memory that the node's ranks share */
    gw_phantom *phantom;   /* NULL: messages are real */
    int dim;               /* dimension of a mesh that the ranks lie along (gw_dim); 0: data */
    const char *name;      /* NULL: unnamed; must outlive the lane, like all that follows */
    const char *table;     /* text of an algo.csv to choose algorithms by; NULL: none */
    gw_lane_notes *notes;  /* NULL: nobody wants them */
    const gw_span *layers; /* these three as in gw_encoders */
    int n_layers;
    gw_coded *coded;
    gw_codings
        *codings; /* counts this codec's and, in a mix, the next ones'; NULL: nobody counts */
} gw_lane_setup;

/** Open, collective over `parent`. GW_ERR_UNSUPPORTED: the codec cannot sum over so many ranks. */
gw_err gw_lane_open(gw_lane **out, MPI_Comm parent, const gw_lane_setup *setup);
/** The same over `fabric`, which it owns from now on, also if it fails. Memory is not shared. */
gw_err gw_lane_open_on(gw_lane **out, struct gw_fabric *fabric, const gw_lane_setup *setup);
void gw_lane_close(gw_lane *lane); /* collective; frees all that is attached to the lane */

/** Begin an exchange, with the next ticket or with this one; the same on all ranks. */
void gw_lane_begin(gw_lane *lane);
void gw_lane_begin_at(gw_lane *lane, uint64_t ticket);
/** Return the ticket of an exchange that starts now. */
uint64_t gw_lane_ticket(const gw_lane *lane);

/* ---- for what lays down and runs schedules ---- */

/** Return what carries its messages. */
struct gw_channel *gw_lane_channel(const gw_lane *lane);

/** A part of the arena whose messages go over their own lane, with another codec and the algorithm
 *  that carries it; see comm/mix.h. */
typedef struct gw_lane_run {
    gw_span span;
    gw_lane *lane;
    const struct gw_algo *algo;
} gw_lane_run;

/** Have the parts of an arena, which they tile, use other lanes; `runs` must outlive the lane. */
void gw_lane_divide(gw_lane *lane, const gw_lane_run *runs, int n);
/** Return them; *n is 0 if the lane's codec is for all. */
const gw_lane_run *gw_lane_runs(const gw_lane *lane, int *n);

/** Return the setup's table. */
const char *gw_lane_table(const gw_lane *lane);

/** Make a lane that only says what one of so many ranks with this codec would, for a `cost`; freed
 *  with `lane`. */
gw_err gw_lane_stand_in(gw_lane *lane, int ranks, gw_lane **out);

/** Add rows to the owner's choices. */
gw_err gw_lane_choices(gw_lane *lane, const char *rows);

/** Number, for the probe, the next schedule that is laid down on this lane; all ranks of the lane
 *  ask in the same order. */
struct gw_exchange gw_lane_exchange(gw_lane *lane, gw_span span);

#endif
