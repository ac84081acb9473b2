/* A session: the strategy, the lanes and the arenas of what ranks exchange in every step. */
#include "run/session.h"

#include "base/hook.h"
#include "base/mem.h"
#include "base/probe.h"
#include "comm/channel.h"
#include "comm/lent.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A hook, and a region around it. */
static void session_enter(const char *hook, gw_span span, gw_phase phase) {
    gw_hook_enter(hook, span);
    gw_phase_enter(phase);
}

static void session_leave(void) {
    gw_phase_leave();
    gw_hook_leave();
}

/* An optional hook. */
static gw_err session_call(gw_session *s, const char *name, gw_span span, gw_phase phase,
                           gw_err (*hook)(void *self, gw_span s)) {
    if (!hook)
        return GW_OK;
    session_enter(name, span, phase);
    gw_err e = hook(s->self, span);
    session_leave();
    return e;
}

gw_err gw_session_bind(gw_session *s, gw_mix *mix, const gw_spec *algo) {
    s->mix = *mix;
    *mix = (gw_mix){0};
    GW_TRY(gw_mix_carry(&s->mix, algo));
    GW_TRY(gw_residuals_find(&s->residuals, s->feedback, &s->strategy, &s->mix));
    for (int i = 0; i < s->mix.n; i++)
        GW_TRY(gw_strategy_check(&s->strategy, &s->mix.algo[i], &s->mix.codec[i]));
    return GW_OK;
}

static gw_err session_make(gw_session *s, const gw_spec *comm, gw_mix *mix) {
    GW_TRY(gw_codec_open(&s->exact, &gw_codec_exact));
    s->framed = mix->framed;
    if (mix->framed)
        gw_codec_frame(&s->exact);
    GW_TRY(gw_strategy_find(&s->strategy, comm));
    if (mix->n == 0) /* the codec is chosen later, but the word is checked now */
        return gw_residuals_find(&s->residuals, s->feedback, &s->strategy, mix);
    return gw_session_bind(s, mix, gw_args_spec(s->strategy.args, "algo"));
}

gw_err gw_session_new(gw_session **out, const gw_spec *comm, gw_mix *mix, const char *feedback) {
    gw_session *s = NULL;
    gw_err e = gw_alloc(&s, 1, sizeof *s);
    if (e == GW_OK) {
        s->feedback = feedback;
        e = session_make(s, comm, mix);
    }
    gw_mix_close(mix); /* of an error, what the session has not taken over */
    if (e != GW_OK)
        gw_session_free(s);
    else
        *out = s;
    return e;
}

void gw_session_free(gw_session *s) {
    if (!s)
        return;
    gw_strategy_free(&s->strategy);
    gw_mix_close(&s->mix);
    gw_codec_close(&s->exact);
    free(s);
}

const char *gw_session_compression(const gw_session *s) {
    return *s->unmet.codec ? s->unmet.codec : s->mix.n > 1 ? s->mix.spec : s->mix.codec[0].name;
}

bool gw_session_feeds_back(const gw_session *s) {
    return gw_residuals_any(&s->residuals) && !s->unmet.idle;
}

float *gw_session_residual(const gw_session *s) {
    return gw_lane_size(s->env.grads) > 1 ? gw_lane_encoder(s->env.grads)->of->store : NULL;
}

void gw_session_recount(gw_session *s) {
    for (int i = 0; i < GW_MIX_CODECS; i++)
        s->codings[i].floats = s->codings[i].bytes = 0;
    s->recounted = s->logical_bytes;
    s->clip.updates = s->clip.clipped = 0;
}

/* What the rule of error feedback keeps. */
static gw_err session_make_room(gw_session *s, size_t n) {
    if (s->residuals.rule != GW_FEEDBACK_PLAIN)
        GW_TRY(gw_alloc(&s->rule.own, n, sizeof(float)));
    return s->residuals.rule == GW_FEEDBACK_EF21 ? gw_alloc(&s->rule.estimate, n, sizeof(float))
                                                 : GW_OK;
}

/* EF21's first step, as it is. */
static gw_err session_open_start(gw_session *s) {
    GW_TRY(gw_algo_open(&s->rule.dense, NULL, &s->exact));
    s->rule.start = (gw_collective){.algo = &s->rule.dense,
                                    .verb = GW_ALLREDUCE,
                                    .lane = s->env.params,
                                    .base = s->rule.estimate};
    return gw_env_prepare(&s->env, &s->rule.start);
}

