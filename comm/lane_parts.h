/** The members of a lane: for comm, and for owners of lanes (the session, benches, tests). */
#ifndef GW_COMM_LANE_PARTS_H
#define GW_COMM_LANE_PARTS_H

#include "base/io.h"
#include "base/probe.h"
#include "comm/fabric/fabric.h"
#include "comm/lane.h"
#include "mpi/agree.h"
#include "mpi/shared.h"

/** A part of the arena whose messages go over their own lane, with another codec and the algorithm
 *  that carries it; see comm/mix.h. */
typedef struct gw_lane_run {
    gw_span span;
    struct gw_lane *lane;
    const struct gw_algo *algo;
} gw_lane_run;

/** What this rank has encoded so far with one codec. */
typedef struct gw_codings {
    _Atomic uint64_t floats, bytes;
} gw_codings;

/** What error feedback keeps, each as long as the arena. */
typedef struct gw_lane_kept {
    float *residual; /* NULL: no error feedback */
    float *store;    /* the residual's memory, which lanes of one family share */
    float *velocity; /* the session's momentum, cleared where an element was sent; NULL: none */
    float decay;     /* at the root: of the residual before each encoding */
    bool fed; /* at the root, from the beginning: gradients were added to the residual before */
} gw_lane_kept;

/** What is counted, for reports. */
typedef struct gw_lane_tally {
    const gw_span *layers; /* of the arena; NULL: not known */
    gw_coded *coded;       /* per layer; an encoding over several counts by their floats; or NULL */
    int n;
    gw_codings *codings;     /* the owner's: for this codec and, in a mix, the next ones; or NULL */
    _Atomic uint64_t frames; /* at the root: frames received and checked by the whole family */
} gw_lane_tally;

/** Lines for the run. */
typedef struct gw_lane_said {
    char *notes;       /* for its report; NULL: none */
    char *choices;     /* rows for the run folder's algo.csv; NULL: none */
    const char *name;  /* what the lane carries; NULL: unnamed */
    const char *table; /* algorithms to take again, as `choices` had them; NULL: choose anew */
} gw_lane_said;

/** The memory of lanes whose messages have a length but no contents: for codecs of fixed size, over
 *  a fabric that does not move payloads (comm/fabric/sim.h). */
typedef struct gw_phantom {
    char *wire;        /* where encodings would lie: nobody touches them */
    float *floats;     /* what gw_lane_floats returns, with any contents */
    size_t room, used; /* of these */
    double bytes;      /* of an encoding per float, where data decide it; 0: its bound */
} gw_phantom;

struct gw_lane {
    gw_fabric *fabric; /* its own */
    int rank, size;
    const gw_codec *codec; /* the session's */
    gw_lane_kept kept;
    gw_lane_tally tally;
    gw_lane_said said;
    size_t n; /* floats in the arena */
    uint64_t seed;
    uint64_t ticket;   /* of a root: what the next exchanges draw by; one per step, on all ranks */
    bool yield;        /* waits yield the core: the node runs more threads than it has cores */
    int id;            /* number of a lane that was opened, in order; from 0 */
    int dim;           /* dimension of a mesh that its ranks lie along (gw_dim) */
    int schedules;     /* laid down so far, on it and all lanes split off it */
    int next_tag;      /* tag of the next strand on this lane */
    gw_shared *shared; /* memory of the ranks on this node; NULL: not asked for */
    gw_phantom *phantom;     /* the owner's, on one rank; NULL: messages are real */
    struct gw_lent *lent;    /* where gradients lie, the session's; NULL: all in the arena */
    struct gw_lane *parent;  /* of a lane split off another, else NULL */
    bool branch;             /* made by gw_lane_branch: `shared` is its parent's */
    const gw_lane_run *runs; /* they tile the arena, if its tensors have different codecs */
    int n_runs;              /* 0: this lane's codec is for all */
    struct gw_attachment *attached;
};

typedef struct gw_lane_setup {
    gw_codec *codec; /* learns over how many ranks its encodings are added without decoding; */
    bool apart;      /* only 1: the algorithm decodes each (it is not GW_ALGO_ORDERED) */
    size_t n;        /* floats of the arena that the lane's spans lie in */
    bool feedback;   /* keep a residual (ignored for lossless codecs: it would always be zero) */
    uint64_t seed;
    bool yield;
    bool shared;         /* gw_lane_floats returns memory that the node's ranks share */
    gw_phantom *phantom; /* NULL: messages are real */
    int dim;             /* dimension of a mesh that the ranks lie along (gw_dim); 0: data */
    const char *name;    /* NULL: unnamed; must outlive the lane */
    const char *table;   /* text of an algo.csv to choose algorithms by; NULL: none; likewise */
} gw_lane_setup;

/** Open, collective over `parent`. GW_ERR_UNSUPPORTED: the codec cannot sum over so many ranks. */
gw_err gw_lane_open(gw_lane **out, MPI_Comm parent, const gw_lane_setup *setup);
/** The same over `fabric`, which it owns from now on, also if it fails. Memory is not shared. */
gw_err gw_lane_open_on(gw_lane **out, gw_fabric *fabric, const gw_lane_setup *setup);
void gw_lane_close(gw_lane *lane); /* collective; frees all that is attached to the lane */

/** Make a lane of the same ranks for another codec; else as gw_lane_split. `apart` as in
 *  gw_lane_setup; `feedback`: with the residual that the whole family shares (ignored for lossless
 *  codecs). Collective. */
gw_err gw_lane_branch(gw_lane *lane, gw_codec *codec, bool apart, bool feedback, gw_lane **branch);

/** Add rows (see comm/tuning.h) to the algo.csv of the run's folder. */
gw_err gw_lane_choices(gw_lane *lane, const char *rows);

/** Number, for the probe, the next schedule that is laid down on this lane; all ranks of the lane
 *  ask in the same order. */
gw_exchange gw_lane_exchange(gw_lane *lane, gw_span span);

/** Return the rank that `rank` of this lane has on the root of its family. */
int gw_lane_root_rank(const gw_lane *lane, int rank);

/** Take the next message tag; all ranks of the lane take tags in the same order. */
int gw_lane_tag(gw_lane *lane);

/** Return the ticket of an exchange that starts now; for a lane that was split off, its root's. */
uint64_t gw_lane_ticket(const gw_lane *lane);

/** Save or load what the lane carries from step to step: residual and ticket, which its random
 *  numbers depend on. The owner has drained the lane. */
gw_err gw_lane_state(gw_lane *lane, gw_io *io);

#endif
