/** A run's folder: run.json and epochs.csv (batches.csv and trace.json are src/prof's). Rank 0
 * writes; each file appears whole or not at all. docs/run-folder.md describes them. */
#ifndef GW_TRAIN_RUNFOLDER_H
#define GW_TRAIN_RUNFOLDER_H

#include "base/rows.h"
#include "checkpoint/resume.h"
#include "machine/gauge.h"
#include "machine/products.h"
#include "run/checks.h"
#include "run/codec_stats.h"
#include "run/work.h"
#include "select/auto.h"
#include "select/bound_measure.h"
#include "trace/trace.h"
#include "train/memory.h"
#include "train/result.h"

/** Bumped when a key of run.json or a column changes its meaning. */
#define GW_RUN_SCHEMA 2

/** In a run's folder: its checkpoints (checkpoint/store.h). */
#define GW_CHECKPOINTS "model.ckpt.d"

/** What becomes of the run that the folder may hold. */
typedef enum gw_runfolder_use {
    GW_RUNFOLDER_NEW,     /* there must be none, not even one that was interrupted */
    GW_RUNFOLDER_REPLACE, /* it gives way */
    GW_RUNFOLDER_AGAIN,   /* it was interrupted before its first checkpoint, and begins again */
    GW_RUNFOLDER_GO_ON    /* from a checkpoint of it */
} gw_runfolder_use;

/** That of a run in `dir`; `resume` as in gw_train_config, `found`: the checkpoint that it goes on
 *  from, wherever that lies ("": none). */
gw_runfolder_use gw_runfolder_use_of(const char *dir, bool overwrite, const char *resume,
                                     const char *found);

/** Whether a file of that name grows row by row, as base/rows.h has it. */
bool gw_runfolder_grows(const char *name);

/** Whether the folder has a file of that name. */
bool gw_runfolder_has(const char *dir, const char *name);

/** Its run.json, the caller's; NULL: there is none that can be read. */
json_t *gw_runfolder_read(const char *dir);

/** All that follows is rank 0's, which holds the folder (run/claim.h).
 *  Whether what lies there suits the use; nothing is touched. GW_ERR_INPUT: it does not. */
gw_err gw_runfolder_check(const char *dir, gw_runfolder_use use);

/** When the run is certain to start, but not to go on with the one in the folder: check again, then
 * remove what an older run left there, its checkpoints and the temporary files of a killed one
 * included. Where it begins again its history (checkpoint/history.h) stays. */
gw_err gw_runfolder_clear(const char *dir, gw_runfolder_use use);

/** For a resumed run, once its rows are open: remove what the end of a run writes, and what a
 * killed run left of that. `concludes`: no step is left to take, and all but run.json stays until
 * this start has something better. */
gw_err gw_runfolder_reopen(const char *dir, bool concludes);

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
#define GW_EPOCHS_HEADER                                                                           \
    "epoch,step,train_loss,validation_loss,validation_accuracy,test_loss,test_accuracy,elapsed_s," \
    "train_s,wire_bytes,replica_hash"

/** Begin it or go on with it; rows are one line each. */
gw_err gw_epochs_open(FILE **to, gw_rows *files);
gw_err gw_epochs_write(FILE *to, const gw_epoch_row *row);

/** What run.json tells beside configuration and results. */
typedef struct gw_run_facts {
    const gw_data *data;
    const gw_session *session;
    const gw_auto *choice;     /* NULL: nothing was chosen or predicted */
    const gw_memory *memory;   /* NULL: --profile leaves it out */
    int thread_level;          /* provided by MPI */
    const char *started_utc;   /* the run's first start; */
    const char *start_utc;     /* this one, */
    const gw_resume *resume;   /* which may have resumed from a checkpoint, */
    const json_t *told;        /* run.json of the start that took the last step, where this one took
                                  none; NULL: otherwise */
    bool rows_lack;            /* without the rows of the steps before */
    const gw_codec_row *codec; /* of the last epoch, one a layer; NULL: not asked for */
    int layers;
    const gw_rank_figures *by_rank; /* rank 0 */
    const gw_checks_total *checks;
    const gw_gauge *gauge;
    const gw_products *products;
    const gw_work_run *work;
    const gw_bound_run *bound;
    const char *warning; /* about the run as it went; "": none */
    MPI_Comm comm;
} gw_run_facts;

/** Collective (gathers host names): rank 0 writes DIR/run.json. */
gw_err gw_runfolder_write(const gw_train_config *c, const gw_run_facts *facts,
                          const gw_train_result *r);

#endif