static gw_err session_open_lanes(gw_session *s, MPI_Comm comm, const gw_session_setup *setup) {
    gw_env *env = &s->env;
    unsigned caps = 0;
    for (int i = 0; i < s->mix.n; i++)
        caps |= s->mix.algo[i].ops->caps;
    gw_lane_setup lane = {.codec = &s->mix.codec[0],
                          .n = setup->n,
                          .feedback = s->residuals.of[0],
                          .fed =
                              setup->adds && gw_residuals_add(&s->residuals, &s->strategy, &s->mix),
                          .velocity = s->residuals.masks ? s->rule.own : NULL,
                          .seed = setup->seed,
                          .yield = setup->yield,
                          .apart = !(s->mix.algo[0].ops->caps & GW_ALGO_ORDERED),
                          .shared = caps & GW_ALGO_SHARED,
                          .name = "gradients",
                          .table = s->table,
                          .notes = &s->notes,
                          .layers = setup->layers,
                          .n_layers = setup->n_layers,
                          .coded = s->coded,
                          .codings = s->codings};
    GW_TRY(gw_lane_open(&env->grads, comm, &lane));
    gw_mix_model model = {setup->tensors, setup->n_tensors, setup->model_layers, setup->names};
    GW_TRY(gw_mix_apply(&s->mix, env->grads, &model, s->residuals.of));
    lane.codec = &s->exact;
    lane.apart = lane.feedback = lane.fed = false;
    lane.velocity = NULL;
    lane.name = "parameters";
    lane.coded = NULL; /* layers are only named in messages */
    lane.codings = NULL;
    GW_TRY(gw_lane_open(&env->params, comm, &lane));
    GW_TRY(gw_lane_floats(env->grads, setup->n, &env->grad));
    if (setup->parts || (setup->keeps && !gw_strategy_publishes(s->strategy.ops)))
        return GW_OK;
    return gw_lane_floats(env->params, setup->n, &env->param);
}

/* Ranks agree on whether this step counts, and its update is its own gradient's. */
static bool session_takes_back(const gw_session *s) {
    return s->together && s->strategy.ops->gives != GW_GIVES_LATE;
}

static bool session_together(const gw_session *s) {
    return s->strategy.ops->gives != GW_GIVES_OWN && gw_session_agrees(s, 1);
}

/* Before the ranks agree only what ready() starts is encoded, and only a residual that is fed or
 * LoCo's is changed. */
static gw_err session_open_undo(gw_session *s) {
    bool changes =
        (s->strategy.ops->ready || gw_session_sums(s) || s->residuals.rule == GW_FEEDBACK_LOCO) &&
        session_takes_back(s);
    return gw_undo_open(&s->undo, s->env.n, changes ? gw_session_residual(s) : NULL, s->rule.own,
                        s->rule.estimate);
}

gw_err gw_session_open(gw_session *s, MPI_Comm comm, const gw_session_setup *setup) {
    gw_env *env = &s->env;
    bool ef21 = s->residuals.rule == GW_FEEDBACK_EF21;
    bool plain = setup->clip.most == 0 && !ef21;
    *env = (gw_env){.n = setup->n,
                    .layers = setup->layers,
                    .n_layers = setup->n_layers,
                    .tensors = setup->tensors,
                    .n_tensors = setup->n_tensors,
                    .in_rows = setup->in_rows,
                    .by_layer = setup->by_layer,
                    .parts = setup->parts,
                    .lists = setup->lists && setup->n <= UINT32_MAX && plain,
                    .vectors = setup->vectors,
                    .link_bytes_per_s = setup->link_bytes_per_s,
                    .arrived = plain ? setup->arrived : NULL,
                    .arrived_ctx = setup->arrived_ctx,
                    .algo = s->mix.algo,
                    .args = s->strategy.args,
                    .name = s->strategy.ops->head.name};
    s->correction = setup->correction;
    s->most = setup->most;
    gw_clip_open(&s->clip, &setup->clip, s->strategy.ops, comm);
    GW_TRY(gw_clip_check(setup->clip.most, setup->by_layer, s->residuals.corrects || ef21,
                         s->strategy.ops->gives == GW_GIVES_DIRECTION));
    memset(s->codings, 0, sizeof s->codings);
    GW_TRY(gw_agree(comm, session_make_room(s, setup->n)));
    GW_TRY(gw_agree(comm, gw_alloc(&s->coded, (size_t)setup->n_layers, sizeof *s->coded)));
    GW_TRY(session_open_lanes(s, comm, setup));
    if (setup->params)
        memcpy(env->param, setup->params, setup->n * sizeof(float));
    gw_hook_enter("open", (gw_span){0, env->n});
    gw_err mine = s->rule.estimate ? session_open_start(s) : GW_OK;
    GW_THEN(mine, gw_strategy_open(&s->strategy, env, &s->self));
    gw_hook_leave();
    if (s->note)
        gw_lane_note(env->grads, s->note);
    GW_TRY(gw_agree(comm, mine));
    GW_TRY(gw_session_find_unmet(s, (gw_unmet_ask){0}, comm));
    s->together = session_together(s);
    return setup->undo ? gw_agree(comm, session_open_undo(s)) : GW_OK;
}

