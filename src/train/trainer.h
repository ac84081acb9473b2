/** The training run: data, model, session, the step, and what is recorded of it. */
#ifndef GW_TRAIN_TRAINER_H
#define GW_TRAIN_TRAINER_H

#include "checkpoint/notes.h"
#include "config/config.h"
#include "predict/chooser.h"
#include "train/result.h"

/** How far the run is; handed to the watcher on rank 0 before the first step, after steps and after
 *  epochs. */
typedef struct gw_train_status {
    const gw_data *data;
    size_t parameters;
    int ranks;
    bool oversubscribed;
    int epoch, epochs;    /* 1.. */
    int64_t step, steps;  /* 1..; steps: planned, all epochs */
    double elapsed_s;     /* since the first step */
    double samples_per_s; /* global, over the epoch so far */
    double loss;          /* this rank's last batch, NaN: none; at an epoch's end the global mean */
    const char *warning;  /* a line about this run that just became known; NULL: none */
    const gw_busy *busy;  /* until the first step */
    const gw_notes *notes; /* about a resumed run */
    bool begins;           /* no step of this start was taken yet */
    bool epoch_end;
    gw_epoch_row last; /* with epoch_end */
} gw_train_status;

/** Collective. `g` is closed, unless an error is this rank's alone. `choice`: as gw_chooser_open
 *  makes it; NULL: nothing is to be chosen or predicted. `watch` (NULL: none) is called on rank 0
 *  outside the batches. Every rank returns the same error for whatever goes wrong before the first
 *  step and between epochs; an error inside a step is the failing rank's own, and *own is set: end
 *  the job with MPI_Abort then, as with any error that gw_err_alone knows. */
gw_err gw_train(const gw_train_config *config, gradwire *g, gw_pipeline *pipeline,
                gw_chooser *choice, MPI_Comm comm,
                void (*watch)(void *ctx, const gw_train_status *status), void *ctx,
                gw_train_result *result, bool *own);

#endif
