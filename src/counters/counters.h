/** Hardware counters beside the ledger: event groups counted per OpenMP thread, summed over a rank,
 * a group a batch in turn, and the memory-bound part of computation that follows from them. All of
 * it is defined in docs/measurement.md.
 *
 *  Each thread counts with a set of its own. The main thread's is read where a computing phase
 * begins or ends, if a read is no system call and all of them together stay below GW_COUNTERS_SHARE
 * of a batch; else, as on the other threads always, at the edges of the batch only. */
#ifndef GW_COUNTERS_COUNTERS_H
#define GW_COUNTERS_COUNTERS_H

#include "counters/group.h"
#include "prof/batch_row.h"

typedef struct gw_counters gw_counters;

#define GW_COUNTERS_READ_S 250e-9 /* a longer read is taken for a system call */
#define GW_COUNTERS_SHARE  0.005  /* of a batch, that reads within it may take */

/** What became of an event that was wanted. */
typedef struct gw_counter_event {
    char group[GW_GROUP_NAME], name[GW_EVENT_NAME];
    char papi[GW_EVENT_NAME]; /* what is counted; "": nothing */
    char reason[256];         /* why not; "" when it is counted */
} gw_counter_event;

typedef struct gw_counters_report {
    int events;
    gw_counter_event event[GW_GROUPS * GW_GROUP_EVENTS];
    bool memory;      /* the memory-bound part can be told */
    gw_bound bound;   /* or a bound of it */
    char reason[400]; /* why memory is false; "" when it is true */
} gw_counters_report;

/** Choose and check the events of `choice` (copied) and start counting on this thread and on
 *  `threads` - 1 more of OpenMP's. *out is NULL where nothing counts: *report says why, and it is
 * no error unless choice->named (GW_ERR_UNSUPPORTED). Main thread, between batches, after
 *  gw_clock_start; one at a time. */
gw_err gw_counters_open(gw_counters **out, gw_counters_report *report,
                        const gw_counter_source *source, const gw_group_choice *choice,
                        int threads);

/** Stop, on every thread; c may be NULL. */
void gw_counters_close(gw_counters *c);

/** The columns of gw_batch_counts.counter: their number and names, which live as long as c. */
int gw_counters_columns(const gw_counters *c, const char *names[GW_COUNTERS]);

/** Right before gw_ledger_begin, and right after gw_ledger_end, which told `cost`: what was counted.
 *  c may be NULL. */
void gw_counters_begin(gw_counters *c);
gw_batch_counts gw_counters_end(gw_counters *c, const gw_batch_cost *cost);

/** Between batches: begin anew, with the first group and without sums. c may be NULL. */
void gw_counters_forget(gw_counters *c);

/** How it went. */
typedef struct gw_counters_state {
    double read_s, edge_s; /* one read on the main thread; both edges of a batch, all threads; the
                              least of some runs */
    bool regions;          /* read at the edges of phases; false: of batches */
    char why[160];         /* the reason for that */
    int64_t lost;          /* batches whose counts could not be used */
    char failed[256];      /* why counting ended before the run; "": it did not */
} gw_counters_state;
void gw_counters_tell(const gw_counters *c, gw_counters_state *out);

/** Sums over the batches so far: of group g of those in use (g < the number returned), `values` of
 *  each event (NaN: not counted). *batches: how many counted. */
int gw_counters_groups(const gw_counters *c);
const gw_group *gw_counters_totals(const gw_counters *c, int g, double values[GW_GROUP_EVENTS],
                                   int64_t *batches);

/** True if each event that `e` reads counts in group g. */
bool gw_counters_usable(const gw_counters *c, int g, const gw_expr *e);

#endif
