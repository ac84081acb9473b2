/** One optimizer step: the walk over the model (mesh/pipeline.h), which exchanges each layer's
 * gradient as soon as it is final, and the update. `eager` finishes the exchange at the end of the
 * step; `lazy` layer by layer, just before the next forward pass reads each, so that communication
 * may hide there, too. */
#ifndef GW_STEP_STEP_H
#define GW_STEP_STEP_H

#include "api/inside.h"
#include "config/config.h"
#include "data/sampler.h"
#include "mesh/pipeline.h"
#include "mpi/guard.h"
#include "nn/model.h"
#include "optim/optimizer.h"
#include "step/owned.h"
#include "step/split.h"

typedef struct gw_stepper gw_stepper;

struct gw_stepper {
    gw_model *model;
    gw_optimizer *optimizer;
    gradwire *g;        /* set by gw_step_open, and */
    gw_inside_facts is; /* the facts about it */
    const gw_dataset *set;
    gw_label *labels; /* of the local batch: max_local samples */
    bool lazy;
    bool pending; /* lazy: the last step's exchange is not finished yet */
    float pending_lr;
    gw_moved moved;        /* in all steps so far */
    gw_owned owned;        /* likewise */
    gw_guard *guard;       /* NULL: nobody checks that loss and gradients are finite */
    gw_pipeline *pipeline; /* the walk; NULL: gw_step_open opens one over a whole model */
    const gw_exec *exec;   /* whose clock is virtual; NULL: it is the machine's */
};

/** Open the run's optimizer for this model. `corrected`: the exchange applies --momentum. */
gw_err gw_step_optimizer(gw_optimizer **out, const gw_train_config *c, const gw_model *model,
                         bool corrected);

/** GW_ERR_UNSUPPORTED: it moves whole tensors, but a rank must update parts of them, because the
 *  exchange divides them (`cuts`) or the rank holds only parts of the model's tensors. */
gw_err gw_step_check_parts(const gw_optimizer *o, const gw_model *model, bool cuts);

/** What a handle exchanges gradients for. */
typedef struct gw_step_setup {
    const gw_train_config *c; /* NULL: the plainest exchange */
    MPI_Comm comm;            /* the replicas' */
    MPI_Comm rest[GW_DIMS];   /* those of the ranks with the other parts of the same replica, */
    int n_rest;               /* one for each dimension with several ranks */
    uint64_t seed;
    bool yield;               /* the node runs more threads than cores */
    const char *note, *table; /* as in gw_inside_setup */
} gw_step_setup;

/** Declare the tensors of t->model, open `g`, and lend the model its memory: the stepper works with
 *  it from now on. GW_ERR_UNSUPPORTED on all ranks of s->comm: the optimizer moves whole tensors,
 *  but a rank must update parts of them. Collective. */
gw_err gw_step_open(gw_stepper *t, gradwire *g, const gw_step_setup *s);

/** Set *global to the samples of a global batch on so many ranks. GW_ERR_USAGE: too many. */
gw_err gw_step_batch(const gw_train_config *c, int ranks, int *global);

/** Return the hooks of a stepper's pipeline; the stepper must outlive them. */
gw_pipeline_hooks gw_step_hooks(gw_stepper *t);

/** Return the job that a batch is for the walk. */
gw_pipeline_job gw_step_job(const gw_stepper *t, const gw_batch *batch);

/** Free what gw_step_open opened besides the exchange. */
void gw_step_close(gw_stepper *t);

/** Exchange without a step. offer: copy `gradient` to where the exchange takes it. exchange: update
 *  nothing, and leave nothing in flight; *owned: how many floats this rank would update. */
gw_err gw_step_offer(gw_stepper *t, const float *gradient);
gw_err gw_step_exchange(gw_stepper *t, size_t *owned);

/** Run one step inside the caller's ledger batch. Without `batch.idx` the samples are in the
 *  model's input and in `labels` already. *loss_sum: sum over the local samples. */
gw_err gw_step(gw_stepper *t, gw_batch batch, float lr, double *loss_sum);

/** Finish a pending exchange, so that parameters may be read. When eager there is none. */
gw_err gw_step_settle(gw_stepper *t);

#endif
