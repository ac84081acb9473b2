/** Hardware counters besides the ledger: event groups counted per OpenMP thread and summed over a
 *  rank, one group a batch in turn, and the memory-bound part of computation derived from them. See
 *  docs/measurement.md for all definitions.
 *
 *  Each thread counts with its own set. The main thread's is read at the edges of computing phases
 *  if a read is not a system call and all reads stay below GW_COUNTERS_SHARE of a batch; otherwise,
 *  as always on other threads, only at the edges of the batch. */
#ifndef GW_COUNTERS_COUNTERS_H
#define GW_COUNTERS_COUNTERS_H

#include "counters/group.h"
#include "prof/batch_row.h"

typedef struct gw_counters gw_counters;

#define GW_COUNTERS_READ_S 250e-9 /* a longer read counts as a system call */
#define GW_COUNTERS_SHARE  0.005  /* share of a batch that its reads may take */

/** The outcome for a requested event. */
typedef struct gw_counter_event {
    char group[GW_GROUP_NAME], name[GW_EVENT_NAME];
    char papi[GW_EVENT_NAME]; /* what it counts; "": nothing */
    char reason[256];         /* why not; "" when it is counted */
} gw_counter_event;

typedef struct gw_counters_report {
    int events;
    gw_counter_event event[GW_GROUPS * GW_GROUP_EVENTS];
    bool memory;      /* the memory-bound part is known */
    gw_bound bound;   /* or only a bound of it */
    char reason[400]; /* why memory is false; "" when it is true */
} gw_counters_report;

/** Choose and check the events of `choice` (copied) and start counting on this thread and on
 *  `threads` - 1 other OpenMP threads. *out is NULL if nothing counts: *report says why; an error
 *  (GW_ERR_UNSUPPORTED) only if choice->named. Main thread, between batches, after gw_clock_start;
 *  one at a time. */
gw_err gw_counters_open(gw_counters **out, gw_counters_report *report,
                        const gw_counter_source *source, const gw_group_choice *choice,
                        int threads);

/** Stop on all threads; c may be NULL. */
void gw_counters_close(gw_counters *c);

/** The columns of gw_batch_counts.counter: their number and names, which live as long as c. */
int gw_counters_columns(const gw_counters *c, const char *names[GW_COUNTERS]);

/** Right before gw_ledger_begin, and right after gw_ledger_end, which set `cost`: what was counted.
 *  c may be NULL. Unknown values are NaN. */
void gw_counters_begin(gw_counters *c);
gw_batch_counts gw_counters_end(gw_counters *c, const gw_batch_cost *cost);

/** Between batches: restart with the first group and without sums. c may be NULL. */
void gw_counters_forget(gw_counters *c);

/** State of the counting. */
typedef struct gw_counters_state {
    double read_s, edge_s; /* one read on the main thread; both edges of a batch on all threads;
                              minimum of some runs */
    bool regions;          /* reads at the edges of phases; false: of batches */
    char why[160];         /* why */
    int64_t lost;          /* batches whose counts could not be used */
    char failed[256];      /* why counting ended early; "": it did not */
} gw_counters_state;
void gw_counters_tell(const gw_counters *c, gw_counters_state *out);

/** Sums over the batches so far: for group g below gw_counters_groups, `values` of each event (NaN:
 *  not counted) over *batches batches. */
int gw_counters_groups(const gw_counters *c);
const gw_group *gw_counters_totals(const gw_counters *c, int g, double values[GW_GROUP_EVENTS],
                                   int64_t *batches);

/** True if each event that `e` reads counts in group g. */
bool gw_counters_usable(const gw_counters *c, int g, const gw_expr *e);

#endif
