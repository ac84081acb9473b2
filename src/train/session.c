#include "train/session.h"

#include "base/mem.h"
#include "base/probe.h"
#include "train/auto.h"
#include "train/hook.h"
#include "train/undo.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct gw_session {
    gw_strategy strategy;
    gw_mix mix;
    gw_codec exact;
    bool wire_check;
    gw_auto *choice;              /* NULL: the codec was named */
    gw_auto *forecast;            /* of the one that was named; NULL: not asked for */
    bool feedback[GW_MIX_CODECS]; /* of the mix's codecs */
    bool corrects, masks;
    float correction, *velocity;
    gw_undo undo;
    gw_session_tap tap;
    gw_coded *coded; /* a layer each */
    gw_env env;
    void *self; /* the strategy's */
    bool open;
    uint64_t logical_bytes;
    char *notes, *choices;                              /* of both lanes */
    const char *again_codec, *again_algo, *again_table; /* NULL: to be chosen */
};

/* A hook, and a region around it. */
static void enter(const char *hook, gw_span span, gw_phase phase) {
    gw_hook_enter(hook, span);
    gw_phase_enter(phase);
}

static void leave(void) {
    gw_phase_leave();
    gw_hook_leave();
}

/* An optional hook, of one form or the other. */
static gw_err call(gw_session *s, const char *hook, gw_span span, gw_phase phase,
                   gw_err (*of_span)(void *self, gw_span s), gw_err (*plain)(void *self)) {
    if (!of_span && !plain)
        return GW_OK;
    enter(hook, span, phase);
    gw_err e = of_span ? of_span(s->self, span) : plain(s->self);
    leave();
    return e;
}

/* Every codec of the mix with its algorithm. */
static gw_err check(const gw_session *s) {
    for (int i = 0; i < s->mix.n; i++) {
        const gw_algo *algo = &s->mix.algo[i];
        GW_TRY(gw_strategy_check(&s->strategy, algo, &s->mix.codec[i]));
        bool sent_once = algo->ops->caps & GW_ALGO_ONCE;
        bool sparse = s->mix.codec[i].caps & GW_CODEC_SPARSE;
        if (s->masks && s->feedback[i] && !(sparse && sent_once))
            return gw_fail(GW_ERR_UNSUPPORTED,
                           "error-feedback=dgc masks the momentum of what a rank has sent, which "
                           "needs a sparse codec and an algorithm that sends each rank's own "
                           "gradient once (--comm sparse): %s over %s does not; use "
                           "error-feedback=momentum",
                           s->mix.codec[i].spec, algo->ops->head.name);
    }
    return GW_OK;
}

/* Take codecs and algorithm. */
static gw_err bind(gw_session *s, const char *compress, const char *algo, const char *feedback) {
    GW_TRY(gw_mix_open(&s->mix, compress, algo, s->wire_check));
    s->masks = strcmp(feedback, "dgc") == 0;
    s->corrects = s->masks || strcmp(feedback, "momentum") == 0;
    bool any = false;
    for (int i = 0; i < s->mix.n; i++) {
        unsigned caps = s->mix.codec[i].caps;
        bool wanted =
            strcmp(feedback, "on") == 0 || (strcmp(feedback, "off") != 0 && caps & GW_CODEC_BIASED);
        s->feedback[i] = wanted && !(caps & GW_CODEC_LOSSLESS);
        any = any || s->feedback[i];
    }
    unsigned traits = s->strategy.ops->traits;
    if (traits & GW_STRATEGY_LOSSY && strcmp(feedback, "auto") != 0)
        return gw_fail(
            GW_ERR_UNSUPPORTED,
            "error-feedback=%s: --comm %s compresses by itself and keeps its own residual: "
            "use its options (gradwire list)",
            feedback, s->strategy.ops->head.name);
    if (s->corrects && !(traits & GW_STRATEGY_SYNCHRONOUS))
        return gw_fail(
            GW_ERR_UNSUPPORTED,
            "error-feedback=%s corrects the momentum of gradients, and --comm %s does not "
            "exchange those: use error-feedback=auto",
            feedback, s->strategy.ops->head.name);
    if (s->corrects && !any)
        return gw_fail(GW_ERR_USAGE,
                       "error-feedback=%s: codec %s holds nothing back, so momentum needs no "
                       "correction: use error-feedback=auto",
                       feedback, s->mix.codec[0].spec);
    return check(s);
}

