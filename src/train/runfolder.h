/** A run's folder: who may have it, and what gives way to them. docs/run-folder.md describes its
 *  files. */
#ifndef GW_TRAIN_RUNFOLDER_H
#define GW_TRAIN_RUNFOLDER_H

#include "base/err.h"

#include <jansson.h>

/** Bumped when a key of run.json or a column changes its meaning. */
#define GW_RUN_SCHEMA 2

/** In a run's folder: its checkpoints (checkpoint/store.h). */
#define GW_CHECKPOINTS GW_STORE_FOLDER

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

#endif
