/** Clipping by the global norm: an update is multiplied by min(1, most / (norm + 1e-6)), as in
 *  torch.nn.utils.clip_grad_norm_. The norm is that of the gradient that the exchange returns, over
 *  all tensors (R. Pascanu, T. Mikolov, Y. Bengio, "On the difficulty of training recurrent neural
 *  networks", ICML 2013). If the exchange returns each rank's own gradient, the norm is that of the
 *  own gradient. */
#ifndef GW_RUN_CLIP_H
#define GW_RUN_CLIP_H

#include "comm/strategy.h"

#include <jansson.h>
#include <mpi.h>

enum { GW_CLIP_COMMS = 3 };

/** Set by the caller. */
typedef struct gw_clip_setup {
    double most; /* 0: nothing is clipped */
    const MPI_Comm
        *all; /* n of them: together they reach the ranks that hold the rest of the model; */
    int n;    /* none has 1 rank */
} gw_clip_setup;

typedef struct gw_clip {
    double most;
    bool own;                     /* clips each replica's own gradient */
    MPI_Comm over[GW_CLIP_COMMS]; /* the norm's parts are summed over each of these in turn */
    int n;
    float by;    /* the last update's factor */
    bool counts; /* it has a norm */
    int64_t updates, clipped;
} gw_clip;

/** Check, before it is opened, that clipping works. GW_ERR_UNSUPPORTED, with the reason: `lazy`, an
 *  update comes before the whole gradient; `ruled`, what the exchange returns is not the gradient
 *  of a rank or of this step; `directs`, it is the direction of an update. */
gw_err gw_clip_check(double most, bool lazy, bool ruled, bool directs);

/** Open; `comm` is that of the exchange. */
void gw_clip_open(gw_clip *c, const gw_clip_setup *setup, const gw_strategy_ops *ops,
                  MPI_Comm comm);

/** After finish() of the whole arena: multiply u->scale by the factor, the same on all ranks that
 *  the gradient belongs to. Collective over these. */
gw_err gw_clip_update(gw_clip *c, gw_update *u);

/** Count that update, which was not left out. */
void gw_clip_count(gw_clip *c);

/** For run.json; null: no clipping. */
json_t *gw_clip_json(const gw_clip *c);

#endif
