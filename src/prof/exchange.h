/** The log of exchanges (base/probe.h): when each run of a schedule arrived, blocked the main
 *  thread and was done, and the stretches of mpi_wait in between, so that waiting before and after
 *  an instant can be told apart. One log per process, of fixed size; it listens to the ledger and
 *  neither allocates nor writes inside a batch. What does not fit is counted, and its row is marked
 *  as lost: no figure is better than a wrong one. */
#ifndef GW_PROF_EXCHANGE_H
#define GW_PROF_EXCHANGE_H

#include "base/err.h"
#include "base/probe.h"

#include <stdbool.h>
#include <stdint.h>

/** One exchange; times are clock ticks, 0 for what has not happened yet. */
typedef struct gw_exchange_entry {
    gw_exchange x;
    int64_t step;                 /* the batch that it started in, or before it on another thread;
                                     0: none that is recorded */
    uint64_t start, done;         /* arrived; complete */
    uint64_t block, unblock;      /* main thread: first blocked, last released */
    bool resolved;                /* the following are known */
    double first_s, latest_s;     /* common clock: the first and the last arrival of a rank */
    int last_rank;                /* the rank that arrived last; -1: too close to tell */
    double waiting_s, transfer_s; /* of the stretches seen so far */
} gw_exchange_entry;

/** A stretch of mpi_wait during which the main thread was blocked for an exchange. */
typedef struct gw_exchange_stretch {
    int32_t entry, row; /* row: the batch, counted from the last clear */
    uint64_t start, end;
} gw_exchange_stretch;

/** The contents of the log. The entries [0, n_entries) stay in place until the clear. Another
 *  thread may still add more, and set `done` in entries that are not `finished`. */
typedef struct gw_exchange_view {
    gw_exchange_entry *entries;
    const bool *finished; /* [entry]: it is done */
    int n_entries;
    const gw_exchange_stretch *stretches;
    int n_stretches;
    const bool *lost; /* [row]: something of it did not fit */
    int rows;
    uint64_t dropped; /* exchanges that did not fit, since the log was opened */
} gw_exchange_view;

/** Open, after gw_ledger_start, between batches. `rows`: most batches between two clears. */
gw_err gw_exchange_log_open(int rows);

/** Close; without an open log, do nothing. */
void gw_exchange_log_close(void);

/** Main thread, around each batch that becomes a row; what happens outside belongs to no row. */
void gw_exchange_log_begin(int64_t step);
void gw_exchange_log_end(void);

/** View the log, between batches. */
gw_exchange_view gw_exchange_log_view(void);

/** Forget all stretches, and the exchanges that were finished in the last view or, while nothing is
 *  in flight, `all`. Between batches. */
void gw_exchange_log_clear(bool all);

/** Return how many rows may come before the next clear, if each has as many exchanges as the
 *  fullest row so far, with as much room again to spare; at least 1, at most `rows`. */
int gw_exchange_log_room(void);

#endif