static gw_err parse(gw_session *s, const char *comm, const char *compress, const char *feedback,
                    bool wire_check) {
    GW_TRY(gw_codec_open(&s->exact, "none"));
    s->wire_check = wire_check;
    if (wire_check)
        gw_codec_frame(&s->exact);
    GW_TRY(gw_strategy_find(&s->strategy, comm));
    if (gw_auto_wanted(compress))
        return gw_auto_new(&s->choice, compress, &s->strategy, feedback, wire_check);
    return bind(s, compress, gw_args_text(s->strategy.args, "algo"), feedback);
}

gw_err gw_session_new(gw_session **out, const char *comm, const char *compress,
                      const char *feedback, bool wire_check) {
    gw_session *s = NULL;
    GW_TRY(gw_alloc(&s, 1, sizeof *s));
    gw_err e = parse(s, comm, compress, feedback, wire_check);
    if (e != GW_OK)
        gw_session_free(s);
    else
        *out = s;
    return e;
}

gw_auto *gw_session_auto(const gw_session *s) {
    return s->choice;
}

gw_auto *gw_session_forecast(const gw_session *s) {
    return s->choice ? s->choice : s->forecast;
}

gw_err gw_session_foresee(gw_session *s, const char *compress, const char *feedback) {
    if (s->choice)
        return GW_OK;
    if (s->mix.n > 1)
        return gw_fail(GW_ERR_UNSUPPORTED,
                       "--forecast: the cost model knows one codec for all tensors, not "
                       "--compress '%s': leave --forecast away",
                       s->mix.spec);
    return gw_auto_foresee(&s->forecast, &s->strategy, compress, s->mix.algo[0].ops->head.name,
                           feedback, s->wire_check);
}

void gw_session_retake(gw_session *s, const char *codec, const char *algo, const char *table) {
    s->again_codec = codec;
    s->again_algo = algo;
    s->again_table = *table ? table : NULL;
}

gw_err gw_session_choose(gw_session *s, const gw_auto_job *job) {
    gw_auto *a = gw_session_forecast(s);
    if (!a)
        return GW_OK;
    GW_TRY(gw_auto_run(a, job));
    if (s->choice && s->again_codec)
        GW_TRY(gw_auto_retake(a, s->again_codec, s->again_algo));
    if (job->check || !s->choice)
        return GW_OK;
    const gw_candidate *c = &s->choice->candidate[s->choice->chosen];
    return gw_agree(job->rehearsal.comm, bind(s, c->codec, c->algo, s->choice->feedback));
}

void gw_session_free(gw_session *s) {
    if (!s)
        return;
    gw_strategy_free(&s->strategy);
    gw_mix_close(&s->mix);
    gw_codec_close(&s->exact);
    gw_auto_free(s->choice);
    gw_auto_free(s->forecast);
    free(s->notes);
    free(s->choices);
    free(s);
}

int gw_session_thread_level(const gw_session *s) {
    const gw_strategy_ops *ops = s->strategy.ops;
    return ops->thread_level ? ops->thread_level(s->strategy.args) : MPI_THREAD_FUNNELED;
}

int gw_session_helpers(const gw_session *s) {
    const gw_strategy_ops *ops = s->strategy.ops;
    return ops->helpers ? ops->helpers(s->strategy.args) : 0;
}

const gw_strategy_ops *gw_session_strategy(const gw_session *s) {
    return s->strategy.ops;
}

