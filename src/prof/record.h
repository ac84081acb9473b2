/** batches.csv: one row per rank and step. Rows go to a preallocated buffer while batches run;
 * between epochs rank 0 gathers and writes them, so a batch never waits for a disk. */
#ifndef GW_PROF_RECORD_H
#define GW_PROF_RECORD_H

#include "base/rows.h"
#include "base/steady.h"
#include "mpi/agree.h"
#include "prof/batch_row.h"

typedef struct gw_record gw_record;

enum { GW_RECORD_WARMUP = 10 }; /* first steps, left out in a run of more than twice as many */

/** The cost of a step of the run, after warm-up: means over the steps (base/steady.h) of the mean
 *  over the ranks, all over the same steps. NaN: not measured. */
typedef struct gw_batch_summary {
    int64_t batches;     /* steps after warm-up */
    gw_steady_kept kept; /* the steps that the figures are means over */
    int64_t earlier;     /* steps of earlier starts that they could include */
    union {
        struct {
            double wall_s, inflight_s;
            double waiting_s, transfer_s; /* of steps where all ranks know them */
            double phase_s[GW_PHASES];
            gw_batch_split split;                /* of the ranks and steps that have the figure */
            double core_least_s, memory_least_s; /* by twins and model, of all ranks and steps: what
                                                    has neither is in none of the two */
            double dim_comm_s[GW_EXCHANGE_DIMS]; /* as gw_dim_cost has it; and of waiting_s what */
            double
                dim_waiting_s[GW_EXCHANGE_DIMS]; /* was along each dimension: pipe's, the bubble */
            double wire_bytes, logical_bytes;    /* of a rank */
            double dim_bytes[GW_EXCHANGE_DIMS];  /* likewise; all four by dimension: NaN where rows
                                                    lack their columns */
            double dim_messages[GW_EXCHANGE_DIMS];
        };
        double
            figure[8 + 4 * GW_EXCHANGE_DIMS + GW_PHASES + sizeof(gw_batch_split) / sizeof(double)];
    };
    gw_split_source source; /* the best of any row */
    gw_steady_doubt doubt;  /* about wall_s */
    double interrupted;     /* share of all steps after warm-up in which some rank was */
} gw_batch_summary;

/** Open; no file is written before gw_record_begin. `rows`: capacity between two flushes. `mesh`:
 *  rows have the columns of a mesh. `comm` is kept, not copied: it must outlive the record.
 *  Collective. */
gw_err gw_record_open(gw_record **out, int64_t rows, bool mesh, MPI_Comm comm);

/** Say how the steps repeat, if those of the warm-up count (there are few) and if they do not;
 *  before gw_record_begin and the first flush. Rank 0's is used. */
void gw_record_repeats(gw_record *r, const gw_repeat of[2]);

/** Name the columns of gw_batch_counts.counter, before gw_record_begin and the first flush; copied;
 *  n <= GW_COUNTERS. The same on all ranks. */
void gw_record_counters(gw_record *r, const char *const *names, int n);

/** Check that gw_record_begin can continue the batches.csv that exists: see gw_rows_check. Not
 *  collective. */
gw_err gw_record_check(const gw_record *r, gw_rows *files);

/** Before the first flush: let rows go to batches.csv of `files` (rank 0's is used and must outlive
 *  the record; NULL: no file). The summary includes rows of earlier starts of the run with as many
 *  ranks. GW_ERR_INPUT: the file has other columns, or is damaged. Collective. */
gw_err gw_record_begin(gw_record *r, gw_rows *files);

/** Return the name of the i-th counter; NULL: there is none. */
const char *gw_record_counter(const gw_record *r, int i);

/** Add this rank's row; never allocates, never does I/O. A full buffer is GW_ERR_INTERNAL. */
gw_err gw_record_push(gw_record *r, const gw_batch_row *row);

/** Return this rank's *n rows since the last flush, in order of step, to fill in what is known only
 *  between batches. Valid until the next push or flush. */
gw_batch_row *gw_record_rows(gw_record *r, int64_t *n);

/** Gather the rows at rank 0 and write them, in order of step, then rank. Every rank has pushed its
 *  rows in order of step, and the same steps as the others. Collective. */
gw_err gw_record_flush(gw_record *r);

/** On rank 0, summarise all flushed rows, without the warm-up; zeros and NaN if nothing is left,
 *  and always on other ranks. */
void gw_record_summary(const gw_record *r, gw_batch_summary *out);

/** One rank's mean step. NaN: not measured in some step. */
typedef struct gw_record_rank {
    double wall_s, compute_s, waiting_s, transfer_s;
    double own_s;    /* of wall_s, not in MPI */
    double passes_s; /* of compute_s, forward and backward */
} gw_record_rank;

/** Rank 0: out[] of all ranks, over the flushed rows (those of an earlier start, whose ranks may
 * have been others, left out), without the first GW_RECORD_WARMUP steps of the run if `warm`; NaN
 * when nothing is left. */
void gw_record_ranks(const gw_record *r, bool warm, gw_record_rank *out);

/** Flush; rank 0 gives the file its name. Frees r in any case. Collective. */
gw_err gw_record_close(gw_record *r);

/** Free r without a collective; its file is left to the owner of `files`. r may be NULL. */
void gw_record_abandon(gw_record *r);

#endif
