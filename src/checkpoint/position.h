/** A run's position is in a file per rank, from which that rank resumes; a whole model is put
 *  together out of such files. */
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

/* ---- out of several ranks' files: what they hold, or own the optimizer's state of, becomes their
 * mean ---- */

/** Zeroed before the first use. */
typedef struct gw_merge {
    size_t n;                   /* floats of the whole model's arena */
    int vectors;                /* of the optimizer, n floats each; none wanted: 0 */
    double *params, *state;     /* sums; state: of all vectors, one behind another */
    uint32_t *holders, *owners; /* terms of these sums */
    float *first;               /* the state, as the first rank that holds it has it */
    int64_t updates;            /* the most of a rank */
    bool differ;                /* parameters, over their holders */
} gw_merge;

/** GW_ERR_NOMEM; gw_merge_free frees what there is. */
gw_err gw_merge_open(gw_merge *m, size_t n, int vectors);
void gw_merge_free(gw_merge *m);

/** Add what a rank had, of a model of n parameters; where vectors are wanted, with so many. */
void gw_merge_add(gw_merge *m, const gw_rank_state *r);

/** The model into params[0..n), and the vectors into state[0..vectors*n). GW_ERR_INPUT: the ranks
 *  lack a part of it; `from` names them. */
gw_err gw_merge_end(const gw_merge *m, const char *from, float *params, float *state);

#endif