void gw_session_close(gw_session *s) {
    if (!s)
        return;
    if (s->self) { /* opened here, even where another rank's was not */
        gw_hook_enter("close", (gw_span){0, s->env.n});
        gw_strategy_close(&s->strategy, s->self);
        gw_hook_leave();
    }
    if (s->env.grads)
        gw_lent_close(gw_lane_channel(s->env.grads)->lent);
    gw_lane_close(s->env.grads);
    gw_lane_close(s->env.params);
    s->env.grads = s->env.params = NULL;
    gw_collective_clear(&s->rule.start);
    gw_algo_close(&s->rule.dense);
    free(s->rule.own);
    free(s->rule.estimate);
    gw_undo_close(&s->undo);
    free(s->coded);
    free(s->notes.lines);
    free(s->notes.choices);
    s->notes = (gw_lane_notes){0};
    s->rule.own = s->rule.estimate = NULL;
    s->rule.rounds = 0;
    s->coded = NULL;
    s->self = NULL;
}

/* The residual as it is before the backward pass adds to it, where somebody wants it. */
static void session_begin_feed(gw_session *s) {
    const float *sums = gw_session_sums(s);
    if (!sums)
        return;
    gw_undo_keep(&s->undo, (gw_span){0, s->env.n});
    if (s->tap.before)
        memcpy(s->env.grad, sums, s->env.n * sizeof(float));
}

/* The next exchange is number `ticket`, from 1. */
static void session_count_to(gw_session *s, uint64_t ticket) {
    gw_lane_begin_at(s->env.grads, ticket);
    gw_lane_begin_at(s->env.params, ticket);
    gw_hook_count(ticket);
}

void gw_session_begin(gw_session *s, double share) {
    s->env.share = share;
    s->together = session_together(s);
    s->rule.rounds++;
    session_count_to(s, gw_lane_ticket(s->env.grads) + 1);
    session_begin_feed(s);
}

float *gw_session_sums(gw_session *s) {
    return gw_encoder_fed(gw_lane_encoder(s->env.grads));
}

bool gw_session_takes_lent(const gw_session *s) {
    const gw_lane *lane = s->env.grads;
    unsigned traits = s->strategy.ops->traits, caps = s->mix.algo[0].ops->caps;
    return gw_lane_size(lane) > 1 && traits & GW_STRATEGY_ENCODES && caps & GW_ALGO_LENT &&
           !gw_lane_mixed(lane) && gw_lane_exact(lane) && !s->residuals.corrects &&
           !s->tap.before && s->clip.most == 0;
}

/* For the report: what became of it, and why. */
static void session_note_lent(gw_session *s, gw_err e) {
    char line[512] = "gradients in lent memory are summed in place";
    if (e != GW_OK)
        snprintf(line, sizeof line, "gradients are copied: %s", gw_err_text());
    gw_lane_note(s->env.grads, line);
}

