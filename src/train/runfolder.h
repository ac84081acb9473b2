/** A run's folder: run.json and epochs.csv (batches.csv and trace.json are src/prof's). Rank 0
 * writes; each file appears whole or not at all. The schema is described in the README. */
#ifndef GW_TRAIN_RUNFOLDER_H
#define GW_TRAIN_RUNFOLDER_H

#include "base/rows.h"
#include "prof/trace.h"
#include "train/codec_stats.h"
#include "train/gauge.h"
#include "train/memory.h"
#include "train/trainer.h"
#include "train/work.h"

/** Bumped when a key of run.json or a column changes its meaning. */
#define GW_RUN_SCHEMA 2

/** What becomes of the run that the folder may hold. */
typedef enum gw_runfolder_use {
    GW_RUNFOLDER_NEW,     /* there must be none, not even one that was interrupted */
    GW_RUNFOLDER_REPLACE, /* it gives way */
    GW_RUNFOLDER_GO_ON    /* from its checkpoint; what has none must not be a whole run */
} gw_runfolder_use;

/** That of a run which asks for `overwrite`, or for a checkpoint as gw_train_config.resume says
 *  (NULL: for none): to go on in `dir` it has to lie there. */
gw_runfolder_use gw_runfolder_use_of(const char *dir, bool overwrite, const char *resume);

/** Rank 0: make the folder (parents, too) or take one that suits the use. GW_ERR_INPUT: it does
 * not. Nothing of the run that it holds is touched yet. */
gw_err gw_runfolder_claim(const char *dir, gw_runfolder_use use);

/** Rank 0, when the run is certain to start: remove what an older run left in the folder, its
 *  checkpoints and the temporary files of a killed one included. GW_RUNFOLDER_GO_ON: the history
 *  stays. */
gw_err gw_runfolder_clear(const char *dir, gw_runfolder_use use);

/** The same, when the run goes on from a checkpoint in this folder and its rows are open: only what
 *  the end of a run writes. */
gw_err gw_runfolder_reopen(const char *dir);

typedef struct gw_epoch_row {
    int epoch;
    int64_t step;
    double train_loss;
    double validation_loss, validation_accuracy; /* NaN: blank */
    double test_loss, test_accuracy;
    double elapsed_s, train_s; /* since the first step; of that inside batches */
    uint64_t wire_bytes;       /* GW_UNCOUNTED: blank */
    uint32_t replica_hash;
} gw_epoch_row;

#define GW_EPOCHS "epochs.csv"

/** Begin it or go on with it; rows are one line each. */
gw_err gw_epochs_open(FILE **to, gw_rows *files);
gw_err gw_epochs_write(FILE *to, const gw_epoch_row *row);

/** What run.json tells beside configuration and results. */
typedef struct gw_run_facts {
    const gw_data *data;
    const gw_session *session;
    const gw_memory *memory; /* NULL: --profile leaves it out */
    int thread_level;        /* provided by MPI */
    const char *started_utc;
    const gw_codec_row *codec; /* of the last epoch, one a layer; NULL: not asked for */
    int layers;
    const gw_rank_figures *by_rank; /* rank 0 */
    const gw_gauge *gauge;
    const gw_work_run *work;
    const char *warning; /* about the run as it went; "": none */
    MPI_Comm comm;
} gw_run_facts;

/** Collective (gathers host names): rank 0 writes DIR/run.json. */
gw_err gw_runfolder_write(const gw_train_config *c, const gw_run_facts *facts,
                          const gw_train_result *r);

#endif
