/** One clock for all ranks: rank 0's, in seconds since its ledger started. Ranks of a host read one
 *  counter, so their offset is 0 and the error is the clock's resolution. Between hosts offset and
 *  drift are measured: the first rank of each host exchanges some tens of messages with rank 0, and
 *  the reply of the quickest exchange was written within it, at its middle give or take half of it
 *  (Cristian, "Probabilistic clock synchronization", Distributed Computing 3, 1989). An instant
 *  between two such looks is interpolated linearly, which takes the clocks' drift out (Doleschal,
 *  Knuepfer, Mueller, Nagel, "Internal timer synchronization for parallel event tracing",
 *  EuroPVM/MPI 2008); hosts first, then their ranks, as in Hunold and Carpen-Amarie, "Hierarchical
 *  clock synchronization in MPI", CLUSTER 2018. A look costs the hosts one after another some ten
 *  round trips each, whatever the number of ranks. */
#ifndef GW_PROF_SYNC_H
#define GW_PROF_SYNC_H

#include "mpi/agree.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct gw_sync gw_sync;

/** For tests. */
typedef struct gw_sync_setup {
    uint64_t (*ticks)(void); /* another clock; NULL: gw_clock_ticks */
    bool apart;              /* take every rank for a host of its own */
} gw_sync_setup;

/** Look for the first time, after gw_ledger_start. `setup` may be NULL. Collective. */
gw_err gw_sync_open(gw_sync **out, const gw_sync_setup *setup, MPI_Comm comm);

/** Look again, between batches. Instants between two looks are known best; keep the looks close
 *  where it matters. All looks of a run are kept or, if very many, an even choice. Collective. */
gw_err gw_sync_again(gw_sync *s);

/** Return the common clock's seconds at this rank's clock tick `ticks`. Any instant: outside the
 *  looks the rate is that of the nearest. */
double gw_sync_seconds(const gw_sync *s, uint64_t ticks);

/** Return the greatest difference, in seconds, that the clocks of two ranks may have had since the
 *  look before the last: the same on all ranks. */
double gw_sync_error(const gw_sync *s);

/** s may be NULL. Collective unless it is. */
void gw_sync_close(gw_sync *s);

/** A look: this rank's clock and the common one at the same instant. */
typedef struct gw_sync_point {
    uint64_t ticks;
    double seconds, error_s;
} gw_sync_point;

/** Seconds of the common clock at `ticks` by looks at[0..n), n > 0, in order of time; a single one
 *  goes on at `tick_s` seconds a tick. */
double gw_sync_interpolate(const gw_sync_point *at, int n, double tick_s, uint64_t ticks);

#endif
