/** What a training run is told, in plain values; filled by src/cli/train/train.c out of its
 *  options. */
#ifndef GW_CONFIG_CONFIG_H
#define GW_CONFIG_CONFIG_H

#include "base/act.h"
#include "config/delay.h"
#include "config/run.h"
#include "counters/group.h"
#include "data/data.h"
#include "mpi/mesh.h"
#include "nn/model.h"
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

/** The learning rate. */
typedef struct gw_rate {
    double lr;
    bool linear;                  /* lr times the number of ranks */
    const gw_spec *how;           /* --lr-schedule, and what it says: */
    const struct gw_lr *schedule; /* optim/lr.h; NULL: always the same rate */
} gw_rate;

/** When a run ends. */
typedef struct gw_until {
    int epochs;
    int64_t steps; /* stop after so many; 0: no limit */
    double time_s; /* stop after so long; 0: no limit */
} gw_until;

/** What is kept for later, and what a run goes on from. */
typedef struct gw_keep {
    gw_save_model model; /* as model.gw */
    gw_count_time every; /* a checkpoint after so many steps, or so much time; both 0: none */
    int most;            /* so many checkpoints stay */
    const char *resume;  /* "auto", a checkpoint, a folder of them or of a run; NULL: a new run */
    bool strict;         /* refuse a restart that could not keep everything */
} gw_keep;

struct gw_exec;
struct gw_step_times;

/** When the ranks of one process stop together, as a signal or a fault of one has it. */
typedef struct gw_stop_together {
    int64_t step; /* the last that a rank has taken */
    int64_t at;   /* the step that is the last; 0: none is */
    int signal;
} gw_stop_together;

/** Training in virtual time, on ranks of one process. */
typedef struct gw_simulated {
    uint64_t (*ns)(void);   /* the clock of the rank that runs */
    double rate_bits_per_s; /* of a rank's link */
    /** Say what the arithmetic of `model`, as a rank holds it, takes. NULL: it is measured. */
    gw_err (*times)(void *ctx, const gw_model *model, struct gw_step_times *out);
    const struct gw_codec_price *price; /* of coding with any codec; NULL: it is measured, */
    double speed;                       /* on cores that are so many times as fast */
    /** Make the executor of this rank of `comm`; it lives as long as the run. */
    const struct gw_exec *(*open)(void *ctx, MPI_Comm comm, const struct gw_step_times *times);
    void *ctx;
    gw_stop_together *stop;
    /** Describe the simulation for run.json; the caller's. */
    json_t *(*json)(void *ctx);
} gw_simulated;

typedef struct gw_train_config {
    gw_run_options run;
    gw_data_spec data;
    gw_model_spec model; /* but for inputs and classes, which the data set tells */
    gw_parallel parallel;
    const gw_spec *optimizer; /* NULL: sgd */
    gw_rate rate;
    int batch; /* global; or, with local_batch, a rank's */
    bool local_batch;
    gw_until until;
    int64_t eval_every; /* evaluate after so many steps, too; 0: each epoch only */
    bool forecast;      /* predict steps before the run */
    gw_keep keep;
    bool check;                      /* refuse what a run would refuse, and end before it */
    gw_delay skew;                   /* who is held up in a step, and how long */
    const gw_group_choice *counters; /* NULL: none */
    const gw_simulated *simulated;   /* NULL: ranks are processes, and the clock is the machine's */
    bool bound;           /* measure the least time a step can take: see predict/bound.h */
    bool overhead_only;   /* for timers and for full, and that is all: no step is taken */
    const char *ceilings; /* "auto" or a file; NULL: none are measured */
    int overhead;         /* pairs of steps that measure what the profile costs; GW_OVERHEAD_AUTO */
    const gw_args *args;  /* all options as resolved, for run.json */
    const char *command;  /* the command line */
} gw_train_config;

#endif
