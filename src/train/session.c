#include "train/session.h"

#include "base/mem.h"
#include "base/probe.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct gw_session {
    gw_strategy strategy;
    gw_algo algo;
    gw_codec codec, exact;
    bool feedback;
    gw_env env;
    void *self; /* the strategy's */
    bool open;
    uint64_t logical_bytes;
    char *notes, *choices; /* of both lanes */
};

static gw_err parse(gw_session *s, const char *comm, const char *compress) {
    GW_TRY(gw_codec_open(&s->exact, "none"));
    GW_TRY(gw_codec_open(&s->codec, compress));
    GW_TRY(gw_strategy_find(&s->strategy, comm));
    GW_TRY(gw_algo_open(&s->algo, gw_args_text(s->strategy.args, "algo"), &s->codec));
    return gw_strategy_check(&s->strategy, &s->algo, &s->codec);
}

gw_err gw_session_new(gw_session **out, const char *comm, const char *compress,
                      const char *feedback) {
    gw_session *s = NULL;
    GW_TRY(gw_alloc(&s, 1, sizeof *s));
    gw_err e = parse(s, comm, compress);
    if (e != GW_OK) {
        gw_session_free(s);
        return e;
    }
    unsigned caps = s->codec.caps;
    bool wanted =
        strcmp(feedback, "auto") == 0 ? caps & GW_CODEC_BIASED : strcmp(feedback, "on") == 0;
    s->feedback = wanted && !(caps & GW_CODEC_LOSSLESS);
    *out = s;
    return GW_OK;
}

void gw_session_free(gw_session *s) {
    if (!s)
        return;
    gw_strategy_free(&s->strategy);
    gw_algo_close(&s->algo);
    gw_codec_close(&s->codec);
    gw_codec_close(&s->exact);
    free(s->notes);
    free(s->choices);
    free(s);
}

int gw_session_thread_level(const gw_session *s) {
    const gw_strategy_ops *ops = s->strategy.ops;
    return ops->thread_level ? ops->thread_level(s->strategy.args) : MPI_THREAD_FUNNELED;
}

const gw_strategy_ops *gw_session_strategy(const gw_session *s) {
    return s->strategy.ops;
}

const gw_algo *gw_session_algorithm(const gw_session *s) {
    return &s->algo;
}

const gw_codec *gw_session_codec(const gw_session *s) {
    return &s->codec;
}

bool gw_session_feedback(const gw_session *s) {
    return s->feedback;
}

int gw_session_servers(const gw_session *s) {
    const gw_strategy_ops *ops = s->strategy.ops;
    return ops->servers ? ops->servers(s->strategy.args) : 0;
}

static gw_err join(char **out, const char *a, const char *b) {
    free(*out);
    *out = NULL;
    size_t len = (a ? strlen(a) : 0) + (b ? strlen(b) : 0) + 1;
    GW_TRY(gw_alloc(out, len, 1));
    snprintf(*out, len, "%s%s", a ? a : "", b ? b : "");
    return GW_OK;
}

gw_err gw_session_open(gw_session *s, MPI_Comm comm, const gw_session_setup *setup) {
    gw_env *env = &s->env;
    *env = (gw_env){.n = setup->n,
                    .layers = setup->layers,
                    .n_layers = setup->n_layers,
                    .tensors = setup->tensors,
                    .n_tensors = setup->n_tensors,
                    .by_layer = setup->by_layer,
                    .momentum = setup->momentum,
                    .algo = &s->algo,
                    .args = s->strategy.args};
    gw_lane_setup lane = {.codec = &s->codec,
                          .n = setup->n,
                          .feedback = s->feedback,
                          .seed = setup->seed,
                          .yield = setup->yield,
                          .shared = s->algo.ops->caps & GW_ALGO_SHARED,
                          .name = "gradients"};
    GW_TRY(gw_lane_open(&env->grads, comm, &lane));
    lane.codec = &s->exact;
    lane.feedback = false;
    lane.name = "parameters";
    GW_TRY(gw_lane_open(&env->params, comm, &lane));
    GW_TRY(gw_lane_floats(env->grads, setup->n, &env->grad));
    GW_TRY(gw_lane_floats(env->params, setup->n, &env->param));
    if (setup->params)
        memcpy(env->param, setup->params, setup->n * sizeof(float));
    gw_err mine = s->strategy.ops->open(&s->self, env);
    s->open = mine == GW_OK; /* close what opened here, even where another rank's did not */
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
    if (s->open && s->strategy.ops->close)
        s->strategy.ops->close(s->self);
    gw_lane_close(s->env.grads);
    gw_lane_close(s->env.params);
    s->env.grads = s->env.params = NULL;
    s->open = false;
}

void gw_session_begin(gw_session *s, double share) {
    s->env.share = share;
    s->env.grads->ticket++;
    s->env.params->ticket++;
}

gw_err gw_session_ready(gw_session *s, gw_span span) {
    if (!s->strategy.ops->ready)
        return GW_OK;
    gw_phase_enter(GW_PHASE_MPI_POST);
    gw_err e = s->strategy.ops->ready(s->self, span);
    gw_phase_leave();
    return e;
}

gw_err gw_session_progress(gw_session *s) {
    if (!s->strategy.ops->progress)
        return GW_OK;
    gw_phase_enter(GW_PHASE_MPI_POLL);
    gw_err e = s->strategy.ops->progress(s->self);
    gw_phase_leave();
    return e;
}

gw_err gw_session_finish(gw_session *s, gw_span span, gw_update *u) {
    gw_phase_enter(GW_PHASE_MPI_WAIT);
    gw_err e = s->strategy.ops->finish(s->self, span, u);
    gw_phase_leave();
    s->logical_bytes += span.n * sizeof(float);
    return e;
}

gw_err gw_session_publish(gw_session *s, gw_span span) {
    if (!s->strategy.ops->publish)
        return GW_OK;
    gw_phase_enter(GW_PHASE_MPI_WAIT);
    gw_err e = s->strategy.ops->publish(s->self, span);
    gw_phase_leave();
    return e;
}

gw_err gw_session_await(gw_session *s, gw_span span) {
    if (!s->strategy.ops->await)
        return GW_OK;
    gw_phase_enter(GW_PHASE_MPI_WAIT);
    gw_err e = s->strategy.ops->await(s->self, span);
    gw_phase_leave();
    return e;
}

bool gw_session_progresses(const gw_session *s) {
    return s->strategy.ops->progress;
}

bool gw_session_awaits(const gw_session *s) {
    return s->strategy.ops->await;
}

gw_err gw_session_settle(gw_session *s) {
    if (!s->strategy.ops->settle)
        return GW_OK;
    gw_phase_enter(GW_PHASE_MPI_WAIT);
    gw_err e = s->strategy.ops->settle(s->self);
    gw_phase_leave();
    return e;
}

gw_cost gw_session_cost(const gw_session *s, int64_t exchange) {
    return s->strategy.ops->cost(s->self, exchange);
}

gw_cost gw_session_settle_cost(const gw_session *s) {
    const gw_strategy_ops *ops = s->strategy.ops;
    return ops->settle_cost ? ops->settle_cost(s->self) : (gw_cost){0};
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
