/** The life of communication in a run: parsed before MPI starts, opened over a model's layers, then
 *  a front for each hook of the strategy, which names the ledger's phase. A front's work outside
 *  codec and MPI calls (bookkeeping of strategy and engine) is communication time, too. */
#ifndef GW_RUN_SESSION_H
#define GW_RUN_SESSION_H

#include "base/steady.h"
#include "run/clip.h"
#include "run/residuals.h"
#include "run/undo.h"
#include "run/unmet.h"

/** Sees each part of the local gradient before it is exchanged, after the rule of error feedback,
 *  and the result of the exchange. With ef21 both are changes, before they are added up. */
typedef struct gw_session_tap {
    void *ctx;
    void (*before)(void *ctx, const float *grad, gw_span s);
    void (*after)(void *ctx, const gw_update *u);
} gw_session_tap;

/** What a rule of error feedback keeps (run/residuals.h), n floats each. */
typedef struct gw_session_rule {
    float *own;          /* for gw_residuals_before; NULL: a plain rule keeps nothing */
    float *estimate;     /* for gw_residuals_collect; NULL: not ef21 */
    int64_t rounds;      /* exchanges so far, without void ones */
    gw_algo dense;       /* for the dense first step of ef21, */
    gw_collective start; /* and its sum */
} gw_session_rule;

/** Everybody may read it; only the functions below write it, except where noted. */
typedef struct gw_session {
    gw_strategy strategy;
    gw_mix mix; /* codecs and algorithms; none before gw_session_bind */
    gw_residuals residuals;
    bool framed;          /* encodings travel in frames */
    const char *feedback; /* one of gw_session_new's words */
    const char *note;     /* the caller sets it before opening: a line for `notes`; NULL: none */
    const char *table;    /* likewise: choices of algo=auto that an earlier start made */
    /* once it is open: */
    gw_env env;                        /* the two arenas and the lanes */
    gw_coded *coded;                   /* what this rank encoded of each layer so far */
    gw_lane_notes notes;               /* what strategy and algorithms found and decided */
    void *self;                        /* the strategy's */
    gw_session_tap tap;                /* the caller's */
    uint64_t logical_bytes;            /* float32 bytes of all spans finished so far */
    gw_codings codings[GW_MIX_CODECS]; /* of the mix's codecs */
    gw_coded encoded[GW_MIX_CODECS];   /* the same over all ranks, as last found */
    gw_cost settled;                   /* what the last settling sent, all ranks together */
    gw_clip clip;
    float most;     /* the optimizer's, as the setup has it */
    gw_unmet unmet; /* what was asked for and does not happen, as last found */
    /* private: */
    uint64_t recounted; /* logical_bytes then */
    gw_codec exact;
    float correction;
    gw_session_rule rule;
    gw_undo undo;
    bool together; /* all ranks decide whether the present step is void, and leave it out as one */
} gw_session;

/** Check the combination; no MPI call. The session owns *mix from now on, also after an error; if
 *  the mix has no codec yet, gw_session_bind brings one. GW_ERR_USAGE, GW_ERR_INPUT or
 *  GW_ERR_UNSUPPORTED from the registries. `feedback` is kept:
 *  "off", "on"  no error feedback; for all codecs except lossless ones
 *  "auto"       for biased codecs
 *  "momentum"   as auto, and the optimizer's momentum is applied to each rank's own gradient before
 *               it is exchanged, so that what a codec holds back is not delayed twice
 *  "dgc"        likewise, and an element's momentum restarts when it was sent (momentum correction
 *               and factor masking: Lin et al., "Deep gradient compression", ICLR 2018)
 *  "ef21:..", "loco:.."  see run/residuals.h
 */
gw_err gw_session_new(gw_session **out, const gw_spec *comm, gw_mix *mix, const char *feedback);

/** Before gw_session_open, if gw_session_new got no codec: use *mix (owned from now on) over
 *  `algo`. Until then the session has neither codec nor algorithm. */
gw_err gw_session_bind(gw_session *s, gw_mix *mix, const gw_spec *algo);

/** Free; call gw_session_close first if it was opened. */
void gw_session_free(gw_session *s);

/** Return whether error feedback holds something back; before opening: whether it would. */
bool gw_session_feeds_back(const gw_session *s);
/** Return what error feedback holds back on this rank, env.n floats; NULL: nothing, as on a single
 *  rank. Once it is open. */
float *gw_session_residual(const gw_session *s);
/** Find `unmet` anew, once it is open; if it has ended, `encoded` before it: collective then, over
 *  `comm`, the session's or one that contains it. */
gw_err gw_session_find_unmet(gw_session *s, gw_unmet_ask ask, MPI_Comm comm);
/** Return how many frames were checked so far. */
uint64_t gw_session_frames(const gw_session *s);
/** Count encodings from here on: all before was a rehearsal. */
void gw_session_recount(gw_session *s);

/** Return the codec's name, or a mix's spec, for reports. */
const char *gw_session_compression(const gw_session *s);

