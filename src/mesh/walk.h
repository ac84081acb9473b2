/** The walk through a step, the only one: the actions of a timetable in order, the layers of each
 *  action, the hops between stages, and what tensor ranks exchange between the halves of a layer.
 *  It is told who computes: the kernels of a model (mesh/pipeline.h), or the times of a profile
 *  (play/actor.h). With `pieces` a microbatch passes in runs of rows: what one sends travels while
 *  the next is computed. */
#ifndef GW_MESH_WALK_H
#define GW_MESH_WALK_H

#include "comm/pipeline/runner.h"
#include "mpi/mesh.h"
#include "nn/model.h"

/** A kernel lies between two exchanges of a layer; nn/model.h has the order. */
typedef enum gw_kernel_kind {
    GW_KERNEL_PARAMETERS, /* packs what tensor ranks gather of the parameters */
    GW_KERNEL_INPUT,      /* packs what they gather of the input */
    GW_KERNEL_PRODUCT,    /* the forward pass up to their sum; */
    GW_KERNEL_TRANSFER,   /* and what follows it */
    GW_KERNEL_ENTER,      /* the backward pass begins */
    GW_KERNEL_DESCEND,    /* the gradient of the input, packed */
    GW_KERNEL_WEIGHTS,    /* the gradient of the parameters */
    GW_KERNEL_ARRIVE      /* what follows the sum of the input's gradient */
} gw_kernel_kind;

typedef struct gw_kernel {
    gw_kernel_kind kind;
    int l;       /* layer, of those held here */
    gw_act act;  /* of which it is a part */
    gw_micro at; /* the rows */
    /** PRODUCT: nothing is exchanged, so it has the transfer in it. WEIGHTS: nobody waits for the
     *  input's gradient, so they come first, and enter the layer; DESCEND: they have come. */
    bool alone;
} gw_kernel;

/** Who computes; `of` is the walk's. Members that say so may be NULL: there is nothing to do. */
typedef struct gw_walk_ops {
    /** Put the layers of a chunk that are held here into [*first, *end). */
    void (*layers)(const void *of, int chunk, int *first, int *end);
    /** Return where an action's microbatch lies, and how many rows it has. */
    gw_micro (*at)(const void *of, gw_act act);
    /** Do tensor ranks exchange anything of these rows at that moment? */
    bool (*joins)(const void *of, int l, gw_moment moment, gw_micro at);
    /** Get its schedule, to be started (`starts`) or waited for. NULL: there is none. */
    gw_err (*join)(void *of, int l, gw_moment moment, gw_micro at, bool starts, gw_schedule **out);
    /** Does a part of the layer's gradient arrive with what is summed of its input's? NULL: no. */
    bool (*arrives)(const void *of, int l);
    /** Run a kernel, or let its time pass. */
    gw_err (*compute)(void *of, const gw_kernel *k);
    /** Take the loss of a microbatch, whose logits are there; again where they were recomputed. */
    gw_err (*loss)(void *of, gw_act act);
    /** An action comes next, whose input may not be there yet. May be NULL. */
    gw_err (*next)(void *of, gw_act act);
    /** It begins, its input being there; and has ended. */
    gw_err (*begin)(void *of, gw_act act);
    void (*end)(void *of, gw_act act);
    /** Layer l's parameters are needed now: before its first forward pass of a step. */
    gw_err (*await)(void *of, int l);
    /** Layer l's gradient is final. May be NULL. */
    gw_err (*ready)(void *of, int l);
    /** A bounded poll of all that is under way. NULL: `compute` polls. */
    gw_err (*poll)(void *of);
    /** A message of an action is started or waited for along `d`, and that is over. May be NULL. */
    void (*message)(void *of, gw_act act, gw_dim d, bool begins);
} gw_walk_ops;

/** The caller owns all of it. */
typedef struct gw_walk {
    const gw_walk_ops *ops;
    void *of;
    gw_runner runner;
    int pieces;     /* runs of rows, where tensor ranks exchange; from 1 on */
    bool recompute; /* chunks keep only their inputs */
} gw_walk;

/** Take a step: forward and backward, with all that it sends. Collective over a replica. Errors are
 *  those of the table and of messages. */
gw_err gw_walk_step(gw_walk *w);

/** All layers of a chunk forward, without the loss. `first`: their parameters are awaited. Of an
 *  action that is not GW_ACT_FORWARD: again, for a chunk that kept only its inputs. */
gw_err gw_walk_forward(gw_walk *w, gw_act act, bool first);

/** Hand the result of an action on, if another stage takes it. */
gw_err gw_walk_send(gw_walk *w, gw_act act);

/** Start the exchange of layer l at a moment, if there is one, and wait for it. */
gw_err gw_walk_join(gw_walk *w, int l, gw_act act, gw_moment moment, gw_micro at);

/** Does the chunk hold the first layer of the model; the last one? */
bool gw_walk_is_bottom(const gw_walk *w, int chunk);
bool gw_walk_is_top(const gw_walk *w, int chunk);

#endif
