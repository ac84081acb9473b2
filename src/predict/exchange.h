/** Exchanges that are measured whole, because a simulation has no messages of theirs: those in
 *  memory that ranks share, and MPI's own collectives. They are played as one operation. */
#ifndef GW_PREDICT_EXCHANGE_H
#define GW_PREDICT_EXCHANGE_H

#include "comm/algo.h"
#include "comm/fabric/sim.h"
#include "links/curve.h"

typedef struct gw_exchange_job {
    MPI_Comm comm;
    size_t n; /* floats of the longest span */
    uint64_t seed;
    bool yield;    /* the node runs more threads than cores */
    bool feedback; /* the codec's error is fed back */
    double budget_s;
} gw_exchange_job;

enum { GW_EXCHANGE_ENOUGH = 8 << 20 }; /* floats above which no cache bends the curve any more */

/** Measure allreduces of 1 KiB and more, up to job->n floats or the end of the budget: the slowest
 *  rank's typical times by bytes of floats, coding included. *sent: bytes that a rank sends for
 *  each float. The codec is opened like `like`. out->n == 0: these ranks cannot have it. The same
 *  result on all ranks. Collective. */
gw_err gw_exchange_measure(const gw_exchange_job *job, const gw_algo *algo, const gw_codec *like,
                           gw_curve *out, double *sent);

/** In a played world: an algorithm that takes the time of `curve`, which must outlive the play, and
 *  sends nothing. `beside`: over links, so that cores compute meanwhile. */
gw_algo gw_exchange_play(gw_sim_setup *w, const gw_curve *curve, bool beside);

#endif
