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
 *  it, so ready() of a step always follows finish() of the one before. comm/env.h has what a
 *  strategy works with. */
#ifndef GW_COMM_STRATEGY_H
#define GW_COMM_STRATEGY_H

#include "base/io.h"
#include "comm/env.h"

#define GW_STRATEGY_ABI 19

/** The kinds of update that finish() hands out. The first three are gradients of the same step. */
typedef enum gw_gives {
    GW_GIVES_MEAN = 1, /* to every rank the mean gradient of all ranks */
    GW_GIVES_PARTS,    /* to every rank its part of it (gw_span_part): a reduce-scatter, and
                          publish() gathers the updated parameters */
    GW_GIVES_ROOT,     /* to rank 0 all of it, to the others nothing */
    GW_GIVES_LATE,     /* to every rank the mean of an earlier step; publish() takes that of this
                          step, or zeros if env->skip says that it is void */
    GW_GIVES_OWN,      /* to every rank the mean gradient over its own samples; nothing to one that
                          has none. Parameters are exchanged, not gradients */
    GW_GIVES_DIRECTION /* no gradient but the direction of an update, with a momentum of its own, on
                          one rank, too: --optimizer sgd applies it. If it publishes parameters,
                          finish() may first reset env->param to where the replicas last agreed */
} gw_gives;

enum {
    GW_STRATEGY_LOSSY = 1,   /* compresses by itself: no codec makes its sums exact */
    GW_STRATEGY_ENCODES = 2, /* never reads grad itself: the lane encodes what ready() or finish()
                                names, in the same step (gw_encoder's `fed`) */
    GW_STRATEGY_VARIES = 4   /* exchanges differ in what they send, or to whom */
};

/** How gradients travel, for code that predicts the time of a step. */
typedef enum gw_strategy_shape {
    GW_SHAPE_OTHER,   /* unknown, or `gives` says it */
    GW_SHAPE_WHOLE,   /* all at once and blocking, when the last is final */
    GW_SHAPE_BUCKETS, /* in parts of option `bucket`, each as soon as it is final */
    GW_SHAPE_LAYERS   /* each layer's as soon as it is final */
} gw_strategy_shape;

/** Facts of a strategy with its options, known before it is opened. */
typedef struct gw_strategy_plan {
    const gw_args *args;
    const gw_algo *algo;   /* NULL as long as algorithm */
    const gw_codec *codec; /* and codec are not chosen */
    int helpers;           /* threads beside those of the run, that may call MPI */
    int servers;           /* ranks, from 0 on, that only serve and get no samples */
    bool polls;            /* progress() advances something; if not, products are computed whole */
    bool agrees; /* replicas agree at times without settle(), though not after each step */
    bool picks;  /* it sends elements that it picks, of any tensors: the gradients decide how many
                    bytes */
} gw_strategy_plan;