const gw_algo *gw_session_algorithm(const gw_session *s) {
    return s->mix.algo;
}

const char *gw_session_compression(const gw_session *s) {
    return s->mix.n > 1 ? s->mix.spec : s->mix.codec[0].name;
}

const gw_codec *gw_session_codec(const gw_session *s) {
    return s->mix.codec;
}

const gw_args *gw_session_args(const gw_session *s) {
    return s->strategy.args;
}

bool gw_session_lossless(const gw_session *s) {
    for (int i = 0; i < s->mix.n; i++)
        if (!(s->mix.codec[i].caps & GW_CODEC_LOSSLESS))
            return false;
    return true;
}

bool gw_session_feedback(const gw_session *s) {
    for (int i = 0; i < s->mix.n; i++)
        if (s->feedback[i])
            return true;
    return false;
}

bool gw_session_corrects(const gw_session *s) {
    return s->corrects;
}

int gw_session_servers(const gw_session *s) {
    const gw_strategy_ops *ops = s->strategy.ops;
    return ops->servers ? ops->servers(s->strategy.args) : 0;
}

static gw_err join(char **out, const char *a, const char *b) {
    free(*out);
    if (asprintf(out, "%s%s", a ? a : "", b ? b : "") >= 0)
        return GW_OK;
    *out = NULL;
    return gw_fail(GW_ERR_NOMEM, "session: out of memory");
}

static gw_err open_lanes(gw_session *s, MPI_Comm comm, const gw_session_setup *setup) {
    gw_env *env = &s->env;
    unsigned caps = 0;
    for (int i = 0; i < s->mix.n; i++)
        caps |= s->mix.algo[i].ops->caps;
    gw_lane_setup lane = {.codec = &s->mix.codec[0],
                          .n = setup->n,
                          .feedback = s->feedback[0],
                          .seed = setup->seed,
                          .yield = setup->yield,
                          .apart = !(s->mix.algo[0].ops->caps & GW_ALGO_ORDERED),
                          .shared = caps & GW_ALGO_SHARED,
                          .name = "gradients",
                          .table = s->again_table};
    GW_TRY(gw_lane_open(&env->grads, comm, &lane));
    env->grads->tallied = setup->layers;
    env->grads->n_tallied = setup->n_layers;
    env->grads->coded = s->coded;
    env->grads->velocity = s->masks ? s->velocity : NULL; /* what it may clear */
    GW_TRY(gw_mix_apply(&s->mix, env->grads, setup->tensors, setup->n_tensors, s->feedback));
    lane.codec = &s->exact;
    lane.apart = lane.feedback = false;
    lane.name = "parameters";
    GW_TRY(gw_lane_open(&env->params, comm, &lane));
    env->params->tallied = setup->layers; /* `coded` being NULL, to name them only */
    env->params->n_tallied = setup->n_layers;
    GW_TRY(gw_lane_floats(env->grads, setup->n, &env->grad));
    return gw_lane_floats(env->params, setup->n, &env->param);
}

/* Ranks agree on which steps count, and each step's update is its own gradient's. */
static bool takes_back(const gw_session *s) {
    unsigned traits = s->strategy.ops->traits;
    return traits & GW_STRATEGY_SYNCHRONOUS && !(traits & GW_STRATEGY_LATE);
}

/* Only what ready() starts is encoded before the ranks agree. */
static gw_err open_undo(gw_session *s) {
    bool encodes = s->env.grads->size > 1 && gw_session_begins(s) && takes_back(s);
    return gw_undo_open(&s->undo, s->env.n, encodes ? s->env.grads->store : NULL, s->velocity);
}

