/** One optimizer step: the walk over the model (mesh/pipeline.h), with the exchange of each layer's
 * gradient as soon as it is there, and the update. `eager` finishes the exchange at the end of the
 * step; `lazy` just before the next forward pass reads each layer, so that communication may hide
 * there, too. */
#ifndef GW_STEP_STEP_H
#define GW_STEP_STEP_H

#include "api/inside.h"
#include "config/config.h"
#include "data/sampler.h"
#include "machine/products.h"
#include "mpi/guard.h"
#include "naive/naive.h"
#include "nn/model.h"
#include "optim/optimizer.h"
#include "step/exec/sleep.h"
#include "step/owned.h"
#include "step/split.h"

/** An update that is left to be done when the clock of a paced step has stopped. */
typedef struct gw_step_later {
    bool due;
    gw_update update;
    float lr;
} gw_step_later;

typedef struct gw_stepper gw_stepper;

struct gw_stepper {
    gw_model *model;
    gw_optimizer *optimizer;
    gradwire *g;        /* gw_step_use's, and */
    gw_inside_facts is; /* what it is */
    const gw_dataset *set;
    gw_label *labels; /* of the local batch: max_local samples */
    bool lazy;
    bool apart;   /* nothing overlaps: exchange between the passes, and settle it in the step */
    bool pending; /* lazy: the last step's exchange is not finished yet */
    float pending_lr;
    double skew_s;         /* delay of each step, after its samples are gathered; 0: none */
    gw_moved moved;        /* in all steps so far */
    gw_owned owned;        /* likewise */
    gw_guard *guard;       /* NULL: nobody looks whether loss and gradients are finite */
    gw_pipeline *pipeline; /* the walk; NULL: gw_step_open opens that over a whole model */
    gw_naive *naive;       /* computes, exchanges and updates instead of model and session, by */
    gw_err (*instead)(gw_stepper *t, const gw_batch *batch, float lr, double *loss_sum);
    float *grads;  /* where its gradients go */
    gw_err failed; /* what a poll within a kernel ran into */
    /* of a paced run (step/paced.h), else NULL and unused: */
    gw_pacer *pacer;
    gw_sleeper sleeper;
    float *scratch;       /* where gradients are computed, if not to the arena; NULL: to it */
    double computed_loss; /* of the step that the clock is about to take */
    bool unpublished;     /* what the last step is to publish, the next one does first */
    gw_step_later later;
};

/** The run's optimizer for this model. `corrected`: the exchange applies --momentum. */
gw_err gw_step_optimizer(gw_optimizer **out, const gw_train_config *c, const gw_model *model,
                         bool corrected);

/** GW_ERR_UNSUPPORTED: it moves whole tensors, and a rank has parts of them to update: `cuts`, by
 *  the exchange, or for that is what it holds of the model. */
gw_err gw_step_check_parts(const gw_optimizer *o, const gw_model *model, bool cuts);

/** What a handle exchanges gradients for. */
typedef struct gw_step_setup {
    const gw_train_config *c; /* NULL: the plainest exchange */
    const gw_products *products;
    MPI_Comm comm;          /* the replicas' */
    MPI_Comm rest[GW_DIMS]; /* of ranks that hold other parts of the same replica, */
    int n_rest;             /* along each dimension that has several */
    uint64_t seed;
    bool lazy, yield;         /* yield: the node runs more threads than cores */
    const char *note, *table; /* as in gw_inside_setup */
} gw_step_setup;

/** Collective: name the tensors of t->model, open `g`, and lend the model its memory: the stepper
 *  works with it from now on. GW_ERR_UNSUPPORTED on all ranks of s->comm: the optimizer moves whole
 *  tensors, and a rank has parts of them to update. */
gw_err gw_step_open(gw_stepper *t, gradwire *g, const gw_step_setup *s);

/** The stepper works with another handle that was opened for its model. */
void gw_step_use(gw_stepper *t, gradwire *g);

/** The samples of a global batch on so many ranks. GW_ERR_USAGE: too many. */
gw_err gw_step_batch(const gw_train_config *c, int ranks, int *global);

/** What the pipeline of a stepper's step does; the stepper must outlive it. */
gw_pipeline_hooks gw_step_hooks(gw_stepper *t);

/** What its walk is told of a batch. */
gw_pipeline_job gw_step_job(const gw_stepper *t, const gw_batch *batch);

/** Free what gw_step_open opened beside the exchange. */
void gw_step_close(gw_stepper *t);

/** The exchange without the step: of `gradient`, which the first copies to where it must lie. The
 *  second updates nothing, and leaves nothing in flight; *owned: floats that this rank would
 *  update. */
gw_err gw_step_offer(gw_stepper *t, const float *gradient);
gw_err gw_step_exchange(gw_stepper *t, size_t *owned);

/** Run one step inside the caller's ledger batch, of a paced run after gw_paced_prepare. *loss_sum:
 *  sum over the local samples. */
gw_err gw_step(gw_stepper *t, gw_batch batch, float lr, double *loss_sum);

/** The same on samples that lie in the model's input and in `labels` already: `local` of the
 *  `global` ones. */
gw_err gw_step_loaded(gw_stepper *t, int local, int global, float lr, double *loss_sum);

/** What a paced step leaves to be done outside the clock, before anybody reads parameters; nothing
 *  to do otherwise. */
gw_err gw_step_catch_up(gw_stepper *t);

/** Finish a pending exchange, so that parameters may be read; nothing to do when eager, except for
 *  the naive backend, whose parameters become the model's. */
gw_err gw_step_settle(gw_stepper *t);

#endif
