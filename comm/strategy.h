/** The strategy seam: WHEN which span is exchanged in a step, and who updates it.
 *
 *  To add one: ONE new file comm/strategy/NAME.c that defines `const gw_strategy_ops
 *  gw_strategy_NAME` and ONE line X(NAME) in strategies.def. Out of tree: a shared object that
 *  exports `gw_strategy_plugin`, given by path: --comm ./libmine.so
 *
 *  A step, as the strategy sees it:  ready(layer L-1) .. ready(layer 0), with progress() after each
 *  layer; finish(span); the optimizer on update.own; publish(span); await(layer) before the next
 *  forward pass reads that layer. `--update eager` finishes the whole arena at the end of the step;
 *  `lazy` finishes layer by layer during the next forward pass, each layer before the pass reads
 *  it, so ready() of a step always follows finish() of the one before. */
#ifndef GW_COMM_STRATEGY_H
#define GW_COMM_STRATEGY_H

#include "base/io.h"
#include "comm/collective.h"

#define GW_STRATEGY_ABI 17

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

/** What the session lends a strategy for its lifetime. The session owns all of it. */
typedef struct gw_env {
    float *param, *grad; /* the two arenas; at open they hold initial parameters and zeros. param
                            may be NULL without GW_STRATEGY_PARAMS, or with `parts` */
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
                        GW_STRATEGY_PARAMS strategies, only those of GW_SHAPE_SHARDS see it */
    bool skip;       /* this step's gradients are void: on all ranks if the strategy is
                        GW_STRATEGY_SYNCHRONOUS, else this rank's. Set before publish() or, if
                        there is no ready(), finish(). Nothing was updated, unless the strategy is
                        GW_STRATEGY_LATE. If it is synchronous, not late and has no ready(), it
                        does not see a void step: neither finish() nor publish() is called. The
                        session takes care of the lanes' residual */
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

/** For finish() of a strategy that exchanges parameters: update s by the mean gradient over this
 *  rank's own samples, or nothing if it has no samples in this step. */
gw_update gw_env_own_update(const gw_env *env, gw_span s);

/** Return the cost of `messages` messages per span of a step, each of `copies` times its floats. */
gw_cost gw_env_messages(const gw_env *env, uint64_t messages, size_t copies);

enum {
    GW_STRATEGY_SYNCHRONOUS = 1, /* all ranks meet in every step: replicas agree after each */
    GW_STRATEGY_EXACT = 2,       /* with an exact codec, every update is that of a serial run */
    GW_STRATEGY_LOSSY = 4,       /* compresses by itself: no codec makes its sums exact */
    GW_STRATEGY_ENCODES = 16,    /* never reads grad itself: the lane encodes what ready() or
                                     finish() names, in the same step (gw_encoder's `fed`). Excludes
                                     GW_STRATEGY_LATE */
    GW_STRATEGY_PARAMS = 32,     /* reads or writes env->param */
    GW_STRATEGY_MEAN = 64,       /* finish() gives every rank the mean of all ranks' gradients */
    GW_STRATEGY_DIRECTS = 128,   /* finish() returns not a gradient but the direction of an update,
                                     with its own momentum, on one rank, too: --optimizer sgd
                                     applies it. Excludes GW_STRATEGY_MEAN */
    GW_STRATEGY_PICKS = 256,     /* sends elements that it picks, of any tensors. The gradients
                                    decide how many bytes; `cost` gives the most */
    GW_STRATEGY_REJOINS = 512,   /* replicas diverge at times. In a step after which they agree,
                                    finish() may first reset env->param to where they last agreed;
                                    it is void on all ranks or none, as if synchronous */
    GW_STRATEGY_LATE = 8         /* finish() returns the gradient of an earlier step; if env->skip
                                     says that a step is void, publish() takes zeros in place of
                                     its gradient */
};

/** What a step exchanges, for code that predicts its time or plays it without a model. */
typedef enum gw_strategy_shape {
    GW_SHAPE_OTHER,     /* unknown */
    GW_SHAPE_WHOLE,     /* gradients, all at once and blocking, when the last is final */
    GW_SHAPE_BUCKETS,   /* gradients, in parts of option `bucket`, each as soon as it is final */
    GW_SHAPE_LAYERS,    /* gradients, each layer's as soon as it is final */
    GW_SHAPE_SHARDS,    /* reduce-scatter of gradients, then allgather of updated parameters */
    GW_SHAPE_PARAMETERS /* parameters, after each rank moved them by its own gradient */
} gw_strategy_shape;

/** "whole", "buckets", ... Static string. */
const char *gw_strategy_shape_name(gw_strategy_shape shape);

typedef struct gw_strategy_ops {
    gw_entry head; /* its options include GW_STRATEGY_ALGO */
    unsigned traits;
    gw_strategy_shape shape;
    /** Bytes and messages of a step over all ranks, for `gradwire list`: in collectives of the
     *  algorithm, or in n, P and b = bytes of the encoded gradient. */
    const char *formula;
    /** Why these cannot be combined (completes "strategy S: "), or NULL. Optional. */
    const char *(*refuses)(const gw_args *args, const gw_algo *algo, const gw_codec *codec);
    /** Return the number of threads that it runs beside those of the run, and that may call MPI;
     *  NULL: none. */
    int (*helpers)(const gw_args *args);
    /** Does progress() advance anything with these options? If not, products are computed whole.
     *  NULL: yes, if there is a progress(). */
    bool (*polls)(const gw_args *args);
    /** Return how many ranks, from 0 on, only serve and get no samples; NULL: none. */
    int (*servers)(const gw_args *args);
    /** Bytes that it keeps from call to call: the `self` of the functions below, zeroed at open. */
    size_t size;
    gw_err (*open)(void *self, const gw_env *env); /* collective; lays down what it can */
    void (*close)(void *self); /* collective; drains. Called after an open that failed, too */
    /** Optional: grad[s] is final on this rank. Spans come in backward order; must not block. */
    gw_err (*ready)(void *self, gw_span s);
    /** Optional: a bounded poll, called between kernels. */
    gw_err (*progress)(void *self);
    /** Block until grad[s] is exchanged; *u says what this rank must update. */
    gw_err (*finish)(void *self, gw_span s, gw_update *u);
    /** Optional: after the optimizer ran on u->own, make param[s] agree on all ranks. Need not
     *  wait if there is an `await`. */
    gw_err (*publish)(void *self, gw_span s);
    /** Optional: block until param[s] may be read. */
    gw_err (*await)(void *self, gw_span s);
    /** Optional, collective: between steps, before parameters are evaluated, saved or compared,
     *  make the replicas agree if steps alone do not. */
    gw_err (*settle)(void *self);
    /** Optional: drain, then save or load what the strategy carries from step to step. */
    gw_err (*state)(void *self, gw_io *io);
    /** Return what exchange number `exchange` (0, 1, ..: one per step) sends, all ranks together,
     *  without settle(); for codecs of fixed size. The ledger must count the same; if the strategy
     *  picks, as many messages and no more bytes. */
    gw_cost (*cost)(const void *self, int64_t exchange);
    /** Return after how many exchanges their cost and time repeat, from exchange number `from`
     *  on; 0: never. NULL: each is like the others. Means over steps count whole periods. */
    int64_t (*period)(const void *self, int64_t from);
    /** Return what settle() sends; NULL: nothing. */
    gw_cost (*settle_cost)(const void *self);
    /** Optional, between steps, the same on all ranks: will the replicas agree without settle()
     *  once `steps` more are published (0: do they now)? Not asked of a synchronous strategy, whose
     *  replicas always agree. NULL: never. */
    bool (*agrees)(const void *self, int steps);
    /** Do they ever agree so, with these options? NULL: if there is an `agrees`. */
    bool (*meets)(const gw_args *args);
    /** Return the part of s that this rank updates after finish(s), the same in every step in which
     *  it updates; NULL: all of s. */
    gw_span (*owned)(const void *self, gw_span s);
    /** The greatest magnitude of a gradient that it can compute with; a larger one would make its
     *  state infinite. 0: any float. */
    float most;
} gw_strategy_ops;

/** `refuses` of a strategy that sends uncompressed parameters. */
const char *gw_strategy_refuses_coded(const gw_args *args, const gw_algo *algo,
                                      const gw_codec *codec);

/** The option that every strategy offers. */
#define GW_STRATEGY_ALGO                                                                           \
    {                                                                                              \
        "algo", GW_OPT_SPEC, "", 0, 0, NULL, "NAME",                                               \
            "algorithm (default: native where MPI can sum the encodings, gathersum for sparse "    \
            "codecs, else sra)"                                                                    \
    }

/** A strategy bound to its options, before it is opened on an env. */
typedef struct gw_strategy {
    const gw_strategy_ops *ops;
    gw_args *args;
} gw_strategy;

extern const gw_registry gw_strategies;

/** Detect the name of a strategy, codec or algorithm where another of the three belongs:
 *  GW_ERR_USAGE, with the right option. GW_OK: `reg` has the name, or none of them has. */
gw_err gw_exchange_misplaced(const gw_registry *reg, const char *name);

/** Look up an entry; no communication. */
gw_err gw_strategy_find(gw_strategy *out, const gw_spec *spec);

/** Return the MPI thread level that it needs. */
int gw_strategy_thread_level(const gw_strategy *s);

/** Write the names of the table's strategies that fit, "a, b, c", to text; return it. */
enum { GW_STRATEGY_NAMES = 256 };
const char *gw_strategy_names(bool (*fits)(const gw_strategy_ops *ops),
                              char text[GW_STRATEGY_NAMES]);

/** Check that the strategy works with these; else GW_ERR_UNSUPPORTED with its reason. */
gw_err gw_strategy_check(const gw_strategy *s, const gw_algo *algo, const gw_codec *codec);
void gw_strategy_free(gw_strategy *s);

/** Allocate `size` bytes, then open; a failure leaves nothing behind. gw_strategy_close takes NULL.
 *  Collective. */
gw_err gw_strategy_open(const gw_strategy *s, const gw_env *env, void **self);
void gw_strategy_close(const gw_strategy *s, void *self);

#endif
