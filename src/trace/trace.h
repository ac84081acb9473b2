/** trace.json: the timeline for Perfetto (ui.perfetto.dev) or chrome://tracing, in Chrome's Trace
 *  Event Format. Each rank is a process, with a track each for the main thread's phases inside
 *  their batches, its codec, requests in flight, exchanges in flight (async events), waits for
 *  exchanges, a pipeline's actions, and counters, and one for each other thread that ran a codec.
 *  docs/measurement.md has the details, analysis/trace-check checks what is promised. One trace a
 *  process; the ledger feeds it into rings of fixed size: a full ring drops its oldest events and
 *  counts them. */
#ifndef GW_TRACE_TRACE_H
#define GW_TRACE_TRACE_H

#include "mpi/agree.h"
#include "prof/record.h"
#include "prof/sync.h"

#include <stddef.h>
#include <stdint.h>

/** Collective; after gw_ledger_start, between batches, while nothing is in flight. Keep the last
 *  `events` phases and batches, as many stretches with requests in flight, a quarter as many
 *  exchanges, waits, actions and codec runs of other threads, an eighth as many batches' counters:
 *  about 140 bytes an event. */
gw_err gw_trace_open(size_t events, MPI_Comm comm);

/** Set the next batch's number (1 at first; 0: it belongs to no step, like settling the replicas);
 *  later batches count on. Main thread, between batches. */
void gw_trace_step(int64_t step);

/** Rows come from `record`: gives its counters tracks as well. After gw_trace_open. */
void gw_trace_counters(const gw_record *record);

/** Figures of the last batch for the counter tracks, without NaNs. Does nothing if no trace is
 *  open. */
void gw_trace_row(const gw_batch_row *row);

/** Collective, between batches, once no thread communicates: rank 0 writes DIR/trace.json (dir is
 *  used at rank 0 only) with the times of `sync`. The trace continues. Needs about 100 bytes an
 *  event meanwhile. */
gw_err gw_trace_write(const char *dir, const gw_sync *sync, MPI_Comm comm);

/** Stop listening and free the rings; does nothing if no trace is open. */
void gw_trace_close(void);

#endif
