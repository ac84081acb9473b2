/** The life of communication in a run: parsed before MPI starts, opened over a model's layers, then
 *  fronts for each hook of the strategy that name the ledger's phase. What a front does outside
 *  codec and MPI calls (bookkeeping of strategy and engine) is communication time, too. */
#ifndef GW_RUN_SESSION_H
#define GW_RUN_SESSION_H

#include "comm/mix.h"
#include "comm/strategy.h"

typedef struct gw_session gw_session;

/** Parse and check the combination; no MPI call. `compress` is a mix (comm/mix.h)
, or NULL, which leaves it to
 *  gw_session_bind. GW_ERR_USAGE, GW_ERR_INPUT or GW_ERR_UNSUPPORTED as the registries say.
`wire_check`: all that goes over the
 *  lanes is in frames, which are checked. `feedback`:
 *  "off", "on"  no error feedback; for all codecs but lossless ones
 *  "auto"       for codecs that are biased
 *  "momentum"   as auto, and the optimizer's momentum is applied to each rank's own gradient before
 *               it is exchanged, so that what a codec holds back is not delayed twice
 *  "dgc"        likewise, and where an element was sent its momentum starts anew (momentum
 *               correction and factor masking: Lin et al., "Deep gradient compression", ICLR 2018)
 */
gw_err gw_session_new(gw_session **out, const char *comm, const char *compress,
                      const char *feedback, bool wire_check);

/** Before gw_session_open, where gw_session_new got no codec: take this one, over `algo`, an
 *  algorithm's spec. `feedback` as there. Until then the session has neither codec nor algorithm.
 */
gw_err gw_session_bind(gw_session *s, const char *compress, const char *algo, const char *feedback);
/** How many codecs its tensors have; 0: none is bound yet. */
int gw_session_codecs(const gw_session *s);

/** Before gw_session_open: a line for gw_session_notes. Kept, not copied. */
void gw_session_note(gw_session *s, const char *line);
/** Before gw_session_open: take the choices of algo=auto from `table`, the gw_session_choices of an
 *  earlier start; "": make them anew. Kept, not copied. */
void gw_session_retake(gw_session *s, const char *table);

/** Frees; call gw_session_close first if it was opened. */
void gw_session_free(gw_session *s);

/** MPI thread level that the strategy asks for. */
int gw_session_thread_level(const gw_session *s);
/** Threads that the strategy runs beside those of the run. */
int gw_session_helpers(const gw_session *s);

const gw_strategy_ops *gw_session_strategy(const gw_session *s);
/** The same with its options. */
const gw_strategy *gw_session_way(const gw_session *s);
const gw_algo *gw_session_algorithm(const gw_session *s);
/** The codec's name, or of a mix its spec, for reports. */
const char *gw_session_compression(const gw_session *s);
const gw_codec *gw_session_codec(const gw_session *s);
/** The strategy's own options. */
const gw_args *gw_session_args(const gw_session *s);

/** True if all codecs are. */
bool gw_session_lossless(const gw_session *s);
/** True if some codec keeps a residual; true if momentum is the session's affair, not the
 *  optimizer's. */
bool gw_session_feedback(const gw_session *s);
bool gw_session_corrects(const gw_session *s);
/** Ranks, from 0 on, that only serve and get no samples. */
int gw_session_servers(const gw_session *s);

typedef struct gw_session_setup {
    size_t n;              /* floats in an arena */
    const gw_span *layers; /* which cut it; must outlive the session's use */
    int n_layers;
    const gw_tensor *tensors; /* which cut it further; likewise; n_tensors 0: not known */
    int n_tensors;
    bool by_layer;       /* lazy: finish and publish come a layer at a time */
    bool adds;           /* the caller asks gw_session_sums where gradients go */
    bool lists;          /* gw_update may list what it touches (gw_optimizer_lists) */
    const float *params; /* initial values, copied; NULL: zeros */
    float *momentum;     /* the optimizer's, or NULL; must outlive the session's use */
    gw_pace pace;        /* zeros: not known */
    float correction;    /* momentum for a session that corrects, in [0, 1) */
    uint64_t seed;
    bool yield; /* the node runs more threads than cores */
    bool undo;  /* keep what gw_session_undo needs */
} gw_session_setup;

/** Collective: open lanes, the two arenas (zeroed; the session's) and the strategy.
 *  GW_ERR_UNSUPPORTED on all ranks for what cannot work on this communicator. */
