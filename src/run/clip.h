/** Clipping by the global norm: an update counts for min(1, most / (norm + 1e-6)) of itself, as of
 *  torch.nn.utils.clip_grad_norm_, where the norm is that of the gradient that the exchange hands
 *  out, of all tensors together (R. Pascanu, T. Mikolov, Y. Bengio, "On the difficulty of training
 *  recurrent neural networks", ICML 2013). Where the exchange hands out each rank's own gradient it
 *  is that one's. */
#ifndef GW_RUN_CLIP_H
#define GW_RUN_CLIP_H

#include "comm/strategy.h"

#include <jansson.h>
#include <mpi.h>

enum { GW_CLIP_COMMS = 3 };

/** What the caller says. */
typedef struct gw_clip_setup {
    double most; /* 0: nothing is clipped */
    const MPI_Comm
        *all; /* n of them: together they reach the ranks that hold the rest of the model; */
    int n;    /* none of 1 rank */
} gw_clip_setup;

typedef struct gw_clip {
    double most;
    bool own;                     /* of each replica's own gradient */
    MPI_Comm over[GW_CLIP_COMMS]; /* the norm's parts are summed over each of these in turn */
    int n;
    float by;    /* the last update's factor */
    bool counts; /* it has a norm */
    int64_t updates, clipped;
} gw_clip;

/** Before it is opened. GW_ERR_UNSUPPORTED, why this cannot be had: `lazy`, an update comes before
 *  the whole gradient; `ruled`, what is handed out is no gradient (of one rank, or of
 *  this step); `directs`, the direction of an update. */
gw_err gw_clip_check(double most, bool lazy, bool ruled, bool directs);

/** `comm`: of the exchange. */
void gw_clip_open(gw_clip *c, const gw_clip_setup *setup, const gw_strategy_ops *ops,
                  MPI_Comm comm);

/** After finish() of the whole arena: the factor goes into u->scale, the same on all ranks that
 *  the gradient belongs to. Collective over these. */
gw_err gw_clip_update(gw_clip *c, gw_update *u);

/** That update is done, not left out. */
void gw_clip_count(gw_clip *c);

/** For run.json; null: nothing is clipped. */
json_t *gw_clip_json(const gw_clip *c);

#endif
