#include "train/session.h"

#include "base/mem.h"
#include "base/probe.h"

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
};

static gw_err parse(gw_session *s, const char *comm, const char *compress) {
    GW_TRY(gw_codec_open(&s->exact, "none"));
    GW_TRY(gw_codec_open(&s->codec, compress));
    GW_TRY(gw_strategy_find(&s->strategy, comm));
    return gw_algo_open(&s->algo, gw_args_text(s->strategy.args, "algo"), &s->codec);
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
    unsigned caps = s->codec.ops->caps;
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
    free(s);
}

int gw_session_thread_level(const gw_session *s) {
    const gw_strategy_ops *ops = s->strategy.ops;
    return ops->thread_level ? ops->thread_level(s->strategy.args) : MPI_THREAD_FUNNELED;
}

const char *gw_session_strategy(const gw_session *s) {
    return s->strategy.ops->head.name;
}

const char *gw_session_algorithm(const gw_session *s) {
    return s->algo.ops->head.name;
}

const gw_codec *gw_session_codec(const gw_session *s) {
    return &s->codec;
}

bool gw_session_feedback(const gw_session *s) {
    return s->feedback;
}

gw_err gw_session_open(gw_session *s, MPI_Comm comm, float *param, float *grad, size_t n,
                       const gw_span *layers, int n_layers, uint64_t seed, bool yield) {
    gw_env *env = &s->env;
    *env = (gw_env){.param = param,
                    .grad = grad,
                    .n = n,
                    .layers = layers,
                    .n_layers = n_layers,
                    .algo = &s->algo,
                    .args = s->strategy.args};
    GW_TRY(gw_lane_open(&env->grads, comm, &s->codec, n, s->feedback, seed, yield));
    GW_TRY(gw_lane_open(&env->params, comm, &s->exact, n, false, seed, yield));
    gw_err mine = s->strategy.ops->open(&s->self, env);
    s->open = mine == GW_OK; /* close what opened here, even where another rank's did not */
    return gw_agree(comm, mine);
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

void gw_session_begin(gw_session *s) {
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

uint64_t gw_session_logical_bytes(const gw_session *s) {
    return s->logical_bytes;
}
