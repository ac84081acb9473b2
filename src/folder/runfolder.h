/** A run's folder: who may have it, and what gives way to them. docs/run-folder.md describes its
 *  files. */
#ifndef GW_FOLDER_RUNFOLDER_H
#define GW_FOLDER_RUNFOLDER_H

#include "base/table.h"
#include "nn/metrics.h"

#include <jansson.h>

/** Bumped when a key of run.json or a column changes its meaning. */
#define GW_RUN_SCHEMA 3

/** What is known at the end of an epoch: a row of epochs.csv. */
typedef struct gw_epoch_row {
    int epoch;
    int64_t step;
    double train_loss;
    double validation_loss, validation_accuracy; /* NaN: no validation set */
    double test_loss, test_accuracy;
    double elapsed_s, train_s; /* since the first step; of that inside batches */
    double test_s;             /* evaluating the test set took; the slowest rank's */
    uint64_t wire_bytes;       /* over all ranks and steps; GW_UNCOUNTED: not measured */
    uint32_t replica_hash;
    /* No columns: */
    double test_forward_s;  /* of test_s; NaN: not told apart */
    gw_class_metrics macro; /* of the test set, means over its classes; NaN: not tested */
} gw_epoch_row;

/** epochs.csv, and evaluations.csv: rows are gw_epoch_row. */
extern const gw_table gw_epochs, gw_evaluations;

/** What becomes of the run that the folder may hold. */
typedef enum gw_runfolder_use {
    GW_RUNFOLDER_NEW,     /* there must be none, not even one that was interrupted */
    GW_RUNFOLDER_REPLACE, /* the new run replaces it */
    GW_RUNFOLDER_AGAIN,   /* it was interrupted before its first checkpoint, and begins again */
    GW_RUNFOLDER_RESUME   /* it resumes from one of its checkpoints */
} gw_runfolder_use;

/** The use that a run makes of `dir`; `resume` as in gw_train_config, `found`: the checkpoint that
 *  it resumes from, in whatever folder ("": none). */
gw_runfolder_use gw_runfolder_use_of(const char *dir, bool overwrite, const char *resume,
                                     const char *found);

/** Whether a file of that name grows row by row, as base/rows.h has it. */
bool gw_runfolder_grows(const char *name);

/** Whether the folder has a file of that name. */
bool gw_runfolder_has(const char *dir, const char *name);

/** Its run.json, the caller's; NULL: there is none that can be read. */
json_t *gw_runfolder_read(const char *dir);

/** For rank 0, which holds the folder (folder/claim.h), like all that follows: check that what is
 *  in it suits the use; changes nothing. GW_ERR_INPUT: it does not. */
gw_err gw_runfolder_check(const char *dir, gw_runfolder_use use);

/** Its run.json anew, whole or not at all; `run` is freed. */
gw_err gw_runfolder_write(const char *dir, json_t *run);

/** When a run that does not resume the one in the folder is certain to start: check again, then
 *  remove what an older run left there, with its checkpoints and the temporary files of a killed
 *  one. A run that begins again keeps its history (folder/history.h). */
gw_err gw_runfolder_clear(const char *dir, gw_runfolder_use use);

/** For a resumed run, once its rows are open: remove the files that the end of a run writes, and
 *  temporary ones of a killed run. `concludes`: no step is left to take; then only run.json goes,
 *  and the other files stay until this start replaces them. */
gw_err gw_runfolder_reopen(const char *dir, bool concludes);

#endif
