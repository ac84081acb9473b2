/** The time ledger of one rank's main thread: a stack of regions, and every tick of a batch charged
 *  to exactly one leaf phase. It listens through base/probe.h; MPI calls are charged by src/prof/
 *  pmpi.c, which interposes MPI's profiling interface, so no strategy knows of it. Regions of other
 *  threads are not timed (they run beside the timeline); their messages are counted. */
#ifndef GW_PROF_LEDGER_H
#define GW_PROF_LEDGER_H

#include "base/probe.h"

#include <stdbool.h>
#include <stdint.h>

/** What one batch cost this rank. */
typedef struct gw_batch_cost {
    double start_s;            /* since gw_ledger_start */
    double wall_s;             /* = the sum of phase_s */
    double phase_s[GW_PHASES]; /* exclusive times */
    double inflight_s;         /* computation (forward, backward, update) while a nonblocking
                                  operation was posted and not yet seen complete: an upper bound
                                  of the communication that hid there */
    uint64_t wire_bytes;       /* bytes handed to MPI by this rank: point-to-point as sent; an MPI
                                  collective counts what the bandwidth-optimal algorithm sends a
                                  rank (allreduce 2(P-1)/P n), since MPI does not tell */
    uint64_t messages;         /* point-to-point sends */
    uint64_t collectives;      /* MPI collectives called */
    long nivcsw, minflt;       /* involuntary context switches, minor faults (getrusage) */
} gw_batch_cost;

/** Install the probe on the calling (main) thread; time 0 is now. */
void gw_ledger_start(void);

/** Open a batch: what follows is charged to it, to GW_PHASE_OTHER unless a region says else. */
void gw_ledger_begin(void);

/** Close the batch and tell its cost. */
void gw_ledger_end(gw_batch_cost *cost);

/** For pmpi.c: count bytes, messages, collectives (any thread; only inside a batch), and requests
 *  posted or seen complete. */
void gw_ledger_count(uint64_t bytes, unsigned messages, unsigned collectives);
void gw_ledger_posted(int requests);
void gw_ledger_completed(int requests);

/** Seconds since gw_ledger_start. */
double gw_ledger_now(void);

#endif