typedef struct gw_strategy_ops {
    gw_entry head;  /* its options include GW_STRATEGY_ALGO */
    gw_gives gives; /* no default: the whole program relies on it */
    unsigned traits;
    gw_strategy_shape shape;
    float most; /* the greatest magnitude of a gradient that it can compute with; a larger one would
                   make its state infinite. 0: any float */
    /** Bytes and messages of a step over all ranks, for `gradwire list`: in collectives of the
     *  algorithm, or in n, P and b = bytes of the encoded gradient. */
    const char *formula;
    /** Optional: set what differs from the default, which is 0, `polls` if there is a progress(),
     *  and `agrees` if there is an agrees(). Return why the options, the algorithm or the codec
     *  cannot be combined (completes "strategy S: "), or NULL. */
    const char *(*plan)(gw_strategy_plan *p);
    /** Bytes that it keeps from call to call: the `self` of the functions below, zeroed at open. */
    size_t size;
    gw_err (*open)(void *self, const gw_env *env); /* collective; lays down what it can */
    void (*close)(void *self); /* collective; drains. Called after an open that failed, too */
    /** Optional: grad[s] is final on this rank. Spans come in backward order; must not block. */
    gw_err (*ready)(void *self, gw_span s);
    /** Optional: a bounded poll, called between kernels. */
    gw_err (*progress)(void *self);
    /** Block until grad[s] is exchanged. *u says what this rank must update: env->grad, the part of
     *  s that `gives` says, and its scale, unless this changes it. */
    gw_err (*finish)(void *self, gw_span s, gw_update *u);
    /** Optional: after the optimizer ran on u->own, make param[s] agree on all ranks. Need not
     *  wait if there is an `await`. */
    gw_err (*publish)(void *self, gw_span s);
    /** Optional: block until param[s] may be read. */
    gw_err (*await)(void *self, gw_span s);
    /** Optional, collective: between steps, before parameters are evaluated, saved or compared,
     *  make the replicas agree if steps alone do not. Set *sent to what all ranks together send for
     *  that, unless it is nothing. */
    gw_err (*settle)(void *self, gw_cost *sent);
    /** Optional: drain, then save or load what the strategy carries from step to step. */
    gw_err (*state)(void *self, gw_io *io);
    /** Return what exchange number `exchange` (0, 1, ..: one per step) sends, all ranks together,
     *  without settle(); for codecs of fixed size. The ledger must count the same; if the strategy
     *  picks, as many messages and no more bytes. If it varies, set *period to the number of
     *  exchanges after which cost and time repeat from this one on; 0: never. Means over steps
     *  count whole periods. */
    gw_cost (*cost)(const void *self, int64_t exchange, int64_t *period);
    /** Of a strategy whose replicas do not agree after each step; optional with GW_GIVES_OWN.
     *  Between steps, the same on all ranks: will they agree without settle() once `steps` more are
     *  published (0: do they now)? */
    bool (*agrees)(const void *self, int steps);
} gw_strategy_ops;

/** Do all ranks meet in every step, so that replicas agree after each? */
static inline bool gw_strategy_synchronous(const gw_strategy_ops *s) {
    return s->gives != GW_GIVES_OWN && !s->agrees;
}
/** With an exact codec, is every update that of a serial run? */
static inline bool gw_strategy_exact(const gw_strategy_ops *s) {
    return s->gives <= GW_GIVES_ROOT && !(s->traits & GW_STRATEGY_LOSSY);
}
/** Does it read or write env->param? */
static inline bool gw_strategy_publishes(const gw_strategy_ops *s) {
    return s->publish && s->gives != GW_GIVES_LATE;
}

/** `plan` of a strategy that sends uncompressed parameters. */
const char *gw_strategy_plan_exact(gw_strategy_plan *p);

/** The option that every strategy offers. */
#define GW_STRATEGY_ALGO                                                                           \
    {                                                                                              \
        "algo", GW_OPT_SPEC, "", 0, 0, NULL, "NAME",                                               \
            "algorithm (default: native where MPI can sum the encodings, gathersum for sparse "    \
            "codecs, else sra)"                                                                    \
    }

/* ---- the rest is for who runs a strategy ---- */

/** A strategy bound to its options, before it is opened on an env. */
typedef struct gw_strategy {
    const gw_strategy_ops *ops;
    gw_args *args;
    gw_strategy_plan plan; /* without algorithm and codec */
} gw_strategy;

extern const gw_registry gw_strategies;

/** Return what a step exchanges: "shards" or "parameters" by what it gives, else "whole",
 *  "buckets", "layers" or "other" by its shape. Static string. */
const char *gw_strategy_shape_name(const gw_strategy_ops *ops);

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

/** Call finish() of an opened strategy. */
gw_err gw_strategy_finish(const gw_strategy_ops *ops, void *self, const gw_env *env, gw_span s,
                          gw_update *u);

/** Return after how many exchanges cost and time repeat from number `from` on; 0: never. */
int64_t gw_strategy_period(const gw_strategy_ops *ops, const void *self, int64_t from);

/** Return the part of s that this rank updates after finish(s), the same in every step in which it
 *  updates. */
gw_span gw_strategy_owned(const gw_strategy_ops *ops, const gw_lane *lane, gw_span s);

#endif
