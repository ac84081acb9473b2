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
 * Where no rank needs whole parameters (env->parts) nothing is gathered.
 *
 * Cost: one reduce-scatter (codec) and one allgather (exact) of the arena, or of each layer: the
 * bytes of a bandwidth-optimal allreduce. */
#include "comm/overlap.h"

static gw_err sharded_open(void *self, const gw_env *env) {
    return gw_overlapped_open(self, env, GW_OVERLAP_SPANS, true);
}

static gw_err sharded_publish(void *self, gw_span s) {
    gw_overlapped *me = self;
    return gw_overlap_fill(&me->params, me->queue, s);
}

static gw_err sharded_await(void *self, gw_span s) {
    gw_overlapped *me = self;
    return gw_overlap_wait(&me->params, me->queue, s);
}

static const gw_opt opts[] = {GW_OVERLAP_PROGRESS, GW_STRATEGY_ALGO, {0}};

const gw_strategy_ops gw_strategy_sharded = {
    .head = {GW_STRATEGY_ABI, "sharded",
             "each rank updates its shard: reduce-scatter, update, allgather (ZeRO-1)", opts},
    .gives = GW_GIVES_PARTS,
    .formula = "one reduce-scatter of n (codec) + one allgather of n (exact)",
    .plan = gw_overlap_plan,
    .size = sizeof(gw_overlapped),
    .open = sharded_open,
    .close = gw_overlapped_close,
    .ready = gw_overlapped_ready,
    .progress = gw_overlapped_progress,
    .finish = gw_overlapped_finish,
    .publish = sharded_publish,
    .await = sharded_await,
    .cost = gw_overlapped_cost,
};
