/** Times collectives against each other on the present ranks and lanes: for the choice of algo=auto
 *  (comm/tuning.h), predictions (predict/exchange.h) and `bench allreduce`. */
#ifndef GW_COMM_TIMING_H
#define GW_COMM_TIMING_H

#include "base/stats.h"
#include "comm/algo.h"
#include "mpi/rounds.h"

enum { GW_TIMED_MOST = 256, GW_TIMING_SIZES = 5 };

/** A candidate; schedule and times are those of the present size. */
typedef struct gw_timed {
    const gw_algo *algo;
    gw_lane *lane;
    float *base;           /* the lane's */
    gw_schedule *schedule; /* NULL: it cannot be laid down */
    bool done;             /* takes no part in further rounds */
    gw_samples times;      /* of the slowest rank, in seconds */
} gw_timed;

typedef struct gw_timing {
    gw_rounds rounds; /* its figures are the seconds that this rank took */
    gw_timed *timed[GW_TIMED_MOST];
    int n;
    double spent_s; /* so far, in reduced times: the same on all ranks */
} gw_timing;

/** Lay down `verb` over the first n floats, in place of what was laid down before.
 *  GW_ERR_UNSUPPORTED, on all ranks alike: it cannot be laid down, and is `done`. Collective. */
gw_err gw_timed_lay(gw_timed *x, gw_verb verb, int root, size_t n);

/** Free schedule and times; the caller owns algorithm and lane. */
void gw_timed_close(gw_timed *x);

/** Run once, started by all ranks together, on a span written just before, like a gradient. *s: the
 *  seconds that this rank took. Collective. */
gw_err gw_timed_run(gw_timed *x, double *s);

/** Run one round of all candidates that are not done. Collective. */
gw_err gw_timing_round(gw_timing *t);

/** Allreduces of several sizes within a budget. */
typedef struct gw_timing_plan {
    const size_t *wanted; /* n_wanted sizes in bytes, ascending; those above `arena` are left out */
    int n_wanted;
    size_t arena; /* bytes; an additional size, unless it is near the last one */
    double budget_s;
    int least, most; /* rounds per size; most <= 64 */
    double hopeless; /* a candidate this many times slower than the best is not run again */
    /** Optional: before the first round of a size, and after its last. */
    gw_err (*begin)(void *ctx, size_t n), (*end)(void *ctx, size_t n);
} gw_timing_plan;

/** Time size after size all candidates that can be laid down, until a size would exceed the budget:
 *  its time is extrapolated from the two sizes before. Collective. */
gw_err gw_timing_sizes(gw_timing *t, const gw_timing_plan *p);

#endif
