/** trace.json: the timeline itself, for Perfetto (ui.perfetto.dev) or chrome://tracing, in Chrome's
 *  Trace Event Format. A process a rank; thread 0 shows the main thread's phases inside their
 *  batches, thread 1 when communication was in flight. One trace a process, fed by the ledger into
 *  rings of fixed size: when they are full the oldest events go, and are counted. */
#ifndef GW_PROF_TRACE_H
#define GW_PROF_TRACE_H

#include "base/agree.h"

#include <stddef.h>
#include <stdint.h>

/** Collective; after gw_ledger_start, between batches, while nothing is in flight. Keep the last
 *  `events` phases and batches, and as many stretches of communication (64 bytes an event). Time 0
 *  of a host is when the first of its ranks left a barrier of `comm`; the ranks of a host share
 *  one clock. */
gw_err gw_trace_open(size_t events, MPI_Comm comm);

/** The number of the next batch (1 at first); batches count on from there. */
void gw_trace_step(int64_t step);

/** Collective, between batches, once no thread communicates any more: rank 0 writes
 *  DIR/trace.json (dir matters at rank 0 only). The trace goes on. */
gw_err gw_trace_write(const char *dir, MPI_Comm comm);

/** Stop listening and free the rings; without an open trace nothing happens. */
void gw_trace_close(void);

#endif