gw_err gw_session_open(gw_session *s, MPI_Comm comm, const gw_session_setup *setup) {
    gw_env *env = &s->env;
    *env = (gw_env){.n = setup->n,
                    .layers = setup->layers,
                    .n_layers = setup->n_layers,
                    .tensors = setup->tensors,
                    .n_tensors = setup->n_tensors,
                    .by_layer = setup->by_layer,
                    .lists = setup->lists && setup->n <= UINT32_MAX,
                    .momentum = setup->momentum,
                    .pace = setup->pace,
                    .algo = s->mix.algo,
                    .args = s->strategy.args};
    s->correction = setup->correction;
    GW_TRY(gw_agree(comm, s->corrects ? gw_alloc(&s->velocity, setup->n, sizeof(float)) : GW_OK));
    GW_TRY(gw_agree(comm, gw_alloc(&s->coded, (size_t)setup->n_layers, sizeof *s->coded)));
    GW_TRY(open_lanes(s, comm, setup));
    if (setup->undo)
        GW_TRY(gw_agree(comm, open_undo(s)));
    if (setup->params)
        memcpy(env->param, setup->params, setup->n * sizeof(float));
    gw_hook_enter("open", (gw_span){0, env->n});
    gw_err mine = s->strategy.ops->open(&s->self, env);
    gw_hook_leave();
    s->open = mine == GW_OK; /* close what opened here, even where another rank's did not */
    if (s->choice)
        gw_lane_note(env->grads, s->choice->why);
    if (mine == GW_OK)
        mine = join(&s->notes, env->grads->notes, env->params->notes);
    if (mine == GW_OK)
        mine = join(&s->choices, env->grads->choices, env->params->choices);
    return gw_agree(comm, mine);
}

float *gw_session_params(gw_session *s) {
    return s->env.param;
}

float *gw_session_grads(gw_session *s) {
    return s->env.grad;
}

void gw_session_close(gw_session *s) {
    if (!s)
        return;
    if (s->open && s->strategy.ops->close) {
        gw_hook_enter("close", (gw_span){0, s->env.n});
        s->strategy.ops->close(s->self);
        gw_hook_leave();
    }
    gw_lane_close(s->env.grads);
    gw_lane_close(s->env.params);
    s->env.grads = s->env.params = NULL;
    free(s->velocity);
    gw_undo_close(&s->undo);
    free(s->coded);
    s->velocity = NULL;
    s->coded = NULL;
    s->open = false;
}

void gw_session_begin(gw_session *s, double share) {
    s->env.share = share;
    s->env.grads->ticket++;
    s->env.params->ticket++;
    /* Here, not in each hook: the progress thread sets the lane's for a moment. */
    gw_hook_count(s->env.grads->ticket);
}

/* The gradient becomes what its momentum makes of it, on this rank alone. */
static void correct(gw_session *s, gw_span span) {
    float *u = s->velocity + span.off, *g = s->env.grad + span.off, m = s->correction;
    gw_phase_enter(GW_PHASE_ENCODE);
    for (size_t i = 0; i < span.n; i++)
        g[i] = u[i] = m * u[i] + g[i];
    gw_phase_leave();
}

gw_err gw_session_ready(gw_session *s, gw_span span) {
    gw_undo_keep(&s->undo, span);
    if (s->corrects)
        correct(s, span);
    if (s->tap.before)
        s->tap.before(s->tap.ctx, s->env.grad, span);
    return call(s, "ready", span, GW_PHASE_MPI_POST, s->strategy.ops->ready, NULL);
}

void gw_session_skip(gw_session *s, bool skip) {
    s->env.skip = skip;
}

bool gw_session_begins(const gw_session *s) {
    return s->strategy.ops->ready;
}

bool gw_session_leaves_out(const gw_session *s) {
    return s->env.skip && takes_back(s);
}

void gw_session_undo(gw_session *s) {
    gw_undo_put(&s->undo);
    if (!takes_back(s))
        return;
    s->env.grads->ticket--;
    s->env.params->ticket--;
    gw_hook_count(s->env.grads->ticket);
}

void gw_session_watch(gw_session *s, const gw_session_tap *tap) {
    s->tap = tap ? *tap : (gw_session_tap){0};
}

