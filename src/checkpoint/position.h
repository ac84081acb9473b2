/** Where a run is, and the file from which one rank resumes. */
#ifndef GW_CHECKPOINT_POSITION_H
#define GW_CHECKPOINT_POSITION_H

#include "nn/shard.h"
#include "step/checks.h"
#include "step/step.h"

/** Whole 8-byte fields: it is written as it lies in memory. */
typedef struct gw_position {
    int64_t step;     /* optimizer steps done */
    int64_t epoch;    /* 1.. */
    int64_t batch;    /* of that epoch, done; all of them: its end has not come yet */
    int64_t samples;  /* of that epoch, over all ranks */
    double loss_sum;  /* of that epoch, this rank's */
    int64_t left_out; /* of that epoch, samples of this rank in steps that --on-nan skip left out */
    gw_checks_mark checks;
    double elapsed_s;    /* since the first step, over all starts of the run */
    double train_s;      /* inside batches, this rank's */
    uint64_t wire_bytes; /* sent in batches and settlings, this rank's */
} gw_position;

#define GW_RANK_MAGIC "GWRANK01"
enum { GW_RANK_VERSION = 1 };

/** What a rank's file holds. Saving, it lies where *r points to; loading, it is allocated, and
 *  gw_rank_state_free frees it. */
typedef struct gw_rank_state {
    gw_position at;
    size_t whole;                     /* floats of the whole model's arena */
    gw_block blocks[GW_SHARD_BLOCKS]; /* of it, this rank's; one that is all of it: a whole model */
    int n_blocks;
    size_t n; /* floats of the rank's own arena */
    float *params;
    gw_vectors vectors; /* the optimizer's state, and how many updates it is of */
    int64_t updates;
    gw_owned owned;
    gw_io_memory exchange, statistics; /* what gw_inside_state and gw_codec_stats_state carry */
} gw_rank_state;

/** Set the sizes and blocks of a rank that holds this part of the model; no vectors. */
void gw_rank_state_shape(gw_rank_state *r, const gw_shard *shard);

/** Whether two have the same blocks. */
bool gw_rank_state_alike(const gw_rank_state *a, const gw_rank_state *b);

/** DIR/rank-RRRRR.gw; the figures that the manifest wants. Makes no MPI call. */
gw_err gw_rank_state_save(gw_rank_state *r, const char *dir, int rank, uint64_t *bytes,
                          uint32_t *crc32);

/** Read DIR/rank-RRRRR.gw, of `bytes` bytes, of a model with `whole` parameters; GW_ERR_INPUT where
 *  it is damaged or another model's. */
gw_err gw_rank_state_load(gw_rank_state *r, const char *dir, int rank, uint64_t bytes,
                          size_t whole);
void gw_rank_state_free(gw_rank_state *r);

#endif
