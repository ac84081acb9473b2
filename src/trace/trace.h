/** trace.json: the timeline itself, for Perfetto (ui.perfetto.dev) or chrome://tracing, in Chrome's
 *  Trace Event Format. A process a rank, with a track each for the main thread's phases inside
 * their batches, its codec, requests in flight, exchanges in flight (async events), the waits for
 * one, and counters; one more for each other thread that ran a codec. docs/measurement.md has the
 *  details, analysis/trace-check what is promised. One trace a process, fed by the ledger into
 * rings of fixed size: when one is full its oldest events go, and are counted. */
#ifndef GW_TRACE_TRACE_H
#define GW_TRACE_TRACE_H

#include "mpi/agree.h"
#include "prof/record.h"
#include "prof/sync.h"

#include <stddef.h>
#include <stdint.h>

/** Collective; after gw_ledger_start, between batches, while nothing is in flight. Keep the last
 *  `events` phases and batches, as many stretches with requests in flight, a quarter as many
 *  exchanges, waits and codec runs of other threads, an eighth as many batches' counters: about 130
 *  bytes an event. */
gw_err gw_trace_open(size_t events, MPI_Comm comm);

/** The number of the next batch (1 at first; 0: it belongs to no step, as settling the replicas
 *  does); batches count on from there. Main thread, between batches. */
void gw_trace_step(int64_t step);

/** The rows come from `record`: its counters have tracks, too. After gw_trace_open. */
void gw_trace_counters(const gw_record *record);

/** The figures of the batch that ended last, for the counter tracks; what is NaN is left out.
 *  Without an open trace nothing happens. */
void gw_trace_row(const gw_batch_row *row);

/** Collective, between batches, once no thread communicates any more: rank 0 writes
 *  DIR/trace.json (dir matters at rank 0 only), with the times of `sync`. The trace goes on. Needs
 *  about 100 bytes an event for the while. */
gw_err gw_trace_write(const char *dir, const gw_sync *sync, MPI_Comm comm);

/** Stop listening and free the rings; without an open trace nothing happens. */
void gw_trace_close(void);

#endif
