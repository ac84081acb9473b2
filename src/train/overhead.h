/** What measuring costs, measured before a run begins: steps with and without probes, in random
 *  order. They are real steps on the run's first batches, at rate 0, and the state that they change
 *  is restored to the bit. A round takes one step of each profile on the same batch, in an order
 *  drawn from the seed. Each timed step follows an untimed one of its own profile; the ranks start
 *  the two together, and a wall is the slowest rank's. */
#ifndef GW_TRAIN_OVERHEAD_H
#define GW_TRAIN_OVERHEAD_H

#include "base/stats.h"
#include "prof/ledger.h"
#include "step/step.h"

#include <jansson.h>

enum {
    GW_OVERHEAD_LEVELS = 2,     /* that may be compared with off */
    GW_OVERHEAD_LEAST = 20,     /* rounds below which the budget is not spent */
    GW_OVERHEAD_MOST = 1000000, /* rounds */
    GW_OVERHEAD_AUTO = -1       /* as many rounds as fit into about 0.1 s */
};

typedef struct gw_overhead {
    gw_profile profile; /* compared with GW_PROFILE_OFF */
    int pairs;          /* 0: not measured */
    char why[192];      /* not; else "" */
    double off_s, on_s; /* median walls of the two */
    gw_stats ratio;  /* of the walls of a pair; its interval is from order statistics: pairs hardly
                        depend on each other, for both steps of one see the same machine */
    double regions;  /* entered in a batch: mean over the ranks; NaN where pairs == 0 */
    double region_s; /* what an empty one costs this rank */
} gw_overhead;

typedef struct gw_overhead_job {
    gw_stepper *stepper;
    /** Take step `i` of the rehearsal at rate 0, measured as the run measures; afterwards nothing
     * is pending. The profile is set. */
    gw_err (*step)(void *ctx, int64_t i, gw_batch_cost *cost);
    void *ctx;
    const gw_profile *profiles; /* none of them off, */
    int n;                      /* at most GW_OVERHEAD_LEVELS */
    int rounds;                 /* or GW_OVERHEAD_AUTO */
    uint64_t seed;
    MPI_Comm comm;
} gw_overhead_job;

/** Collective, between batches, before the first step: fill out[0..n). What cannot be rehearsed is
 *  GW_OK with no pairs and the reason; a state that did not come back is GW_ERR_INTERNAL on all
 *  ranks. *own: the error is this rank's alone, the others wait in an exchange. */
gw_err gw_overhead_measure(gw_overhead *out, const gw_overhead_job *job, bool *own);

/** For run.json and the benchmark. */
json_t *gw_overhead_json(const gw_overhead *o);

/** "off", "timers" or "full". */
const char *gw_overhead_profile_name(gw_profile profile);

#endif
