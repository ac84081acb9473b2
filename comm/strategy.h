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

#define GW_STRATEGY_ABI 16

/** param[own] -= lr * scale * grad[own] is what the trainer does next (through its optimizer);
 *  own.n == 0: nothing to update on this rank. */
typedef struct gw_update {
    const float *grad; /* an arena, indexed like the parameters */
    gw_span own;
    float scale;
    /* Where env->lists allows it, in the place of grad: lists of all that is not zero in `own`,
     * places counted from the arena's start, none of them twice. NULL: there are none. */
    const gw_elements *lists;
    int n_lists;
} gw_update;

/** The wire between hosts, the same on all ranks. */
typedef struct gw_pace {
    double bytes_per_s; /* each way; 0: not known */
    double gap_s;       /* that a rank computes between two polls, at most; 0: a thread polls */
} gw_pace;

/** What the session lends a strategy for its life; all of it stays the session's. */
typedef struct gw_env {
    float *param, *grad; /* the two arenas; at open: initial parameters, zeros. Without
                            GW_STRATEGY_PARAMS, or with `parts`, param may be NULL */
    gw_vectors vectors;  /* the optimizer's state, n floats each */
    size_t n;            /* floats in each */
    const gw_span *layers;
    int n_layers;
    const gw_tensor *tensors; /* which tile the arena; none of them known: n_tensors is 0 */
    int n_tensors;
    bool in_rows;    /* a matrix has a row for each input of its layer; else for each output */
    bool lists;      /* an update may come as lists */
    bool by_layer;   /* finish() and publish() come a layer at a time, not for the whole arena */
    bool parts;      /* a rank needs no parameters but those that it updates: publish() sends none.
                        Of strategies that are GW_STRATEGY_PARAMS only GW_SHAPE_SHARDS are told */
    bool skip;       /* set before publish(), and where there is no ready() before finish(): this
                        step's gradients are void (on all ranks, if the strategy is
                        GW_STRATEGY_SYNCHRONOUS; else this rank's), and unless it is
                        GW_STRATEGY_LATE nothing was updated. A strategy that is synchronous, not
                        late and has no ready() does not see a void step at all: neither finish()
                        nor publish() is called. The lanes' residual is the session's affair */
    double share;    /* of this step: samples of this rank / samples of the global batch. grad
                        is the gradient of this rank's samples summed and divided by the global
                        batch, so grad / share is the mean over this rank's own samples */
    gw_lane *grads;  /* lane for gradients: the chosen codec and its residual */
    gw_lane *params; /* lane for parameters: exact */
    gw_pace pace;
    /* Where finish() hands out sums in grad as they are, it may tell of parts that are complete
     * while others travel; NULL: nobody wants to know. */
    void (*arrived)(void *ctx, gw_span part);
    void *arrived_ctx;
    const gw_algo *algo; /* the chosen algorithm; carries both lanes' codecs */
    const gw_args *args; /* the strategy's own options */
    const char *name;    /* the strategy's, for messages */
} gw_env;

/** The spans that finish() and publish() will ask for in a step, in this order: the arena, or its
 *  layers from the first on. */
static inline int gw_env_spans(const gw_env *env) {
    return env->by_layer ? env->n_layers : 1;
}
static inline gw_span gw_env_span(const gw_env *env, int i) {
    return env->by_layer ? env->layers[i] : (gw_span){0, env->n};
}

/** Which of these spans is s; of empty ones perhaps another. GW_ERR_INTERNAL: none is. */
gw_err gw_env_find(const gw_env *env, gw_span s, int *i);

/** For strategies that send what they pick of all tensors. GW_ERR_UNSUPPORTED: some of them track
 *  (gw_tensor), which has to travel whole. */
gw_err gw_env_refuse_tracked(const gw_env *env);

/** For a collective that is run once for each of these spans: lay all of them down; what that
 *  costs. */
gw_err gw_env_prepare(const gw_env *env, gw_collective *collective);
gw_cost gw_env_cost(const gw_env *env, const gw_collective *collective);

/** finish() of a strategy that exchanges parameters: this rank updates s by the mean gradient over
 *  its own samples; without samples in this step it stays where it is. */
gw_update gw_env_own_update(const gw_env *env, gw_span s);

/** Over all spans of a step: `messages` messages, each of `copies` spans in floats. */
gw_cost gw_env_messages(const gw_env *env, uint64_t messages, size_t copies);

enum {
    GW_STRATEGY_SYNCHRONOUS = 1, /* all ranks meet in every step: replicas agree after each */
    GW_STRATEGY_EXACT = 2,       /* with an exact codec each update is the one of a serial run */
    GW_STRATEGY_LOSSY = 4,       /* compresses by itself: no codec makes its sums exact */
    GW_STRATEGY_ENCODES = 16,    /* it never reads grad itself: the lane encodes what ready() or
                                     finish() names, in the same step (gw_lane's `fed`). Excludes
                                     GW_STRATEGY_LATE */
    GW_STRATEGY_PARAMS = 32,     /* it reads or writes env->param */
    GW_STRATEGY_MEAN = 64,       /* finish() hands the mean of all ranks' gradients to every rank */
    GW_STRATEGY_DIRECTS = 128,   /* what finish() hands out is no gradient but the direction of an
                                     update, with a momentum of its own: --optimizer sgd applies it.
                                     The same on one rank. Excludes GW_STRATEGY_MEAN */
    GW_STRATEGY_PICKS = 256,     /* it sends the elements that it picks, of any tensors: so many
                                    bytes as the gradients make it, and `cost` tells the most */
    GW_STRATEGY_REJOINS = 512,   /* its replicas go apart at times. In a step after which they agree
                                    finish() may first put env->param back to where they last did,
                                    and void is that step on all ranks, as of a synchronous one */
    GW_STRATEGY_LATE = 8         /* finish() hands out the gradient of an earlier step; where
                                     env->skip says that a step is void, publish() takes zeros in
                                     the place of its gradient */
};

