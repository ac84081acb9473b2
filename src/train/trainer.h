/** The training run: data, model, session, the step, and what is recorded of it. */
#ifndef GW_TRAIN_TRAINER_H
#define GW_TRAIN_TRAINER_H

#include "config/config.h"
#include "predict/chooser.h"
#include "train/result.h"

/** The parts of a run. */
typedef struct gw_train_setup {
    const gw_train_config *config;
    gradwire *g;           /* NULL afterwards: it is closed, unless an error is this rank's alone */
    gw_pipeline *pipeline; /* NULL: each rank has the whole model */
    gw_chooser *choice;    /* as gw_chooser_open makes it; NULL: nothing is chosen or predicted */
    /** Called on rank 0 outside the batches; NULL: nobody is told. */
    void (*watch)(void *ctx, const gw_train_status *status);
    void *ctx;
} gw_train_setup;

/** Collective. Every rank returns the same error for whatever goes wrong before the first step and
 *  between epochs; an error inside a step is the failing rank's own, and *own is set: end the job
 *  with MPI_Abort then, as with any error that gw_err_alone knows. *result: also of a run that a
 *  signal or --check ended. */
gw_err gw_train(gw_train_setup *s, MPI_Comm comm, gw_train_result *result, bool *own);

#endif
