/** What the files of the trainer share: a run's state. trainer.c takes its steps, with votes and
 *  checkpoints between them; trainer_open.c opens and closes it, with trainer_clock.c in virtual
 *  time; trainer_end.c ends it with its run.json. Nobody else includes this. */
#ifndef GW_TRAIN_TRAINER_PARTS_H
#define GW_TRAIN_TRAINER_PARTS_H

#include "checkpoint/checkpoint.h"
#include "checkpoint/resume.h"
#include "data/sampler.h"
#include "optim/lr.h"
#include "predict/bound.h"
#include "predict/chooser.h"
#include "record/recorder.h"
#include "roofline/gauge.h"
#include "step/checks.h"
#include "step/split.h"
#include "step/step.h"
#include "step/work.h"
#include "train/memory.h"
#include "train/result.h"
#include "watch/signals.h"
#include "watch/vote.h"

/** Which part of the model and of a batch this rank has. */
typedef struct gw_trainer_part {
    gw_pipeline *pipeline; /* NULL: each rank has the whole model, and takes its batch at once */
    int servers;           /* replicas from 0 on that take no samples */
    int global_batch, chunk;
    int layer_numbers[GW_MAX_LAYERS]; /* of the layers held here, in the whole model */
} gw_trainer_part;

/** Prices of coding in virtual time: one for each codec that the ranks use, by its text. */
typedef struct gw_trainer_prices {
    gw_codec_price of[GW_INSIDE_CODECS + GW_PIPELINE_CODECS];
    const char *codec[GW_INSIDE_CODECS + GW_PIPELINE_CODECS];
    int n;
} gw_trainer_prices;

/** What is measured before the first step, and beside the steps. */
typedef struct gw_trainer_measures {
    gw_trainer_prices prices;
    int rehearsed;     /* steps */
    gw_memory *memory; /* NULL: --profile leaves it out */
    gw_bound_run bound;
    gw_gauge_setup gauging;
    gw_gauge gauge;
    gw_split split;
    gw_checks checks;
    gw_checks_total checked; /* at the end */
} gw_trainer_measures;

/** How far it is. */
typedef struct gw_trainer_at {
    int epoch;       /* 1.. */
    int batch;       /* of it, done */
    int64_t step;    /* of all epochs, done */
    bool keep;       /* at the end of the step under way a checkpoint is taken */
    int64_t samples; /* of the epoch so far, all ranks' */
    gw_vote vote;
    int64_t stop_at;     /* the step that a vote has made the last one; 0: none */
    double limit_from_s; /* when this start began to train */
    double checkpoint_s; /* of this start, by the ledger */
    const char *stopped_by;
} gw_trainer_at;

/** What the ends of epochs find. */
typedef struct gw_trainer_epochs {
    float *whole; /* rank 0, where several ranks hold the model: all of it, at an epoch's end */
    gw_best best; /* epoch so far */
    int64_t *confusion; /* (classes, classes): of the test set, at an epoch's end; NULL: too many */
} gw_trainer_epochs;

/** Who is told, and what the caller gets. */
typedef struct gw_trainer_watcher {
    void (*watch)(void *ctx, const gw_train_status *status);
    void *ctx;
    gw_train_status status;
    gw_train_result *result;
} gw_trainer_watcher;

typedef struct gw_trainer {
    const gw_train_config *c;
    MPI_Comm comm;
    int rank, ranks;
    gw_mesh mesh;
    gw_trainer_part part;
    bool oversubscribed;
    gw_host_node node;
    gw_data *data;
    gw_model *model;
    gw_optimizer *optimizer;
    gw_sampler *sampler;
    gradwire *g;
    gw_chooser *choice; /* NULL: nothing is to be chosen or predicted */
    gw_stepper stepper;
    gw_trainer_epochs epochs;
    gw_recorder rec;
    gw_trainer_measures measures;
    gw_trainer_at at;
    gw_trainer_watcher watcher;
    gw_resume resume;
    gw_checkpoint *checkpoint; /* NULL: none are written */
    bool *own;
} gw_trainer;

