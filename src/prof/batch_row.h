/** A row of batches.csv: what is known of one batch on one rank. */
#ifndef GW_PROF_BATCH_ROW_H
#define GW_PROF_BATCH_ROW_H

#include "prof/ledger.h"

/** COMPUTE (forward, backward and update) split into core and memory time, by each source apart;
 *  NaN: that source is absent. See docs/measurement.md. */
typedef struct gw_batch_split {
    double core_ctr_s, memory_ctr_s;                /* hardware counters; they add up to COMPUTE */
    double core_twin_s, memory_twin_s;              /* kernels that have a cache-resident twin */
    double memory_codec_ctr_s, memory_codec_twin_s; /* the memory part of encode and decode */
    double core_model_lo_s, core_model_hi_s, memory_model_lo_s, memory_model_hi_s; /* GEMMs */
} gw_batch_split;

/** Where a split's best figures come from. */
typedef enum gw_split_source { GW_SPLIT_NONE, GW_SPLIT_TWIN_MODEL, GW_SPLIT_CTR } gw_split_source;

/** Columns of a run's own choice: hardware counters. */
enum { GW_COUNTERS = 8, GW_COUNTER_NAME = 96 };

typedef struct gw_batch_row {
    int rank, epoch; /* epoch: 1..; rank: set by gw_record_push */
    int64_t step;    /* 1.. over the whole run */
    int samples;     /* local */
    double loss;     /* mean over the local samples; NaN (blank) when there are none */
    gw_batch_cost cost;
    gw_batch_split split;
    gw_split_source source;
    double wait_skew_s, transfer_s; /* of mpi_wait: before, after the last rank's arrival; NaN: not
                                       known */
    double clock_err_s;             /* between ranks; NaN: not known */
    uint64_t logical_bytes;         /* float32 bytes of the spans exchanged */
    double counter[GW_COUNTERS];    /* NaN: not counted in this batch */
} gw_batch_row;

/** An empty row: every figure that somebody may leave out is NaN. */
gw_batch_row gw_batch_row_blank(void);

/** False: the batch is contaminated by the machine, not to be used in a measurement. It was
 *  preempted, or more than 2% of it went by off the CPU while it did not wait in MPI or write a
 *  checkpoint. */
bool gw_batch_clean(const gw_batch_cost *cost);

#endif
