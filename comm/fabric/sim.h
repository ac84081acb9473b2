/** Thousands of ranks in one process, on a modelled network: a fabric under virtual time.
 *
 *  Each rank is a coroutine. It runs until it has to wait or looks at messages; then the next event
 *  comes, and the clock moves to its moment. A rank that computes goes on at once, with its own
 *  clock ahead, while what it works on is in the cache. Only events and gw_sim_compute take time.
 *  Payloads are moved only if the setup says so; else lanes are phantoms (gw_phantom in
 *  comm/encoder.h).
 *
 *  A message of k bytes from a rank that posts it at t (A. Alexandrov, M. Ionescu, K. Schauser,
 *  C. Scheiman, "LogGP", SPAA 1995; its G and g are the links') takes the sender's core until
 *  t + o, and as long as its bytes take the core, while it is on its way. Then, behind those that
 *  the rank sent to the same rank before, it flows over the links of its route, whose rates such
 *  lines share max-min fairly (comm/fabric/flows.h). When its last byte is sent, the sender may use
 *  the buffer again; L later it arrives. Once the receiver has posted it and looks, it takes that
 *  core for o, and for its bytes. A late receiver holds nobody up: all messages are eager.
 *
 *  Rank r is on host r / per_host. The network gives the way between two hosts
 *  (comm/fabric/network.h); ranks of one host share its memory link.
 *
 *  When folded, only the first `played` ranks are played. Each other rank does what its like does,
 *  the rank with the same number modulo `played`: a message to it is delivered as the message that
 *  its like receives from the sender's like, over links that are alike. So the ranks of a network
 *  period must divide `played`, and only a rank's peers may depend on its number. A part of a span
 *  may be a float longer on one rank than on its like; then it takes the time of the played one. */
#ifndef GW_COMM_FABRIC_SIM_H
#define GW_COMM_FABRIC_SIM_H

#include "base/probe.h"
#include "comm/fabric/fabric.h"
#include "comm/fabric/network.h"

typedef struct gw_sim_link {
    double bytes_per_s, latency_s;
    double overhead_s, byte_s; /* of the core at each end, per message and per byte */
} gw_sim_link;

/** Exchanges whose time was measured, in place of messages: see gw_sim_exchange. */
typedef struct gw_sim_measured {
    double (*seconds)(const void *of, size_t floats); /* NULL: there are none */
    const void *of;
    bool beside; /* links carry it; else it occupies the cores */
} gw_sim_measured;

/** Observes what ranks do; all hooks or none are set. Ranks are numbered in the whole world. */
typedef struct gw_sim_watch {
    void *ctx;
    void (*compute)(void *ctx, int rank, int64_t ns);
    /** `rank` posts a message. Return the number that the other hooks get for it. */
    int64_t (*post)(void *ctx, int rank, bool sends, int peer);
    /** The posts of sender and receiver are one message. */
    void (*match)(void *ctx, const int rank[2], const int64_t post[2], size_t bytes);
    /** `rank` has seen that it is complete. */
    void (*seen)(void *ctx, int rank, int64_t post);
} gw_sim_watch;

typedef struct gw_sim_setup {
    int ranks, per_host;
    gw_network *network;      /* of ceil(ranks / per_host) hosts; the caller's */
    gw_sim_link link, memory; /* the rate of `link` is the network's */
    double coded_bytes; /* of an encoding per float, where data decide it; 0: the codec's bound */
    gw_sim_measured measured;
    const gw_sim_watch *watch; /* NULL: nobody; folded: nobody */
    bool carries;              /* messages carry their bytes; not when folded */
    double (*clock_s)(void);   /* the machine's, by which strategies' own work is timed; NULL: it
                                takes no time */
    double speed;              /* of the ranks' cores, as a multiple of what it says */
    size_t stack;              /* bytes of a rank's stack; 0: enough for what carries none */
    void (*turn)(void *ctx, int rank); /* called with ctx before a rank goes on; NULL: nobody */
    int played;                        /* folded: how many ranks, a divisor of all; 0: all */
    bool pairs; /* folded: peers of rank r's like by k are those of r xor k, not of r + k */
    bool even;  /* folded: GW_ERR_UNSUPPORTED if a part is longer on one rank than on another */
} gw_sim_setup;

typedef struct gw_sim_tally {
    uint64_t bytes, messages, events; /* all ranks together, so far; events: of those played, */
    double coded_s;                   /* as the time that they coded, by their codecs' prices */
} gw_sim_tally;

/** Run body(ctx, fabric) on each rank; it closes `fabric`, or a lane does. One world at a time.
 *  Return the first error of any rank. GW_ERR_INTERNAL: no rank can go on; the message names a rank
 *  and what it waits for. */
gw_err gw_sim_run(const gw_sim_setup *setup, gw_err (*body)(void *ctx, gw_fabric *fabric),
                  void *ctx);

/** In a body: compute on this rank, looking at no message meanwhile. */
void gw_sim_compute(const gw_fabric *f, double seconds);

/** In a body, on all ranks of `f`: an exchange of so many floats, which begins when the last of
 *  them is here and takes the time that setup->measured says. If that occupies the cores, it is
 *  over on return. Else the next message that this rank posts, which counts as none, arrives when
 *  it is over; a rank's exchanges pass one behind another. */
gw_err gw_sim_exchange(gw_fabric *f, size_t floats);
const gw_sim_tally *gw_sim_so_far(const gw_fabric *f);

/** Return the clock of the rank that runs, in ns; any function that one calls. */
uint64_t gw_sim_ns(void);

/** In a body of a world that carries: a communicator of the ranks of `f`, which it owns from now
 *  on, also after an error. So the collectives of mpi/wait.h, and lanes of gw_lane_open, are on
 *  simulated ranks. */
gw_err gw_sim_comm(gw_fabric *f, MPI_Comm *out);

/** Return the fabric that `comm` owns; NULL: it is MPI's. */
gw_fabric *gw_sim_fabric_of(MPI_Comm comm);

/** Also count in *sent, the caller's, what this rank sends on `f` and on all that is split off it
 *  from now on. */
void gw_sim_count(gw_fabric *f, gw_sim_tally *sent);

#endif