/** Rank 0, at an epoch's end: the parameters of the whole model. */
static inline const float *gw_trainer_whole(const gw_trainer *t) {
    return t->epochs.whole ? t->epochs.whole : gw_model_params(t->model);
}

/** What this rank computes in a step of so many samples. */
gw_load gw_trainer_load(const gw_trainer *t, int batch);

/** Replicas of the model that take samples: ranks, unless several hold one. */
static inline int gw_trainer_workers(const gw_trainer *t) {
    return t->mesh.shape.size[GW_DIM_DATA] - t->part.servers;
}

/** Steps of the whole run, unless it is stopped. */
static inline int64_t gw_trainer_steps(const gw_trainer *t) {
    int64_t all = (int64_t)gw_sampler_batches(t->sampler) * t->c->until.epochs;
    return t->c->until.steps > 0 && t->c->until.steps < all ? t->c->until.steps : all;
}

/** The rate of step 1, 2, .. Warm-up climbs from the unscaled rate, or from 0 without scaling. */
static inline float gw_trainer_rate(const gw_trainer *t, int64_t step) {
    const gw_rate *r = &t->c->rate;
    double full = r->lr * (r->linear ? gw_trainer_workers(t) : 1);
    if (!r->schedule)
        return (float)full;
    return (float)gw_lr_rate(r->schedule, r->linear ? r->lr : 0, full, step, gw_trainer_steps(t));
}

/** Parameters of the whole model. */
static inline size_t gw_trainer_parameters(const gw_trainer *t) {
    return gw_model_shard(t->model)->whole;
}

/** Collective: all that is needed before the first step. Refuses what cannot work, before it
 *  removes a file of an older run. If t->result->signal is set afterwards, a signal came: close. */
gw_err gw_trainer_open(gw_trainer *t);

/** Before a model of `spec` is opened. GW_ERR_USAGE: simulated replicas of it would need more
 *  memory than there is. */
gw_err gw_trainer_fits(const gw_trainer *t, const gw_model_spec *spec);

/** Collective, once the model is open: simulated replicas of a whole model take the parameters that
 *  the first one drew; they are opened without. Nothing to do for others. */
gw_err gw_trainer_share_params(gw_trainer *t);

/** Collective, right before time is measured: of a simulated run the clock is virtual from here on.
 *  Nothing to do for others. */
gw_err gw_trainer_open_clock(gw_trainer *t);

/** Describe the prices of coding, for run.json; the caller's. */
json_t *gw_trainer_prices_json(const gw_trainer *t);

/** Collective: refuse what gw_trainer_open would refuse, except for reasons in the run's folder or
 *  in the data set's images. Measures and writes nothing. */
gw_err gw_trainer_check(gw_trainer *t);

/** Collective: close what is open, after a failure of all ranks, too. */
void gw_trainer_close(gw_trainer *t);

/** `sig` (0: none), which all ranks know of, ends the run. */
static inline void gw_trainer_heed(gw_trainer *t, int sig) {
    if (!sig)
        return;
    t->watcher.result->signal = sig;
    t->at.stopped_by = gw_signals_name(sig);
}

/** Collective, after measuring, right before the first step: resume if there is a checkpoint, and
 *  be ready to write checkpoints. */
gw_err gw_trainer_begin(gw_trainer *t);

/** What a checkpoint's manifest and a restart compare. */
gw_facts_of gw_trainer_facts(const gw_trainer *t);

/** Collective: find what was asked for and does not happen, at the start or, `ended`, by what was
 *  counted; it is the result's then. */
gw_err gw_trainer_unmet(gw_trainer *t, bool ended);

/** What of the result is known when the last step is done. */
void gw_trainer_note(const gw_trainer *t, gw_train_result *r);

/** Collective: compare the ranks, and write what the run's folder still lacks. */
gw_err gw_trainer_finish(gw_trainer *t);

#endif
