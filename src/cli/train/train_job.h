/** A training run out of its options, for the commands that train. */
#ifndef GW_CLI_TRAIN_TRAIN_JOB_H
#define GW_CLI_TRAIN_TRAIN_JOB_H

#include "base/args.h"
#include "cli/train/train_tell.h"

/** Rules say which options of train_opts.def exclude each other. */
extern const gw_rule gw_train_rules[];

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

#endif
