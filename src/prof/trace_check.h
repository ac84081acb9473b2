/** Checks a trace.json against what gradwire promises of one, and against batches.csv. The
 * promises:
 *
 *  - the object form of the Trace Event Format, with otherData's "format", "version" 2 and one
 *    "dropped_*" array a kind of event, which has a number a rank;
 *  - metadata before other events of a process: processes 0, 1, .. named "rank 0", "rank 1", ..;
 * each thread named, and of one process alone;
 *  - events "M", "X", "b", "e" and "C" with the keys that the format wants of each; per process in
 *    order of time; times finite, not negative and whole nanoseconds;
 *  - slices of a thread nest: none ends after the one in which it began;
 *  - an async begin has its end, of the same process, category, id and name, and not before it; the
 *    runs of one id do not overlap; the counter "exchanges" is the number of those that are open;
 *  - batches (category "batch") of a rank have consecutive steps, and its "phase" slices fill each
 *    batch to the nanosecond, one behind the other; the "codec" slices repeat its codec phases;
 *  - with batches.csv: for each batch of the trace there is a row, whose wall time and phases are
 *    the sums of the trace within 0.1% and 2 ns a slice (the two scale ticks apart, and print
 *    rounded), whose t_start_s is its begin within 1 us and ten of the largest clock_err_s, whose
 * inflight_s is what the "requests" slices cover of forward, backward and update, and whose
 * wire_bytes is the counter "wire". */
#ifndef GW_PROF_TRACE_CHECK_H
#define GW_PROF_TRACE_CHECK_H

#include "base/err.h"

#include <stdint.h>

enum { GW_TRACE_FAULTS = 10, GW_TRACE_FAULT = 256 };

typedef struct gw_trace_report {
    int ranks;
    int64_t batches, first_step, last_step; /* batches: of all ranks; steps 0: there is none */
    uint64_t slices, exchanges, counters;   /* events of these kinds; an exchange is a pair */
    uint64_t dropped;                       /* by full rings, all ranks and kinds */
    int64_t rows;                           /* of batches.csv that were compared; -1: none given */
    uint64_t faults;
    char fault[GW_TRACE_FAULTS][GW_TRACE_FAULT]; /* the first of them, a line each */
} gw_trace_report;

/** Check PATH, and compare it with the batches.csv at `batches` (NULL: with none). GW_OK whatever
 *  faults are found; GW_ERR_INPUT: a file cannot be read, or is no trace or table at all. */
gw_err gw_trace_check(const char *path, const char *batches, gw_trace_report *out);

#endif
