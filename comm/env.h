/** A strategy (comm/strategy.h) works with this: arenas, lanes and options of its run. */
#ifndef GW_COMM_ENV_H
#define GW_COMM_ENV_H

#include "comm/schedule/collective.h"

/** The trainer (its optimizer) then does param[own] -= lr * scale * grad[own]. own.n == 0: this
 *  rank updates nothing. */
typedef struct gw_update {
    const float *grad; /* an arena, indexed like the parameters */
    gw_span own;
    float scale;
    /* If env->lists: may replace grad by lists of all nonzero elements of `own`, with places
     * counted from the arena's start, none of them twice. NULL: no lists. */
    const gw_elements *lists;
    int n_lists;
} gw_update;

/** The session lends this to a strategy for its lifetime, and owns all of it. */
typedef struct gw_env {
    float *param, *grad; /* the two arenas; at open they hold initial parameters and zeros. param
                            may be NULL with `parts`, or if the strategy publishes none */
    gw_vectors vectors;  /* the optimizer's state, n floats each */
    size_t n;            /* floats in each */
    const gw_span *layers;
    int n_layers;
    const gw_tensor *tensors; /* they tile the arena; n_tensors 0: they are not known */
    int n_tensors;
    bool in_rows;    /* a matrix has a row for each input of its layer; else for each output */
    bool lists;      /* an update may consist of lists */
    bool by_layer;   /* finish() and publish() are called per layer, not for the whole arena */
    bool parts;      /* a rank needs only the parameters that it updates: publish() sends none. Of
                        those that publish parameters, only GW_GIVES_PARTS sees it */
    bool skip;       /* this step's gradients are void: on all ranks, or with GW_GIVES_OWN and in a
                        step after which replicas do not agree, this rank's. Set before publish()
                        or, if there is no ready(), finish(). Except with GW_GIVES_LATE nothing was
                        updated, and where there is no ready(), neither finish() nor publish() is
                        called in a step that is void on all ranks. The session takes care of the
                        lanes' residual */
    double share;    /* in this step: this rank's samples / samples of the global batch. grad is
                        the sum of this rank's gradients divided by the global batch, so
                        grad / share is the mean over this rank's own samples */
    gw_lane *grads;  /* lane for gradients: the chosen codec and its residual */
    gw_lane *params; /* lane for parameters: exact */
    double link_bytes_per_s; /* each way of the link between hosts, on all ranks; 0: not known */
    /* If finish() returns the plain sums in grad, it may call this for each part that is complete
     * while others still travel; NULL: not wanted. */
    void (*arrived)(void *ctx, gw_span part);
    void *arrived_ctx;
    const gw_algo *algo; /* the chosen algorithm; carries both lanes' codecs */
    const gw_args *args; /* the strategy's own options */
    const char *name;    /* the strategy's, for messages */
} gw_env;

/** The spans that finish() and publish() are called with in a step, in order: the arena, or its
 *  layers from the first on. */
static inline int gw_env_spans(const gw_env *env) {
    return env->by_layer ? env->n_layers : 1;
}
static inline gw_span gw_env_span(const gw_env *env, int i) {
    return env->by_layer ? env->layers[i] : (gw_span){0, env->n};
}

/** Find which of these spans is s; an empty s may find another empty one. GW_ERR_INTERNAL: none. */
gw_err gw_env_find(const gw_env *env, gw_span s, int *i);

/** For strategies that do not send all elements in each step. GW_ERR_UNSUPPORTED: a tensor tracks
 *  (gw_tensor), which has to travel whole. */
gw_err gw_env_refuse_tracked(const gw_env *env);

/** For a collective that runs once for each of these spans: lay down all schedules; return what
 *  they cost together. */
gw_err gw_env_prepare(const gw_env *env, gw_collective *collective);
gw_cost gw_env_cost(const gw_env *env, const gw_collective *collective);

/** Return the cost of `messages` messages per span of a step, each of `copies` times its floats. */
gw_cost gw_env_messages(const gw_env *env, uint64_t messages, size_t copies);

#endif