gw_err gw_session_lend(gw_session *s, void *memory, size_t bytes, int fd) {
    gw_env *env = &s->env;
    gw_channel *c = gw_lane_channel(env->grads);
    if (!c->lent)
        GW_TRY(gw_lent_open(&c->lent, c->shared, env->grad, env->tensors, env->n_tensors));
    gw_err e = gw_lent_add(c->lent, memory, bytes, fd);
    if (e == GW_OK || e == GW_ERR_UNSUPPORTED)
        session_note_lent(s, e);
    return e;
}

const gw_lent *gw_session_lent(const gw_session *s) {
    return gw_lane_channel(s->env.grads)->lent;
}

bool gw_session_lies(gw_session *s, int t, float *grad, float weight) {
    gw_lent *lent = gw_lane_channel(s->env.grads)->lent;
    return lent && gw_lent_put(lent, t, grad, weight);
}

/* What is found again by the difference stays in the gradient's arena, which no one else reads. */
static void session_recover(gw_session *s, gw_span span) {
    float *g = s->env.grad + span.off;
    const float *sum = gw_session_sums(s) + span.off;
    for (size_t i = 0; i < span.n; i++)
        g[i] = sum[i] - g[i];
}

/* The gradient becomes what the rule of error feedback makes of it, on this rank alone. */
static void session_apply_rule(gw_session *s, gw_span span) {
    float *residual = gw_session_residual(s);
    gw_work_enter(GW_PHASE_ENCODE);
    gw_residuals_before(&s->residuals, s->correction, s->rule.rounds, s->env.grad + span.off,
                        s->rule.own + span.off, residual ? residual + span.off : NULL, span.n);
    gw_work_leave();
}

/* EF21: the mean of what the ranks have sent so far takes the place of what this step sent. */
static gw_err session_collect(gw_session *s, gw_span span, gw_update *u) {
    gw_span own = u->own;
    if (s->rule.rounds == 1) {
        memcpy(s->rule.estimate + span.off, s->rule.own + span.off, span.n * sizeof(float));
        session_enter("finish", span, GW_PHASE_MPI_WAIT);
        gw_err e = gw_collective_run(&s->rule.start, span);
        session_leave();
        GW_TRY(e);
    } else {
        gw_work_enter(GW_PHASE_DECODE);
        gw_residuals_collect(s->rule.estimate + own.off, u->grad + own.off, u->scale, own.n);
        gw_work_leave();
    }
    *u = (gw_update){.grad = s->rule.estimate, .own = own, .scale = 1};
    return GW_OK;
}

gw_err gw_session_ready(gw_session *s, gw_span span) {
    bool fed = gw_session_sums(s);
    if (!fed)
        gw_undo_keep(&s->undo, span);
    if (s->rule.own)
        session_apply_rule(s, span);
    if (s->tap.before && fed)
        session_recover(s, span);
    if (s->tap.before)
        s->tap.before(s->tap.ctx, s->env.grad, span);
    return session_call(s, "ready", span, GW_PHASE_MPI_POST, s->strategy.ops->ready);
}

bool gw_session_voids(const gw_session *s) {
    return s->env.skip && s->strategy.ops->gives != GW_GIVES_LATE;
}

bool gw_session_leaves_out(const gw_session *s) {
    return gw_session_voids(s) && s->together;
}

void gw_session_undo(gw_session *s, bool abandoned) {
    gw_undo_put(&s->undo);
    if (!session_takes_back(s) && !abandoned)
        return;
    s->rule.rounds--;
    session_count_to(s, gw_lane_ticket(s->env.grads) - 1);
}

/* What overflows next to the end of binary32, sums and residuals, is far from it at this one. */
#define SESSION_MOST 0x1p120f

/* The lesser limit; 0 is none. */
static float session_lesser(float a, float b) {
    return a > 0 && (b == 0 || a < b) ? a : b;
}

float gw_session_most(const gw_session *s, double share) {
    const gw_strategy_ops *ops = s->strategy.ops;
    bool clips = s->clip.most > 0 && s->clip.most <= (double)s->most;
    float most = ops->most, ranks = (float)gw_lane_size(s->env.grads);
    if (!clips && ops->gives != GW_GIVES_DIRECTION) /* else the optimizer sees no gradient */
        most = session_lesser(most, s->most);
    if (ops->gives == GW_GIVES_OWN)
        return most * (float)share; /* each rank moves by the mean of its own samples */
    for (int i = 0; i < s->mix.n && ranks > 1; i++)
        most = session_lesser(session_lesser(most, SESSION_MOST), s->mix.codec[i].ops->most);
    return most / ranks;
}

