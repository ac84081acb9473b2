/** Checkpoints of a run (folder/store.h has their folders), written while training goes on. At
 *  the end of a step the state of each rank is copied into memory; a thread a rank writes it; when
 *  the ranks find at a vote (watch/vote.h) that all have, rank 0's thread completes the checkpoint.
 *  Until then it is none, and one that becomes due meanwhile is taken late. A checkpoint that
 *  cannot be written is a warning, and those before it stay. */
#ifndef GW_CHECKPOINT_CHECKPOINT_H
#define GW_CHECKPOINT_CHECKPOINT_H

#include "base/rows.h"
#include "checkpoint/best.h"
#include "checkpoint/position.h"
#include "config/config.h"
#include "folder/store.h"
#include "watch/vote.h"

struct gw_codec_stats;
typedef struct gw_checkpoint gw_checkpoint;

typedef struct gw_checkpoint_setup {
    const gw_train_config *c; /* where to, how often, how many */
    gw_stepper *stepper;
    struct gw_codec_stats *stats;
    const gw_mesh *mesh;
    const gw_best *best; /* its model is copied, where there is one */
    gw_rows *rows;       /* rank 0's: what `facts` mark of them is synced before one is complete */
    MPI_Comm comm;
} gw_checkpoint_setup;

/** Collective: sweeps away what killed processes left half written. */
gw_err gw_checkpoint_open(gw_checkpoint **out, const gw_checkpoint_setup *setup);

/** What is still being written is given up. c may be NULL: nothing is kept then, and nothing due;
 *  likewise below. */
void gw_checkpoint_close(gw_checkpoint *c);

/** Once before each step, `step`: whether the state is to be taken at its end, with nothing
 *  pending. The same on all ranks. */
bool gw_checkpoint_due(gw_checkpoint *c, int64_t step);

/** Whether there is one of `step`, complete or on its way. The same on all ranks. */
bool gw_checkpoint_has(const gw_checkpoint *c, int64_t step);

/** At the end of a step, collective (it drains), inside the ledger's batch: copy the state. An
 *  error is this rank's own; want of memory is none, but costs the checkpoint. */
gw_err gw_checkpoint_take(gw_checkpoint *c);

/** Collective, between batches, after gw_checkpoint_take: begin to write what was taken. `facts`
 *  (rank 0; taken over) as in the manifest. `ready`: GW_OK, or the last error, which makes this
 *  checkpoint one that failed. */
gw_err gw_checkpoint_write(gw_checkpoint *c, const gw_position *at, json_t *facts, gw_err ready);

/** This rank's part of the vote after `step`, and what follows from it: collective. An error is the
 *  same on all ranks: GW_ERR_DIVERGED, where replicas that must be equal are not. */
void gw_checkpoint_ballot(gw_checkpoint *c, gw_ballot *ballot);
gw_err gw_checkpoint_voted(gw_checkpoint *c, int64_t step, const gw_ballot *ballot);

/** Collective: wait until what is being written is complete or has failed. Errors as before. */
gw_err gw_checkpoint_wait(gw_checkpoint *c);

/** Rank 0: a line about what went wrong since the last call; NULL: nothing. Valid till the next
 *  failure; of failures in a row the first is told. */
const char *gw_checkpoint_warning(gw_checkpoint *c);

typedef struct gw_checkpoint_counts {
    int64_t written, failed;
    int64_t late; /* taken later than due, since the one before was still being written */
    int64_t step; /* of the last complete one; 0: none */
} gw_checkpoint_counts;

/** Of this start of the run, at rank 0. */
gw_checkpoint_counts gw_checkpoint_count(const gw_checkpoint *c);

#endif