typedef struct gw_session_setup {
    size_t n;              /* floats in an arena */
    const gw_span *layers; /* which cut it; must outlive the session's use */
    int n_layers;
    const gw_tensor *tensors; /* which cut it further; likewise; n_tensors 0: not known */
    int n_tensors;
    bool in_rows;             /* of a matrix; see comm/strategy.h */
    const char *const *names; /* of the tensors; NULL: they have none */
    int model_layers;         /* of the whole model, if these are a part of it; 0: they are all */
    bool by_layer;            /* lazy: finish and publish are called per layer */
    bool keeps; /* the caller has the parameters: env.param is NULL, if the strategy allows it */
    bool parts; /* a rank needs only the parameters that it updates: env.param is NULL */
    bool adds;  /* the caller asks gw_session_sums where gradients go */
    bool lists; /* gw_update may list what it touches (gw_optimizer_lists) */
    const float *params;     /* initial values, copied; NULL: zeros */
    gw_vectors vectors;      /* the optimizer's state; must outlive the session's use */
    float most;              /* the optimizer's (optim/optimizer.h); 0: any float */
    double link_bytes_per_s; /* 0: not known */
    float correction;        /* momentum for a session that corrects, in [0, 1) */
    gw_clip_setup clip;
    uint64_t seed;
    bool yield;                               /* the node runs more threads than cores */
    bool undo;                                /* keep what gw_session_undo needs */
    void (*arrived)(void *ctx, gw_span part); /* as in gw_env, if finish() changes nothing */
    void *arrived_ctx;
} gw_session_setup;

/** Open lanes, the two arenas (zeroed; the session's) and the strategy. GW_ERR_UNSUPPORTED on all
 *  ranks for what cannot work on this communicator. Collective. */
gw_err gw_session_open(gw_session *s, MPI_Comm comm, const gw_session_setup *setup);
void gw_session_close(gw_session *s); /* collective */

/** Begin a new exchange, before the first ready() of a step and after the last publish() of the
 *  previous one. `share` as in gw_env. */
void gw_session_begin(gw_session *s, double share);

/** Return where the backward pass must add this step's gradient: the residual, so that the exchange
 *  need not add it in a separate pass. NULL: the pass writes the gradient to env.grad. Between
 *  gw_session_begin and ready(). */
float *gw_session_sums(gw_session *s);

/** Can gradients be summed in place in the caller's memory, if that is lent? Yes if only the
 *  algorithm reads them, and it sums exact values in shared memory. */
bool gw_session_takes_lent(const gw_session *s);

/** If so, lend as gw_lent_add does; `notes` report the result. Collective. */
gw_err gw_session_lend(gw_session *s, void *memory, size_t bytes, int fd);

/** Before ready() of its span: say that tensor t's gradient lies at `grad`, with `weight`, and that
 *  the result will go there. False: `grad` is NULL or not in lent memory; it goes to env.grad. */
bool gw_session_lies(gw_session *s, int t, float *grad, float weight);

/** Return what was lent, alike on all ranks; NULL: nothing. */
const struct gw_lent *gw_session_lent(const gw_session *s);

/** Return the greatest magnitude of a rank's gradient (its part of the global mean, of weight
 *  `share`) with which neither sums over the ranks nor the state of strategy, error feedback and
 *  optimizer overflow. 0: any that is finite. */
float gw_session_most(const gw_session *s, double share);

/** Return the spec of the codec that encodes the arena's float `at`. */
const char *gw_session_codec_of(const gw_session *s, size_t at);

/** Is the present step void (env.skip), and nothing to be updated? GW_GIVES_LATE updates all the
 *  same. */
bool gw_session_voids(const gw_session *s);
/** Is the present step (env.skip) void as a whole on all ranks? Then, unless the strategy begins
 *  its exchange in ready(), neither finish nor publish need be called for it. */
bool gw_session_leaves_out(const gw_session *s);
/** Undo a void step: restore residual, momentum and ticket from before it. The ranks may have
 *  decided together or apart, and nothing of the step is under way. With GW_GIVES_LATE, and where
 *  ranks decide apart, a void step goes on, too: then only the session's momentum is restored,
 *  unless the step was `abandoned` before anything of it was exchanged. Needs setup->undo. */
void gw_session_undo(gw_session *s, bool abandoned);

/** Will replicas agree without being settled, once `steps` more are published (0: do they now,
 *  with nothing pending)? */
bool gw_session_agrees(const gw_session *s, int steps);

/** Return how the exchange repeats from step number `from` (0, 1, ..) on. While codecs warm up the
 *  strategy keeps its period, but not all that steps send repeats. */
gw_repeat gw_session_repeat(const gw_session *s, int64_t from);

/** The strategy's hooks; see comm/strategy.h. */
gw_err gw_session_ready(gw_session *s, gw_span span);
gw_err gw_session_progress(gw_session *s);
gw_err gw_session_finish(gw_session *s, gw_span span, gw_update *u);
gw_err gw_session_publish(gw_session *s, gw_span span);
gw_err gw_session_await(gw_session *s, gw_span span);
gw_err gw_session_settle(gw_session *s);

/** Return the part of `span` that this rank updates after each gw_session_finish(span). */
gw_span gw_session_owned(const gw_session *s, gw_span span);

/** Drain, then save or load all that the exchange carries from step to step: the strategy's state,
 *  residuals, momentum and ticket, but not parameters, which the model saves. One call per rank,
 *  each with its own `io`. Collective. */
gw_err gw_session_state(gw_session *s, gw_io *io);

/** Continue after `steps` of a session whose state is not loaded: a codec's warm-up and random
 *  numbers go on from there. */
void gw_session_count_on(gw_session *s, int64_t steps);

#endif
