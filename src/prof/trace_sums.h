/** What trace_check.c adds up of a trace, for trace_compare.c to hold against batches.csv. */
#ifndef GW_PROF_TRACE_SUMS_H
#define GW_PROF_TRACE_SUMS_H

#include "base/probe.h"
#include "prof/trace_check.h"

#include <stdbool.h>
#include <stddef.h>

/** One batch of one rank; nanoseconds. */
typedef struct gw_trace_sums {
    int64_t step;
    uint64_t start, wall, phase[GW_PHASES];
    uint64_t inflight; /* of forward, backward and update, beside a "requests" slice */
    uint64_t slices;   /* that were added */
    double wire;       /* counter; NaN: the trace has none */
    bool in_table;     /* batches.csv has its row */
} gw_trace_sums;

/** The batches of a rank, in order of steps. */
typedef struct gw_trace_batches {
    gw_trace_sums *at;
    size_t n, room;
    uint64_t flights_from; /* requests are known from here on (some may have been dropped); ns */
} gw_trace_batches;

/** Keep a fault of the report; `ns` UINT64_MAX, `rank` and `step` -1: not to be told. */
void gw_trace_fault(gw_trace_report *report, uint64_t line, int rank, int64_t step, uint64_t ns,
                    const char *fmt, ...) __attribute__((format(printf, 6, 7)));

/** Hold the sums of ranks[0..n) against the table at `path`. */
gw_err gw_trace_compare(const char *path, gw_trace_batches *ranks, int n, gw_trace_report *report);

#endif
