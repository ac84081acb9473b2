/* sharded: each rank updates a shard, 1/P of the parameters, and nobody's optimizer touches what
 * another's does: gradients are reduce-scattered, so that a rank has the sum of its shard alone;
 * it updates that and the new parameters are gathered (Rajbhandari et al., "ZeRO: memory
 * optimizations toward training trillion parameter models", SC 2020, stage 1). The update costs 1/P
 * of the time, and of an optimizer's state only the shard's part is ever in use. Synchronous, and
 * exact as its codec; parameters travel exact.
 *
 * With --update lazy each layer is a span of its own: its reduce-scatter starts when the backward
 * pass has completed it and its allgather when its shard is updated, under the forward pass of the
 * layer before. With eager both are one collective over the arena, waited for where they start.
 *
 * Cost: one reduce-scatter (codec) and one allgather (exact) of the arena, or of each layer: the
 * bytes of a bandwidth-optimal allreduce. */
#include "comm/overlap.h"

#include "base/mem.h"

#include <stdlib.h>

typedef struct self {
    const gw_env *env;
    gw_overlap scatter, gather;
    gw_queue *queue;
} self;

static void close(void *p) {
    self *me = p;
    gw_queue_close(me->queue);
    gw_overlap_clear(&me->scatter);
    gw_overlap_clear(&me->gather);
    free(me);
}

static gw_err open_on(self *me, const gw_env *env) {
    me->scatter.plan = (gw_plan){
        .algo = env->algo, .verb = GW_REDUCE_SCATTER, .lane = env->grads, .base = env->grad};
    me->gather.plan =
        (gw_plan){.algo = env->algo, .verb = GW_ALLGATHER, .lane = env->params, .base = env->param};
    GW_TRY(gw_overlap_finish(&me->scatter, env));
    GW_TRY(gw_overlap_finish(&me->gather, env));
    GW_TRY(gw_overlap_queue(&me->queue, env, 2 * gw_env_spans(env)));
    me->scatter.queue = me->gather.queue = me->queue;
    return GW_OK;
}

static gw_err open(void **out, const gw_env *env) {
    self *me = NULL;
    GW_TRY(gw_alloc(&me, 1, sizeof *me));
    me->env = env;
    gw_err e = open_on(me, env);
    if (e != GW_OK) {
        close(me);
        return e;
    }
    *out = me;
    return GW_OK;
}

static gw_err ready(void *p, gw_span s) {
    self *me = p;
    return gw_overlap_fill(&me->scatter, s);
}

static gw_err progress(void *p) {
    self *me = p;
    return gw_queue_poll(me->queue);
}

static gw_err finish(void *p, gw_span s, gw_update *u) {
    self *me = p;
    const gw_lane *lane = me->env->grads;
    GW_TRY(gw_overlap_wait(&me->scatter, s));
    *u = (gw_update){
        .grad = me->env->grad, .own = gw_span_part(s, lane->rank, lane->size), .scale = 1.0f};
    return GW_OK;
}

static gw_err publish(void *p, gw_span s) {
    self *me = p;
    return gw_overlap_fill(&me->gather, s);
}

static gw_err await(void *p, gw_span s) {
    self *me = p;
    return gw_overlap_wait(&me->gather, s);
}

static gw_cost cost(const void *p, int64_t exchange) {
    const self *me = p;
    (void)exchange;
    return gw_cost_sum(gw_overlap_cost(&me->scatter), gw_overlap_cost(&me->gather));
}

static const gw_opt opts[] = {GW_OVERLAP_PROGRESS, GW_STRATEGY_ALGO, {0}};

const gw_strategy_ops gw_strategy_sharded = {
    .head = {GW_STRATEGY_ABI, "sharded",
             "each rank updates its shard: reduce-scatter, update, allgather (ZeRO-1)", opts},
    .traits = GW_STRATEGY_SYNCHRONOUS | GW_STRATEGY_EXACT,
    .formula = "one reduce-scatter of n (codec) + one allgather of n (exact)",
    .thread_level = gw_overlap_thread_level,
    .helpers = gw_overlap_helpers,
    .polls = gw_overlap_polls,
    .open = open,
    .close = close,
    .ready = ready,
    .progress = progress,
    .finish = finish,
    .publish = publish,
    .await = await,
    .cost = cost,
};
