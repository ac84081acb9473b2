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
    gradwire *g;
    gw_pipeline *pipeline; /* NULL: none is needed */
    gw_chooser *choice;
    gw_group_choice *counters; /* NULL: none */
    struct gw_lr *schedule;
    gw_train_teller teller;
    int signal; /* that ended the run; 0: none */
} gw_train_job;

/** Read args and command, which are set and outlive the job; no MPI call. The job keeps pointers
 *  into itself, and stays where it is. gw_train_job_free it, also after an error. */
gw_err gw_train_job_read(gw_train_job *j);

/** Collective: train, and print what rank 0 has to say. Errors and *own are those of gw_train. */
gw_err gw_train_job_run(gw_train_job *j, MPI_Comm comm, bool *own);

void gw_train_job_free(gw_train_job *j);

#endif
