/** The time ledger of one rank's main thread: a stack of regions, and every tick of a batch charged
 *  to exactly one leaf phase. It listens through base/probe.h; MPI calls are charged by src/prof/
 *  pmpi*.c, which interpose MPI's profiling interface, so no strategy knows of it. Regions of other
 *  threads are not timed (they run beside the timeline); their messages are counted.
 *
 *  A region opened inside a batch is closed inside it, and one opened before a batch is closed
 *  before: everything else is a bug and aborts. Start the ledger before any request is posted. */
#ifndef GW_PROF_LEDGER_H
#define GW_PROF_LEDGER_H

#include "base/err.h"
#include "base/probe.h"

#include <stdbool.h>
#include <stdint.h>

/** How much is measured in a batch. */
typedef enum gw_profile {
    GW_PROFILE_OFF,    /* only its wall time, by two readings of the clock */
    GW_PROFILE_TIMERS, /* regions, MPI calls, exchanges */
    GW_PROFILE_FULL    /* also what costs more: regions within phases, hardware counters, the
                          memory split */
} gw_profile;

/** A count that was not taken. */
#define GW_UNCOUNTED UINT64_MAX

/** The part of a batch that was for exchanges along one dimension of a mesh. */
typedef struct gw_dim_cost {
    double comm_s; /* of the phases encode, decode, mpi_post, mpi_poll, mpi_wait */
    uint64_t bytes, messages;
} gw_dim_cost;

/** What one batch cost this rank. Not measured: seconds NaN, bytes and calls GW_UNCOUNTED,
 *  nivcsw and minflt negative. */
typedef struct gw_batch_cost {
    double start_s;            /* since gw_ledger_start */
    uint64_t start_ticks;      /* the same instant, by the clock */
    double wall_s;             /* from the mark of its begin to the mark of its end */
    double phase_s[GW_PHASES]; /* exclusive times; they add up to wall_s, from their own marks */
    double part_s[GW_PARTS];   /* time in the parts of phase_s; GW_PROFILE_FULL only */
    double coded[GW_CODINGS];  /* floats coded in the regions encode and decode; likewise */
    double inflight_s;         /* computation (base/probe.h) while a nonblocking
                                  operation was posted and not yet seen complete: an upper bound
                                  of the communication that hid there */
    uint64_t wire_bytes;       /* bytes passed to MPI by this rank, also by other threads since the
                                  last batch: point-to-point as sent; an MPI collective counts what
                                  the bandwidth-optimal algorithm sends per rank (allreduce
                                  2(P-1)/P n), since MPI does not tell */
    uint64_t messages;         /* point-to-point sends */
    uint64_t collectives;      /* MPI collectives called */
    gw_dim_cost dim[GW_EXCHANGE_DIMS]; /* they add up to those phases, wire_bytes and messages */
    uint64_t regions;    /* entered: what timing them costs, see gw_ledger_region_cost */
    long nivcsw, minflt; /* involuntary context switches, minor faults: prof/usage.h */
    double cpu_s;        /* CPU time of the main thread */
} gw_batch_cost;

/** Install the probe on the calling (main) thread; time 0 is now. Calibrate the clock if nobody has
 *  yet. A second start begins anew. The profile is GW_PROFILE_FULL. */
void gw_ledger_start(void);

/** Ranks of one process have a ledger each, which the functions here work on: that of the process,
 *  unless gw_ledger_use names another (NULL: that again). Main thread; free(). */
typedef struct gw_ledger gw_ledger;
gw_err gw_ledger_new(gw_ledger **out);
void gw_ledger_use(gw_ledger *l);

/** After gw_ledger_start, for a resumed run: continue the clock at `s` seconds. */
void gw_ledger_resume(double s);

/** Set how much to measure from now on. Main thread, between batches. Forgets what is in flight,
 *  since only a part of it was seen. GW_PROFILE_OFF removes the probe. */
void gw_ledger_set_profile(gw_profile profile);
gw_profile gw_ledger_profile(void);

/** Open a batch: what follows is charged to it, to GW_PHASE_OTHER outside regions. */
void gw_ledger_begin(void);

/** Close the batch and return its cost. */
void gw_ledger_end(gw_batch_cost *cost);

/** For pmpi*.c, any thread. counting: is a batch open? counts: does what the calling thread sends
 *  now count? Yes in a batch; between batches, if a progress thread sends it for an exchange that a
 *  batch began: the next batch counts it. count: add bytes, messages, collectives if so. */
bool gw_ledger_counting(void);
bool gw_ledger_counts(void);
void gw_ledger_count(uint64_t bytes, unsigned messages, unsigned collectives);

/** Get the number of MPI collectives along a dimension that this rank called inside batches since
 *  gw_ledger_start, and the bytes that they send by the model of prof/pmpi_coll.c. */
void gw_ledger_collectives(int dim, uint64_t *calls, uint64_t *bytes);

/** For pmpi*.c, any thread: report requests posted or seen complete; also between batches, since a
 *  request may span them. */
void gw_ledger_posted(int requests);
void gw_ledger_completed(int requests);

/** What was counted in batches since the process began, up to now. Any thread. */
typedef struct gw_ledger_sums {
    uint64_t wire_bytes, messages, collectives, batches;
} gw_ledger_sums;
gw_ledger_sums gw_ledger_totals(void);

/** Return the seconds since gw_ledger_start (and before: gw_ledger_resume), and the clock tick that
 *  they are counted from, modulo 2^64. */
double gw_ledger_now(void);
uint64_t gw_ledger_zero(void);

/** Return the cost of timing: seconds that one empty region takes, the least of some runs. Main
 *  thread, between batches, after gw_ledger_start. */
double gw_ledger_region_cost(void);

/** A listener to the timeline itself (the trace, the exchange log). Times are clock ticks. Any hook
 *  may be NULL. */
typedef struct gw_ledger_sink {
    /** A stretch of the main thread that belongs to one leaf phase; stretches follow each other. */
    void (*slice)(gw_phase phase, uint64_t start, uint64_t end);
    /** The main thread goes from one region into another, inside a batch; told before the clock is
     *  read on the way in and after it on the way out, so that its time is the outer region's. */
    void (*edge)(gw_phase ended, gw_phase begun);
    /** An action of a pipeline lasted from start to end, inside a batch. Main thread. */
    void (*action)(const gw_action *a, uint64_t start, uint64_t end);
    /** A batch ended; its slices were told before. */
    void (*batch)(uint64_t start, uint64_t end);
    /** Requests were in flight from start to end. Any thread, never two at once. What of it lies in
     *  a batch's slices of computation is the batch's inflight_s, to the tick. */
    void (*flight)(uint64_t start, uint64_t end);
    /** What the probe was told of an exchange (base/probe.h), between batches too. Any thread,
     *  never two at once. On the main thread BLOCK and UNBLOCK end a slice, which was told before:
     *  no slice lies on both sides of them. */
    void (*exchange)(gw_exchange_event event, const gw_exchange *x, uint64_t now);
    /** Another thread was encoding or decoding (its outermost region), beside the timeline. Told by
     *  that thread, never while another or `exchange` is. */
    void (*aside)(gw_phase phase, uint64_t start, uint64_t end);
} gw_ledger_sink;

enum { GW_LEDGER_SINKS = 4 };

/** Report to `sink` (kept), too, from now on; or no more, on any thread. Main thread, between
 *  batches. Listening twice changes nothing; more than GW_LEDGER_SINKS is a bug and aborts. */
void gw_ledger_listen(const gw_ledger_sink *sink);
void gw_ledger_unlisten(const gw_ledger_sink *sink);

#endif