const float *gw_session_residual(const gw_session *s) {
    return s->env.grads->store;
}

const gw_coded *gw_session_coded(const gw_session *s) {
    return s->coded;
}

const char *gw_session_codec_of(const gw_session *s, size_t at) {
    const gw_lane *lane = s->env.grads;
    for (int i = 0; i < lane->n_runs; i++)
        if (at < gw_span_end(lane->runs[i].span))
            return lane->runs[i].lane->codec->spec;
    return lane->codec->spec;
}

gw_err gw_session_progress(gw_session *s) {
    gw_span all = {0, s->env.n};
    return call(s, "progress", all, GW_PHASE_MPI_POLL, NULL, s->strategy.ops->progress);
}

gw_err gw_session_finish(gw_session *s, gw_span span, gw_update *u) {
    enter("finish", span, GW_PHASE_MPI_WAIT);
    gw_err e = s->strategy.ops->finish(s->self, span, u);
    leave();
    s->logical_bytes += span.n * sizeof(float);
    if (e == GW_OK && s->tap.after)
        s->tap.after(s->tap.ctx, u);
    return e;
}

gw_err gw_session_publish(gw_session *s, gw_span span) {
    /* Where await() waits, this only starts. */
    gw_phase phase = gw_session_awaits(s) ? GW_PHASE_MPI_POST : GW_PHASE_MPI_WAIT;
    return call(s, "publish", span, phase, s->strategy.ops->publish, NULL);
}

gw_err gw_session_await(gw_session *s, gw_span span) {
    return call(s, "await", span, GW_PHASE_MPI_WAIT, s->strategy.ops->await, NULL);
}

bool gw_session_progresses(const gw_session *s) {
    const gw_strategy_ops *ops = s->strategy.ops;
    return ops->progress && (!ops->polls || ops->polls(s->strategy.args));
}

bool gw_session_awaits(const gw_session *s) {
    return s->strategy.ops->await;
}

gw_err gw_session_settle(gw_session *s) {
    return call(s, "settle", (gw_span){0, s->env.n}, GW_PHASE_MPI_WAIT, NULL,
                s->strategy.ops->settle);
}

gw_err gw_session_state(gw_session *s, gw_io *io) {
    gw_hook_enter("state", (gw_span){0, s->env.n});
    gw_err e = s->strategy.ops->state ? s->strategy.ops->state(s->self, io) : GW_OK;
    gw_hook_leave();
    GW_TRY(e);
    if (s->velocity)
        GW_TRY(gw_io_field(io, "velocity", s->velocity, s->env.n * sizeof(float)));
    GW_TRY(gw_lane_state(s->env.grads, io));
    return gw_lane_state(s->env.params, io);
}

void gw_session_count_on(gw_session *s, int64_t steps) {
    s->env.grads->ticket = s->env.params->ticket = (uint64_t)steps;
}

gw_cost gw_session_cost(const gw_session *s, int64_t exchange) {
    return s->strategy.ops->cost(s->self, exchange);
}

gw_cost gw_session_settle_cost(const gw_session *s) {
    const gw_strategy_ops *ops = s->strategy.ops;
    return ops->settle_cost ? ops->settle_cost(s->self) : (gw_cost){0};
}

bool gw_session_framed(const gw_session *s) {
    return s->wire_check;
}

uint64_t gw_session_frames(const gw_session *s) {
    return s->env.grads->frames + s->env.params->frames;
}

bool gw_session_agrees(const gw_session *s) {
    const gw_strategy_ops *ops = s->strategy.ops;
    return ops->traits & GW_STRATEGY_SYNCHRONOUS || (ops->agrees && ops->agrees(s->self));
}

const char *gw_session_notes(const gw_session *s) {
    return s->notes ? s->notes : "";
}

const char *gw_session_choices(const gw_session *s) {
    return s->choices ? s->choices : "";
}

uint64_t gw_session_logical_bytes(const gw_session *s) {
    return s->logical_bytes;
}
