/** A row of batches.csv: what is known about one batch on one rank. Only this module fills it, from
 *  parts that it gets as values; missing figures are NaN. */
#ifndef GW_PROF_BATCH_ROW_H
#define GW_PROF_BATCH_ROW_H

#include "base/table.h"
#include "prof/ledger.h"

/** COMPUTE (base/probe.h) split into core and memory time, by each source separately; NaN: that
 *  source is absent. See docs/measurement.md. */
typedef struct gw_batch_split {
    double core_ctr_s, memory_ctr_s;                /* hardware counters; they add up to COMPUTE */
    double core_twin_s, memory_twin_s;              /* kernels with a cache-resident twin */
    double memory_codec_ctr_s, memory_codec_twin_s; /* the memory part of encode and decode */
    double core_model_lo_s, core_model_hi_s, memory_model_lo_s, memory_model_hi_s; /* GEMMs */
} gw_batch_split;

/** Where a split's best figures come from. */
typedef enum gw_split_source { GW_SPLIT_NONE, GW_SPLIT_TWIN_MODEL, GW_SPLIT_CTR } gw_split_source;

enum {
    GW_COUNTERS = 8, /* most columns of a run's own choice: hardware counters */
    GW_COUNTER_NAME = 96,
    GW_BATCH_COLUMNS = 43, /* without these, and without those of a mesh: */
    GW_MESH_COLUMNS = 15
};

/** A batch's hardware counters. */
typedef struct gw_batch_counts {
    double core_s, memory_s, memory_codec_s;
    double counter[GW_COUNTERS];
} gw_batch_counts;

extern const gw_batch_counts gw_batch_no_counts; /* all NaN */
extern const gw_batch_split gw_batch_no_split;

/** Where a rank of a mesh is: coordinates along data, pipe, tensor. */
typedef struct gw_batch_place {
    int replica, stage, shard;
} gw_batch_place;

/** What is known about a batch at its end. */
typedef struct gw_batch_parts {
    int rank, epoch; /* epoch: 1.. */
    gw_batch_place place;
    int64_t step;           /* 1.. over the whole run */
    int samples;            /* local */
    double injected_s;      /* part of data: how long --inject-skew delayed the rank */
    bool slept;             /* time passed in place of computing: a replay, or a virtual clock */
    double loss_sum;        /* over these samples */
    uint64_t logical_bytes; /* float32 bytes of the spans exchanged */
    gw_batch_cost cost;
    gw_batch_counts counts;
    gw_batch_split split; /* by twins and model */
} gw_batch_parts;

/** What is known about it once the ranks' exchanges have been compared. */
typedef struct gw_batch_wait {
    double start_s; /* by the common clock */
    /* the part of mpi_wait before the last rank's arrival, by the dimension of the exchange */
    double waiting_s[GW_EXCHANGE_DIMS];
    double clock_err_s; /* between ranks */
} gw_batch_wait;

typedef struct gw_batch_row {
    int rank, epoch;
    int64_t step;
    int samples;
    double loss; /* mean over the samples; NaN when there are none */
    gw_batch_cost cost;
    gw_batch_split split;
    gw_split_source source;
    gw_batch_place place;
    double injected_s;
    double wait_skew_s, transfer_s;  /* of mpi_wait: before, after the last rank's arrival */
    double skew_s[GW_EXCHANGE_DIMS]; /* wait_skew_s by dimension */
    double clock_err_s;
    uint64_t logical_bytes;
    /* 1: preempted, or off the CPU for more than 2% of it while it did not wait in MPI or write a
     * checkpoint; -1: not known, as for a step that is slept */
    long interrupted;
    double counter[GW_COUNTERS];
} gw_batch_row;

gw_batch_row gw_batch_row_of(const gw_batch_parts *p);
void gw_batch_row_wait(gw_batch_row *row, const gw_batch_wait *wait);

/** The table of such rows: the columns in the order of the file. Seconds unless the name says
 *  otherwise. It stays where it is made. */
typedef struct gw_batch_table {
    gw_table table;
    gw_column column[GW_BATCH_COLUMNS + GW_MESH_COLUMNS + GW_COUNTERS];
    int fixed; /* columns before the counters */
    char counter[GW_COUNTERS][GW_COUNTER_NAME];
} gw_batch_table;

#define GW_BATCHES "batches.csv"

/** Make the table, with columns for n <= GW_COUNTERS counters; the names are copied. `mesh`: with
 *  those of places and dimensions, too. */
void gw_batch_table_make(gw_batch_table *t, bool mesh, const char *const *counter, int n);

#endif
