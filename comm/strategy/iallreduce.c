/* iallreduce: nonblocking allreduces overlapped with the backward pass. Gradients are exchanged in
 * buckets, filled in backward order and posted as soon as full (Li et al., "PyTorch Distributed",
 * VLDB 2020); what is in flight is moved on between kernels (progress=poll), by a thread (thread),
 * or not before finish (none). Every rank updates everything. Synchronous; the same sums as
 * `allreduce` up to the order of rounding.
 *
 * order=backward posts every bucket at once, so what the backward pass completes first is exchanged
 * first. The next forward pass needs them the other way round: order=priority keeps `credit` bytes
 * in flight and lets the others wait, of which the one nearest the model's input goes first
 * (Jayarajan et al., "Priority-based parameter propagation", MLSys 2019; Peng et al.,
 * "ByteScheduler", SOSP 2019). It pays with --update lazy, where finish comes layer by layer. As
 * ranks may then choose differently, algorithms must not rely on one order, and a bucket that
 * finish waits for is posted whatever is in flight: else two ranks might each wait for the other's
 * choice. Credit ahead of the layer that is needed first is time that it waits, so that no more
 * than keeps the wire busy is in flight: a message and its answer each wait for a poll.
 *
 * Cost: one allreduce a bucket. Small buckets overlap more and pay more latency. */
#include "comm/overlap.h"

#include "base/mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct self {
    const gw_env *env;
    gw_overlap buckets;
    gw_queue *queue;
} self;

#define UNKNOWN_CREDIT (4 << 20) /* bytes, where the wire's rate is not known */

static bool by_priority(const gw_args *args) {
    return strcmp(gw_args_text(args, "order"), "priority") == 0;
}

static const char *refuses(const gw_args *args, const gw_algo *algo, const gw_codec *codec) {
    (void)codec;
    if (!by_priority(args) || !(algo->ops->caps & GW_ALGO_ORDERED))
        return NULL;
    return "order=priority needs an algorithm of own messages, e.g. algo=sra; this one starts MPI "
           "collectives, which must start in one order on all ranks";
}

/* What the wire carries from a poll here over a peer's to the next one here, and two buckets: one
 * is under way while the other's last bytes, which came just after a poll, wait for the next. */
static size_t credit_for(const gw_env *env, double sent) {
    double carried = env->pace.bytes_per_s * 2 * env->pace.gap_s;
    double floats = (double)env->n * sizeof(float) * env->grads->size;
    if (!(env->pace.bytes_per_s > 0 && sent > 0))
        return UNKNOWN_CREDIT;
    return (size_t)(carried * floats / sent) + 2 * gw_args_bytes(env->args, "bucket");
}

static void limit(self *me) {
    const gw_env *env = me->env;
    char line[160];
    bool asked = gw_args_given(env->args, "credit");
    size_t credit = asked ? gw_args_bytes(env->args, "credit")
                          : credit_for(env, (double)gw_overlap_cost(&me->buckets).bytes);
    gw_queue_limit(me->queue, credit);
    snprintf(line, sizeof line, "iallreduce: credit=%zu, %s", credit,
             asked                       ? "as asked"
             : env->pace.bytes_per_s > 0 ? "from the wire's rate"
                                         : "since the wire's rate is not known");
    gw_lane_note(env->grads, line);
}

static void close(void *p) {
    self *me = p;
    gw_queue_close(me->queue);
    gw_overlap_clear(&me->buckets);
    free(me);
}

static gw_err open_on(self *me, const gw_env *env) {
    me->buckets.plan = (gw_plan){.algo = env->algo, .lane = env->grads, .base = env->grad};
    GW_TRY(
        gw_overlap_buckets(&me->buckets, "iallreduce", env->n, gw_args_bytes(env->args, "bucket")));
    GW_TRY(gw_overlap_queue(&me->queue, env, me->buckets.count));
    me->buckets.queue = me->queue;
    if (by_priority(env->args))
        limit(me);
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
    return gw_overlap_fill(&me->buckets, s);
}

static gw_err progress(void *p) {
    self *me = p;
    return gw_queue_poll(me->queue);
}

static gw_err finish(void *p, gw_span s, gw_update *u) {
    self *me = p;
    GW_TRY(gw_overlap_wait(&me->buckets, s));
    *u = (gw_update){.grad = me->env->grad, .own = s, .scale = 1.0f};
    return GW_OK;
}

static gw_cost cost(const void *p, int64_t exchange) {
    const self *me = p;
    (void)exchange;
    return gw_overlap_cost(&me->buckets);
}

static const gw_opt opts[] = {
    GW_OVERLAP_BUCKET,
    GW_OVERLAP_PROGRESS,
    {"order", GW_OPT_CHOICE, "backward", 0, 0, "backward|priority", NULL,
     "which bucket goes first: in the order of the backward pass, or the one nearest the input"},
    {"credit", GW_OPT_BYTES, NULL, 4, 0x1p40, NULL, "BYTES",
     "order=priority: bytes of gradients in flight (default: what the wire carries in twice the "
     "time between polls, and two buckets; 4M where its rate is not known)"},
    GW_STRATEGY_ALGO,
    {0}};

const gw_strategy_ops gw_strategy_iallreduce = {
    .head = {GW_STRATEGY_ABI, "iallreduce",
             "nonblocking allreduces in buckets, overlapped with the backward pass", opts},
    .traits = GW_STRATEGY_SYNCHRONOUS | GW_STRATEGY_EXACT | GW_STRATEGY_ENCODES,
    .formula = "one allreduce of each bucket",
    .refuses = refuses,
    .thread_level = gw_overlap_thread_level,
    .helpers = gw_overlap_helpers,
    .polls = gw_overlap_polls,
    .open = open,
    .close = close,
    .ready = ready,
    .progress = progress,
    .finish = finish,
    .cost = cost,
};
