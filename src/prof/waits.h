/** Tells waiting from transfer: between batches it compares the log of exchanges (prof/exchange.h)
 *  with those of the other ranks (prof/arrival.h) on a common clock (prof/sync.h), and completes
 *  the rows of batches.csv. See docs/measurement.md. */
#ifndef GW_PROF_WAITS_H
#define GW_PROF_WAITS_H

#include "prof/exchange.h"
#include "prof/record.h"
#include "prof/sync.h"

typedef struct gw_waits gw_waits;

/** collectives.csv: one row per rank and exchange. */
extern const gw_table gw_waits_collectives;

/** The cost of one rank's lateness, over the recorded batches. NaN: not known. */
typedef struct gw_waits_rank {
    double last;     /* share of the exchanges with a last rank at which it was the last */
    double caused_s; /* seconds that the others, together, waited for it */
} gw_waits_rank;

/** Open, with the log of exchanges: after gw_ledger_start, between batches. The main thread begins
 *  and ends the log around each batch that becomes a row, and makes it forget a rehearsal, on all
 *  ranks at the same step. `rows`: most batches between two flushes. files not NULL (on all ranks;
 *  rank 0's is used, and must outlive this): write collectives.csv, too. `along`: for each
 *  dimension (gw_exchange.dim) the ranks that lie along it with this one; must outlive it; NULL:
 *  all ranks are one dimension. Collective. */
gw_err gw_waits_open(gw_waits **out, gw_rows *files, int rows, const MPI_Comm *along,
                     MPI_Comm comm);

/** Fill wait_skew_s, transfer_s, clock_err_s and the start of rows [0, n), the batches since the
 *  last flush, in order; write collectives.csv. *room, the same on all ranks: how many batches may
 *  come before the next flush, at most `rows`. Collective, between batches. */
gw_err gw_waits_flush(gw_waits *w, gw_batch_row *rows, int64_t n, int *room);

const gw_sync *gw_waits_sync(const gw_waits *w);

/** After the last flush: get ranks[] of all ranks, without the first GW_RECORD_WARMUP steps of the
 *  run if `warm`, and the number of exchanges that did not fit into the log, on any rank.
 *  Collective. */
gw_err gw_waits_totals(const gw_waits *w, bool warm, gw_waits_rank *ranks, uint64_t *dropped);

/** Let rank 0 give collectives.csv its name. Frees w in any case. Collective. */
gw_err gw_waits_close(gw_waits *w);

/** Free without a collective, the clocks' communicators included; w may be NULL. */
void gw_waits_abandon(gw_waits *w);

#endif
