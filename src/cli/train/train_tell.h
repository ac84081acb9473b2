/** What `gradwire train` prints of a run as it goes, and at its end. Rank 0 only. */
#ifndef GW_CLI_TRAIN_TRAIN_TELL_H
#define GW_CLI_TRAIN_TRAIN_TELL_H

#include "train/trainer.h"

typedef struct gw_train_teller {
    const gw_train_config *config;
    const gradwire *g;        /* until the run is over */
    int helpers;              /* threads for progress */
    const gw_chooser *choice; /* NULL: nothing is chosen or predicted */
    bool quiet;               /* errors only, and why a run was stopped */
    bool terminal;            /* one line is written over and over */
    double last_s;            /* of the run, when progress was last shown */
} gw_train_teller;

/** The watcher of gw_train; its context is a gw_train_teller. */
void gw_train_tell(void *ctx, const gw_train_status *s);

#endif