/** What a step exchanges, for those who predict its time or play it without a model. */
typedef enum gw_strategy_shape {
    GW_SHAPE_OTHER,     /* nothing is known of it */
    GW_SHAPE_WHOLE,     /* gradients, at once and blocking, when all of them are final */
    GW_SHAPE_BUCKETS,   /* gradients in parts of its option `bucket`, each as soon as it is final */
    GW_SHAPE_LAYERS,    /* gradients, each layer's as soon as it is final */
    GW_SHAPE_SHARDS,    /* reduce-scatter of gradients, then allgather of what the owners updated */
    GW_SHAPE_PARAMETERS /* parameters, which each rank has moved by its own gradient */
} gw_strategy_shape;

/** "whole", "buckets", ... Static string. */
const char *gw_strategy_shape_name(gw_strategy_shape shape);

typedef struct gw_strategy_ops {
    gw_entry head; /* its options include GW_STRATEGY_ALGO */
    unsigned traits;
    gw_strategy_shape shape;
    /** Bytes and messages of a step, all ranks, for `gradwire list`, in terms of the algorithm's
     *  collectives or of n, P, b = bytes of the encoded gradient. */
    const char *formula;
    /** Why these cannot be combined (completes "strategy S: "), or NULL. Optional. */
    const char *(*refuses)(const gw_args *args, const gw_algo *algo, const gw_codec *codec);
    /** MPI thread level it needs beyond MPI_THREAD_FUNNELED; NULL: none. */
    int (*thread_level)(const gw_args *args);
    /** Threads that it runs beside those of the run; NULL: none. */
    int (*helpers)(const gw_args *args);
    /** Does progress() move anything on with these options? NULL: always, if it is there. Where it
     *  does not, products are computed whole. */
    bool (*polls)(const gw_args *args);
    /** How many ranks, from 0 on, only serve and get no samples; NULL: none. */
    int (*servers)(const gw_args *args);
    /** Bytes that it keeps from call to call: `self` of all that follows, zeroed at open. */
    size_t size;
    gw_err (*open)(void *self, const gw_env *env); /* collective; lays down what it can */
    void (*close)(void *self); /* collective; drains. Called after an open that failed, too */
    /** Optional: grad[s] is final on this rank. Spans come in backward order; must not block. */
    gw_err (*ready)(void *self, gw_span s);
    /** Optional: called between kernels; a bounded poll. */
    gw_err (*progress)(void *self);
    /** Blocks until grad[s] is exchanged; *u says what this rank is to update. */
    gw_err (*finish)(void *self, gw_span s, gw_update *u);
    /** Optional: after the optimizer ran on u->own: see to it that param[s] agrees on all ranks.
     *  Need not wait if it has `await`. */
    gw_err (*publish)(void *self, gw_span s);
    /** Optional: blocks until param[s] may be read. */
    gw_err (*await)(void *self, gw_span s);
    /** Collective, optional: between steps, before parameters are evaluated, saved or compared:
     *  make the replicas agree, where steps alone do not. */
    gw_err (*settle)(void *self);
    /** Optional: drain, then save or load what the strategy carries from step to step. */
    gw_err (*state)(void *self, gw_io *io);
    /** What exchange number `exchange` (0, 1, ..: a step each) sends, all ranks together, settle()
     *  aside; for codecs of fixed size. The ledger's counts must equal it, or of a strategy that
     *  picks have as many messages and no more bytes. */
    gw_cost (*cost)(const void *self, int64_t exchange);
    /** What settle() sends; NULL: nothing. */
    gw_cost (*settle_cost)(const void *self);
    /** Optional, between steps, the same on all ranks: will the replicas agree without being
     *  settled once `steps` more are published (0: do they now)? Of a strategy that is synchronous
     *  they always do; NULL of another: never. */
    bool (*agrees)(const void *self, int steps);
    /** Does that, with these options, happen at times? NULL: if there is `agrees`. */
    bool (*meets)(const gw_args *args);
    /** The part of s that this rank updates after finish(s), in every step that it updates in;
     *  NULL: all of it. */
    gw_span (*owned)(const void *self, gw_span s);
    /** The greatest magnitude of a gradient that it can compute with: a larger one would make what
     *  it keeps infinite. 0: any float. */
    float most;
} gw_strategy_ops;

/** For `refuses` of a strategy that sends parameters as they are. */
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

/** The name of a strategy, a codec or an algorithm in the place of another of these: GW_ERR_USAGE,
 *  with the words that give it. GW_OK: `reg` has the name, or none of them has. */
gw_err gw_exchange_misplaced(const gw_registry *reg, const char *name);

/** Look up an entry; no communication. */
gw_err gw_strategy_find(gw_strategy *out, const gw_spec *spec);

/** The names of the table's strategies that fit, "a, b, c", in text. */
enum { GW_STRATEGY_NAMES = 256 };
const char *gw_strategy_names(bool (*fits)(const gw_strategy_ops *ops),
                              char text[GW_STRATEGY_NAMES]);

/** GW_ERR_UNSUPPORTED with the strategy's reason if it cannot work with these. */
gw_err gw_strategy_check(const gw_strategy *s, const gw_algo *algo, const gw_codec *codec);
void gw_strategy_free(gw_strategy *s);

/** Collective: memory for `size` bytes, then open; of what fails nothing is left. gw_strategy_close
 *  takes NULL. */
gw_err gw_strategy_open(const gw_strategy *s, const gw_env *env, void **self);
void gw_strategy_close(const gw_strategy *s, void *self);

#endif
