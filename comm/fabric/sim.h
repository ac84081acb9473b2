/** Ranks by the thousand in one process, on a modelled network: a fabric under virtual time.
 *
 *  Each rank is a coroutine. It runs until it has to wait or to compute; then the next event comes,
 *  and with it the moment that the clock shows. Nothing but events and gw_sim_compute takes time.
 *  Payloads are not moved (gw_phantom in comm/lane_parts.h).
 *
 *  A message of k bytes from a rank that posts it at t (A. Alexandrov, M. Ionescu, K. Schauser,
 *  C. Scheiman, "LogGP", SPAA 1995; its G and g are the links'): until t + o it takes the sender's
 *  core; then, behind those that it sent to the same rank before, it flows over the links of its
 *  route, whose rates such lines share max-min fairly (comm/fabric/flows.h); when its last byte is
 *  sent the sender may use the buffer again; L later it is there; where the receiver has posted it
 *  and looks, it takes that core for o. Whoever receives late holds nobody up: all messages are
 *  eager.
 *
 *  Rank r lives on host r / per_host. The network has the way between two hosts
 *  (comm/fabric/network.h); ranks of one host share its memory link.
 *
 *  Folded, the first `played` ranks are played, and each other rank does what the one does whose
 *  number is the same modulo `played`: a message to it is delivered, instead, as the message that
 *  its like receives from the sender's like, over links that are alike. So the network's period
 *  divides them, and nothing that ranks do may depend on their number but the peers. A part of a
 *  span may be a float longer on one of them than on the other; then it takes what the played one
 *  takes. */
#ifndef GW_COMM_FABRIC_SIM_H
#define GW_COMM_FABRIC_SIM_H

#include "base/probe.h"
#include "comm/fabric/fabric.h"
#include "comm/fabric/network.h"

typedef struct gw_sim_link {
    double bytes_per_s, latency_s, overhead_s; /* overhead_s: of a message, at each end */
} gw_sim_link;

/** Sees what ranks do; all of it or nothing. Ranks are numbered in the whole world. */
typedef struct gw_sim_watch {
    void *ctx;
    void (*compute)(void *ctx, int rank, int64_t ns);
    /** A message is posted by `rank`; the number that the others name it by. */
    int64_t (*post)(void *ctx, int rank, bool sends, int peer);
    /** What was posted so by the sender and by the receiver is one message. */
    void (*match)(void *ctx, const int rank[2], const int64_t post[2], size_t bytes);
    /** `rank` has seen that it is complete. */
    void (*seen)(void *ctx, int rank, int64_t post);
} gw_sim_watch;

typedef struct gw_sim_setup {
    int ranks, per_host;
    const gw_network *network;  /* of ceil(ranks / per_host) hosts */
    gw_sim_link link, memory;   /* the rate of `link` is the network's */
    double coded_s[GW_CODINGS]; /* that a float takes which is coded so */
    const gw_sim_watch *watch;  /* NULL: nobody; folded: nobody */
    int played;                 /* folded: how many ranks, a divisor of all; 0: all */
    bool pairs; /* folded: peers of rank r's like by k are those of r xor k, not of r + k */
    bool even;  /* folded: GW_ERR_UNSUPPORTED where a part is longer on one rank than on another */
} gw_sim_setup;

typedef struct gw_sim_tally {
    uint64_t bytes, messages, events; /* all ranks together, so far; events: of those played */
} gw_sim_tally;

/** Have each rank run body(ctx, fabric), which closes `fabric` or has a lane do so. One world at a
 *  time. The first error of any rank; GW_ERR_INTERNAL, which names a rank and what it waits for:
 *  no rank can go on. */
gw_err gw_sim_run(const gw_sim_setup *setup, gw_err (*body)(void *ctx, gw_fabric *fabric),
                  void *ctx);

/** In a body: this rank computes, and looks at no message meanwhile. */
void gw_sim_compute(const gw_fabric *f, double seconds);
const gw_sim_tally *gw_sim_so_far(const gw_fabric *f);

/** What this rank sends on `f`, and on all that is split off it from now on, is added to *sent, the
 *  caller's, too. */
void gw_sim_count(gw_fabric *f, gw_sim_tally *sent);

#endif
