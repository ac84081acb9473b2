/** The strategy seam: WHEN which span is exchanged in a step, and who updates it.
 *
 *  To add one: ONE new file comm/strategy/NAME.c that defines `const gw_strategy_ops
 *  gw_strategy_NAME` and ONE line X(NAME) in strategies.def. Out of tree: a shared object that
 *  exports `gw_strategy_plugin`, given by path: --comm ./libmine.so
 *
 *  A step, as the strategy sees it:  ready(layer L-1) .. ready(layer 0), with progress() after each
 *  layer; finish(span); the optimizer on update.own; publish(span). `--update eager` finishes the
 *  whole arena at the end of the step; `lazy` finishes layer by layer just before the next forward
 *  pass reads each layer, so ready() of a step always follows finish() of the one before. */
#ifndef GW_COMM_STRATEGY_H
#define GW_COMM_STRATEGY_H

#include "comm/algo.h"

#define GW_STRATEGY_ABI 1

/** param[own] -= lr * scale * grad[own] is what the trainer does next (through its optimizer);
 *  own.n == 0: nothing to update on this rank. */
typedef struct gw_update {
    const float *grad; /* an arena, indexed like the parameters */
    gw_span own;
    float scale;
} gw_update;

/** What the session lends a strategy for its life; all of it stays the session's. */
typedef struct gw_env {
    float *param, *grad; /* the two arenas */
    size_t n;            /* floats in each */
    const gw_span *layers;
    int n_layers;
    gw_lane *grads;      /* lane for gradients: the chosen codec and its residual */
    gw_lane *params;     /* lane for parameters: exact */
    const gw_algo *algo; /* the chosen algorithm; carries both lanes' codecs */
    const gw_args *args; /* the strategy's own options */
} gw_env;

typedef struct gw_strategy_ops {
    gw_entry head; /* its options include GW_STRATEGY_ALGO */
    /** MPI thread level it needs beyond MPI_THREAD_FUNNELED; NULL: none. */
    int (*thread_level)(const gw_args *args);
    gw_err (*open)(void **self, const gw_env *env); /* collective */
    void (*close)(void *self);                      /* collective; drains */
    /** Optional: grad[s] is final on this rank. Spans come in backward order; must not block. */
    gw_err (*ready)(void *self, gw_span s);
    /** Optional: called between kernels; a bounded poll. */
    gw_err (*progress)(void *self);
    /** Blocks until grad[s] is exchanged; *u says what this rank is to update. */
    gw_err (*finish)(void *self, gw_span s, gw_update *u);
    /** Optional: after the optimizer ran on u->own: make param[s] agree on all ranks. */
    gw_err (*publish)(void *self, gw_span s);
    /** Optional: drain, then save or load what the strategy carries from step to step. */
    gw_err (*state)(void *self, gw_io *io);
} gw_strategy_ops;

/** The option that every strategy offers. */
#define GW_STRATEGY_ALGO                                                                           \
    {                                                                                              \
        "algo", GW_OPT_TEXT, "", 0, 0, NULL, "NAME",                                               \
            "algorithm (default: native where it carries the codec, else sra)"                     \
    }

/** A strategy bound to its options, before it is opened on an env. */
typedef struct gw_strategy {
    const gw_strategy_ops *ops;
    gw_args *args;
} gw_strategy;

extern const gw_registry gw_strategies;

/** Look up and parse "name[:opt=value,...]"; no communication. */
gw_err gw_strategy_find(gw_strategy *out, const char *spec);
void gw_strategy_free(gw_strategy *s);

#endif
