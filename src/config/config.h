/** What a training run is told, in plain values; filled by src/cli/train/train.c out of its
 *  options. */
#ifndef GW_CONFIG_CONFIG_H
#define GW_CONFIG_CONFIG_H

#include "base/args.h"
#include "comm/hop.h"
#include "counters/group.h"
#include "data/data.h"
#include "mpi/guard.h"
#include "mpi/mesh.h"
#include "naive/naive.h"
#include "nn/model.h"
#include "prof/ledger.h"
#include "watch/watchdog.h"

/** Which model a run leaves in its folder; in the order of the option's words. */
typedef enum gw_save_model {
    GW_SAVE_OFF,
    GW_SAVE_LAST,
    GW_SAVE_BEST /* that of the epoch with the least validation loss */
} gw_save_model;

/** How the model lies on the ranks, and how a step passes them. */
typedef struct gw_parallel {
    const gw_spec *mesh, *timetable;    /* timetable NULL: 1f1b */
    const gw_spec *tensor_algo;         /* NULL: that of the codec */
    const gw_spec *codec[GW_HOP_KINDS]; /* deltas NULL: as activations */
    gw_mesh_shape shape;                /* of `mesh` */
    int microbatches, tensor_chunks;
    const char *stages; /* flops, measured, or layers of each: 2,1,1 */
    bool recompute;
    bool columns; /* all layers are cut by columns, else by columns and rows in turn */
} gw_parallel;

typedef struct gw_train_config {
    gw_data_spec data;
    gw_model_spec model; /* but for inputs and classes, which the data set tells */
    gw_parallel parallel;
    const gw_spec *optimizer; /* NULL: sgd */
    double lr, momentum;      /* momentum: of an exchange that corrects */
    bool lr_linear;           /* lr times the number of ranks */
    int64_t lr_warmup;        /* steps */
    int batch;                /* global; or, with local_batch, a rank's */
    bool local_batch;
    int epochs;
    int64_t steps;       /* stop after so many; 0: no limit */
    double time_limit_s; /* stop after so long; 0: no limit */
    int64_t eval_every;  /* evaluate after so many steps, too; 0: each epoch only */
    uint64_t seed;
    int threads;            /* OpenMP threads a rank */
    const gw_spec *backend; /* and what it says: */
    gw_naive_options naive;
    const gw_spec *comm, *compress; /* one entry; a list */
    const char *feedback;
    bool wire_check;          /* every encoding in a frame, checked before it is decoded */
    bool forecast;            /* predict steps before the run */
    bool lazy;                /* finish and update layer by layer before the next forward pass */
    int compress_stats;       /* compare the gradient every so many steps; 0: never */
    const char *out;          /* run folder; NULL: none */
    gw_count_time checkpoint; /* after each so many steps, or so much time; both 0: none */
    int checkpoint_keep;      /* so many stay */
    const char *resume;   /* "auto", a checkpoint, a folder of them or of a run; NULL: a new run */
    bool resume_strict;   /* refuse a restart that could not keep everything */
    int64_t verify_every; /* compare the replicas after so many steps, too; 0: each epoch only */
    gw_on_nan on_nan;     /* stop or skip */
    gw_save_model save;   /* as model.gw */
    bool overwrite, trace;
    bool check;                      /* refuse what a run would refuse, and end before it */
    bool collectives;                /* write collectives.csv */
    gw_count_time skew;              /* that rank is held back so long in each step; 0 s: nobody */
    double hang_timeout_s;           /* end a run that makes no progress for this time; 0: never */
    const gw_group_choice *counters; /* NULL: none */
    bool paired; /* take every step with a blocking exchange, too: see train/paired.h */
    double pace; /* ranks sleep instead of computing, so many times as long; 0: they compute */
    bool bound;  /* measure the least time a step can take: see select/bound.h */
    gw_profile profile;
    bool overhead_only;   /* for timers and for full, and that is all: no step is taken */
    const char *ceilings; /* "auto" or a file; NULL: none are measured */
    int overhead;         /* pairs of steps that measure what the profile costs; GW_OVERHEAD_AUTO */
    const gw_args *args;  /* all options as resolved, for run.json */
    const char *command;  /* the command line */
} gw_train_config;

#endif
