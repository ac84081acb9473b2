/** A training run out of its options, for the commands that train, and what is printed of it. */
#ifndef GW_CLI_TRAIN_TRAIN_JOB_H
#define GW_CLI_TRAIN_TRAIN_JOB_H

#include "base/args.h"
#include "train/trainer.h"

/** Rules say which options of train_opts.def exclude each other. */
extern const gw_rule gw_train_rules[];

/** Printing needs this, on rank 0. */
typedef struct gw_train_teller {
    const gw_train_config *config;
    const gradwire *g;        /* until the run is over */
    int helpers;              /* threads for progress */
    const gw_chooser *choice; /* NULL: nothing is chosen or predicted */
    bool quiet;               /* errors only, and why a run was stopped */
    bool terminal;            /* one line is written over and over */
    double last_s;            /* of the run, when progress was last shown */
} gw_train_teller;

typedef struct gw_train_job {
    const gw_args *args;
    char *command; /* the command line */
    gw_train_config config;
    gw_train_setup setup;
    gw_group_choice *counters; /* NULL: none */
    struct gw_lr *schedule;
    gw_train_teller teller;
} gw_train_job;

/** Read args and command, which are set and outlive the job; no MPI call. `setup` is for gw_train
 *  then; the teller prints what rank 0 has to say. The job keeps pointers into itself, and stays
 *  where it is. gw_train_job_free it, also after an error. */
gw_err gw_train_job_read(gw_train_job *j);

void gw_train_job_free(gw_train_job *j);

/** The watcher of gw_train: print how the run goes. Its context is a gw_train_teller. */
void gw_train_tell(void *ctx, const gw_train_status *s);

#endif
