/** Timing collectives against each other on the ranks and lanes at hand: what algo=auto chooses by
 *  (comm/tuning.h), what the cost model is made of (select/survey.h), and `bench allreduce`. */
#ifndef GW_COMM_TIMING_H
#define GW_COMM_TIMING_H

#include "base/stats.h"
#include "comm/algo.h"
#include "mpi/rounds.h"

enum { GW_TIMED_MOST = 256, GW_TIMING_SIZES = 5 };

/** One that takes part; schedule and times are of the present size. */
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
    double spent_s; /* so far, by reduced times: the same on all ranks */
} gw_timing;

/** Collective: lay down `verb` over the first n floats, in place of what was laid down before.
 *  GW_ERR_UNSUPPORTED, on all ranks alike: it cannot be, and so is `done`. */
gw_err gw_timed_lay(gw_timed *x, gw_verb verb, int root, size_t n);

/** Free schedule and times; algorithm and lane are the caller's. */
void gw_timed_close(gw_timed *x);

/** Collective: one run that all ranks start together, of a span written just before, like a
 *  gradient. *s: what this rank took. */
gw_err gw_timed_run(gw_timed *x, double *s);

/** Collective: one round of all that are not done. */
gw_err gw_timing_round(gw_timing *t);

/** Allreduces of several sizes within a budget. */
typedef struct gw_timing_plan {
    const size_t *wanted; /* n_wanted sizes in bytes, ascending; those above `arena` are left out */
    int n_wanted;
    size_t arena; /* bytes; a size of its own unless it is near the one before */
    double budget_s;
    int least, most; /* rounds of a size; most <= 64 */
    double hopeless; /* what takes so many times as long as the best is not run again */
    /** Optional: before the first round of a size, and when all its times are there. */
    gw_err (*begin)(void *ctx, size_t n), (*end)(void *ctx, size_t n);
} gw_timing_plan;

/** Collective: size after size, each of all that can be laid down. A size that would break the
 *  budget ends it; what it will take follows from the slope of the two before. */
gw_err gw_timing_sizes(gw_timing *t, const gw_timing_plan *p);

#endif
