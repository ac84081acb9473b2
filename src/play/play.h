/** A step's profile, played by every rank of a simulated world with a strategy that is opened on
 *  phantom lanes: what `gradwire replay` does in time, done in virtual time. */
#ifndef GW_PLAY_PLAY_H
#define GW_PLAY_PLAY_H

#include "comm/strategy.h"
#include "config/delay.h"
#include "play/actor.h"
#include "prof/ledger.h"

/** What a step was on one rank. */
typedef struct gw_sim_step {
    gw_batch_cost cost;
    double bubble_s; /* of its waiting: until another stage had sent */
} gw_sim_step;

/** Means, so fractions where a strategy does not send in each step. */
typedef struct gw_sim_sent {
    double bytes, messages;
} gw_sim_sent;

typedef struct gw_sim_play {
    gw_sim_setup world;
    gw_script script; /* the caller's; its mesh NULL: data alone */
    gw_strategy strategy;
    gw_algo algo;
    gw_codec codec, exact;
    int steps;
    bool unfolded;    /* play every rank, whatever is known of them */
    int most_played;  /* unfolded no more ranks than these; 0: any */
    gw_delay skew;    /* who is held up in a step, and how long: drawn as `train` draws it */
    uint64_t seed;    /* of these draws */
    gw_sim_step *log; /* the caller's, for [steps][ranks]: what they were; NULL: nobody asks */
    /* What came of it: */
    int counted;              /* the last steps, in whole periods of the exchange */
    double step_s, exposed_s; /* means over these, of all ranks */
    double bubble_s;          /* likewise */
    gw_sim_sent sent;         /* in a step, likewise, by all ranks together */
    double elapsed_s;         /* from the first step's begin until nothing is in flight */
    gw_sim_tally tally;       /* of all steps and ranks: as the strategy's `cost` says */
    char notes[1024];         /* lines of what the strategy says of its exchange */
} gw_sim_play;

/** Return why the replicas of its mesh exchange nothing, for people; NULL: there are several. */
const char *gw_sim_alone(const gw_sim_play *p);

/** Play it: folded (world.played, comm/fabric/sim.h) where ranks, network and algorithm are known
 *  to be alike, and the ranks played sent their share of what the strategy's `cost` says.
 *  GW_ERR_UNSUPPORTED: more ranks than most_played, or steps without a whole period of the
 *  exchange, too. GW_ERR_INTERNAL: what was sent is not what `cost` says, too. */
gw_err gw_sim_play_run(gw_sim_play *p);

#endif
