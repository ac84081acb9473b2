/** What a training run tells while it goes on, and what it came to. */
#ifndef GW_TRAIN_RESULT_H
#define GW_TRAIN_RESULT_H

#include "api/inside.h"
#include "checkpoint/best.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/notes.h"
#include "mpi/guard.h"
#include "predict/bound.h"
#include "record/recorder.h"
#include "train/overhead.h"

typedef struct gw_train_result {
    int64_t steps; /* of all starts of the run */
    gw_epoch_row last;
    gw_recorder_total total; /* its by_rank and hosts: NULL */
    double train_s;          /* inside batches */
    double bubble_s;         /* of its step: waiting along the pipe; NaN: there is one stage */
    /* All zero: not asked for. The first is the run's own, unless overhead_only asked for both. */
    gw_overhead overhead[GW_OVERHEAD_LEVELS];
    gw_best best;         /* epoch 0: no validation set; its params: NULL */
    int64_t left_out;     /* steps, by --on-nan skip */
    gw_fault first_fault; /* rank -1: there was none */
    double bound_s;       /* of a step; 0: not asked for */
    gw_bound_mode bound_mode;
    int64_t split, flagged; /* batches of all ranks with a memory split by twins; of these with an
                               empty interval of products */
    double ceilings_drift;  /* relative, between begin and end; NaN: not measured */
    gw_unmet told, unmet;   /* what was asked for and did not happen: as the run's first lines told,
                                 and by what was counted */
    int ranks;
    size_t parameters;
    gw_checkpoint_counts checkpoints;
    double checkpoint_s; /* in batches of this start, the longest rank's; NaN: not measured */
    char stopped_by[16]; /* "epochs", "steps", "time-limit", "SIGTERM", "SIGINT"; "check": no step
                            was taken */
    int signal;          /* that ended the run; 0: none. With 0 steps nothing was written */
} gw_train_result;

/** How far the run is; handed to the watcher on rank 0 before the first step, after steps and
 *  epochs, and with only `result` when a run that did not fail is over. */
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
    gw_epoch_row last;             /* with epoch_end */
    const gw_train_result *result; /* NULL: the run is not over */
} gw_train_status;

#endif