const char *gw_session_codec_of(const gw_session *s, size_t at) {
    int n;
    const gw_lane_run *run = gw_lane_runs(s->env.grads, &n);
    for (int i = 0; i < n; i++)
        if (at < gw_span_end(run[i].span))
            return gw_lane_codec(run[i].lane)->spec;
    return gw_lane_codec(s->env.grads)->spec;
}

gw_err gw_session_progress(gw_session *s) {
    if (!s->strategy.ops->progress)
        return GW_OK;
    session_enter("progress", (gw_span){0, s->env.n}, GW_PHASE_MPI_POLL);
    gw_err e = s->strategy.ops->progress(s->self);
    session_leave();
    return e;
}

gw_err gw_session_finish(gw_session *s, gw_span span, gw_update *u) {
    session_enter("finish", span, GW_PHASE_MPI_WAIT);
    gw_err e = gw_strategy_finish(s->strategy.ops, s->self, &s->env, span, u);
    session_leave();
    s->logical_bytes += span.n * sizeof(float);
    if (e == GW_OK && s->tap.after)
        s->tap.after(s->tap.ctx, u);
    if (e == GW_OK && s->rule.estimate)
        e = session_collect(s, span, u);
    return e == GW_OK ? gw_clip_update(&s->clip, u) : e;
}

gw_err gw_session_publish(gw_session *s, gw_span span) {
    if (!gw_session_voids(s))
        gw_clip_count(&s->clip);
    /* Where await() waits, this only starts. */
    gw_phase phase = s->strategy.ops->await ? GW_PHASE_MPI_POST : GW_PHASE_MPI_WAIT;
    return session_call(s, "publish", span, phase, s->strategy.ops->publish);
}

gw_err gw_session_await(gw_session *s, gw_span span) {
    return session_call(s, "await", span, GW_PHASE_MPI_WAIT, s->strategy.ops->await);
}

gw_err gw_session_settle(gw_session *s) {
    s->settled = (gw_cost){0};
    if (!s->strategy.ops->settle)
        return GW_OK;
    session_enter("settle", (gw_span){0, s->env.n}, GW_PHASE_MPI_WAIT);
    gw_err e = s->strategy.ops->settle(s->self, &s->settled);
    session_leave();
    return e;
}

gw_err gw_session_state(gw_session *s, gw_io *io) {
    gw_hook_enter("state", (gw_span){0, s->env.n});
    gw_err e = s->strategy.ops->state ? s->strategy.ops->state(s->self, io) : GW_OK;
    gw_hook_leave();
    GW_TRY(e);
    if (s->rule.own)
        GW_TRY(gw_io_field(io, "velocity", s->rule.own, s->env.n * sizeof(float)));
    if (s->rule.estimate)
        GW_TRY(gw_io_field(io, "estimate", s->rule.estimate, s->env.n * sizeof(float)));
    if (s->rule.own && !s->residuals.corrects)
        GW_TRY(gw_io_alike(io, "rounds", &s->rule.rounds, sizeof s->rule.rounds));
    GW_TRY(gw_encoders_state(gw_lane_encoder(s->env.grads)->of, io));
    return gw_encoders_state(gw_lane_encoder(s->env.params)->of, io);
}

gw_span gw_session_owned(const gw_session *s, gw_span span) {
    return gw_strategy_owned(s->strategy.ops, s->env.grads, span);
}

void gw_session_count_on(gw_session *s, int64_t steps) {
    session_count_to(s, (uint64_t)steps);
}

gw_repeat gw_session_repeat(const gw_session *s, int64_t from) {
    gw_repeat repeat = gw_repeat_of(gw_strategy_period(s->strategy.ops, s->self, from));
    if (gw_mix_warms(&s->mix))
        repeat.all = 0;
    return repeat;
}

bool gw_session_agrees(const gw_session *s, int steps) {
    const gw_strategy_ops *ops = s->strategy.ops;
    return gw_strategy_synchronous(ops) || (ops->agrees && ops->agrees(s->self, steps));
}