gw_err gw_session_open(gw_session *s, MPI_Comm comm, const gw_session_setup *setup);
void gw_session_close(gw_session *s); /* collective */

float *gw_session_params(gw_session *s);
float *gw_session_grads(gw_session *s);

/** A new exchange begins; before the first ready() of a step. `share` as in gw_env. */
void gw_session_begin(gw_session *s, double share);

/** Where the backward pass is to add this step's gradient: the residual, so that the exchange need
 *  not add it there in a pass of its own. NULL: it writes the gradient to gw_session_grads. Between
 *  gw_session_begin and ready(). */
float *gw_session_sums(gw_session *s);
/** True if it can be so, on several ranks. Of a session that has its codec. */
bool gw_session_adds(const gw_session *s);

/** Sees each part of the local gradient before it is exchanged (momentum applied) and each update
 *  that finish hands out. */
typedef struct gw_session_tap {
    void *ctx;
    void (*before)(void *ctx, const float *grad, gw_span s);
    void (*after)(void *ctx, const gw_update *u);
} gw_session_tap;

/** From now on let `tap` see, or nobody (NULL). */
void gw_session_watch(gw_session *s, const gw_session_tap *tap);

/** The residual, n floats; NULL: none is kept. Read it when nothing is under way. */
const float *gw_session_residual(const gw_session *s);
/** What was encoded of each layer so far, by this rank. */
const gw_coded *gw_session_coded(const gw_session *s);
/** Spec of the codec that the arena's float `at` is sent with. */
const char *gw_session_codec_of(const gw_session *s, size_t at);

/** Before publish: this step's gradients are void, or not (env->skip of comm/strategy.h). */
void gw_session_skip(gw_session *s, bool skip);
/** True if the exchange begins in ready(), before it is known whether the step is void. */
bool gw_session_begins(const gw_session *s);
/** Is the present step void as a whole on all ranks? Then, unless gw_session_begins, neither finish
 *  nor publish need be called for it. */
bool gw_session_leaves_out(const gw_session *s);
/** The present step is void, on all ranks if the strategy is synchronous, and nothing of it is
 * under way: residual, momentum and ticket are again what they were before it. A strategy that is
 *  GW_STRATEGY_LATE, or not synchronous, exchanges something in a void step, too: there only the
 *  session's momentum goes back. The session was opened with setup->undo. */
void gw_session_undo(gw_session *s);

/** Do encodings travel in frames? And how many came in and were checked, on this rank. */
bool gw_session_framed(const gw_session *s);
uint64_t gw_session_frames(const gw_session *s);

/** True if replicas agree now, with nothing pending, without being settled. */
bool gw_session_agrees(const gw_session *s);

/** The strategy's hooks; see comm/strategy.h. */
gw_err gw_session_ready(gw_session *s, gw_span span);
gw_err gw_session_progress(gw_session *s);
gw_err gw_session_finish(gw_session *s, gw_span span, gw_update *u);
gw_err gw_session_publish(gw_session *s, gw_span span);
gw_err gw_session_await(gw_session *s, gw_span span);
/** True if progress() has something to do with this strategy and its options. */
bool gw_session_progresses(const gw_session *s);
/** True if publish() need not wait since await() does. */
bool gw_session_awaits(const gw_session *s);
gw_err gw_session_settle(gw_session *s);

/** Collective: drain, then save or load all that the exchange carries from step to step: the
 *  strategy's state, residuals, momentum and ticket. One call a rank, each with its own `io`.
 *  Parameters are the model's affair, not the session's. */
gw_err gw_session_state(gw_session *s, gw_io *io);

/** `steps` have been done by a session whose state is not loaded: a codec's warm-up and random
 *  numbers go on from there. */
void gw_session_count_on(gw_session *s, int64_t steps);

/** By formula: what exchange number `exchange` sends, all ranks together; what a settle sends. */
gw_cost gw_session_cost(const gw_session *s, int64_t exchange);
gw_cost gw_session_settle_cost(const gw_session *s);

/** What the algorithm found out and decided on this lane of ranks, for a report: lines of text, ""
 *  if there is nothing to say. */
const char *gw_session_notes(const gw_session *s);

/** Rows of algo.csv (see comm/tuning.h) where the algorithm chose by a table, else "". */
const char *gw_session_choices(const gw_session *s);

/** Float32 bytes of all spans finished so far. */
uint64_t gw_session_logical_bytes(const gw_session *s);

#endif
