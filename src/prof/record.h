/** batches.csv: one row a rank and step. Rows go to a preallocated buffer while batches run;
 * between epochs rank 0 gathers and writes them, so a batch never waits for a disk. */
#ifndef GW_PROF_RECORD_H
#define GW_PROF_RECORD_H

#include "base/agree.h"
#include "prof/ledger.h"

typedef struct gw_record gw_record;

typedef struct gw_batch_row {
    int epoch;    /* 1.. */
    int64_t step; /* 1.. over the whole run */
    int samples;  /* local */
    double loss;  /* mean over the local samples; NaN (blank) when there are none */
    gw_batch_cost cost;
    uint64_t logical_bytes; /* float32 bytes of the spans exchanged */
} gw_batch_row;

/** Medians over the run's batches after warm-up, of the slowest rank's view; see gw_record_summary.
 */
typedef struct gw_batch_summary {
    int64_t batches;           /* that the medians are over */
    double wall_s;             /* median over steps of the longest wall over the ranks */
    double phase_s[GW_PHASES]; /* median over steps of the mean over the ranks */
    double inflight_s;
    double wire_bytes, logical_bytes; /* mean per step and rank */
} gw_batch_summary;

/** Collective. dir NULL: keep no file (the summary still works). `rows`: capacity between two
 *  flushes. */
gw_err gw_record_open(gw_record **out, const char *dir, int64_t rows, MPI_Comm comm);

/** Add this rank's row; never allocates, never does I/O. A full buffer is GW_ERR_INTERNAL. */
gw_err gw_record_push(gw_record *r, const gw_batch_row *row);

/** Collective: gather the rows at rank 0 and write them, in order of step, then rank. */
gw_err gw_record_flush(gw_record *r);

/** Rank 0: summary over all flushed rows (the first `warmup` steps left out). */
void gw_record_summary(const gw_record *r, int64_t warmup, gw_batch_summary *out);

/** Collective: flush; rank 0 gives the file its name. */
gw_err gw_record_close(gw_record *r);

/** Throw everything away without a collective. */
void gw_record_abandon(gw_record *r);

#endif
