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

#include <stdio.h>
#include <string.h>

#define UNKNOWN_CREDIT (4 << 20) /* bytes, where the wire's rate is not known */
#define GAP_S          20e-3     /* about the longest computation between two polls (nn/gemm.h) */

static bool iallreduce_by_priority(const gw_args *args) {
    return strcmp(gw_args_text(args, "order"), "priority") == 0;
}

static const char *iallreduce_plan(gw_strategy_plan *p) {
    bool by_priority = iallreduce_by_priority(p->args);
    gw_overlap_plan(p);
    if (gw_args_given(p->args, "credit") && !by_priority)
        return "credit= limits what order=priority has in flight, and order=backward starts every "
               "bucket at once: add order=priority, or leave credit out";
    if (!by_priority || !p->algo || !(p->algo->ops->caps & GW_ALGO_ORDERED))
        return NULL;
    return "order=priority needs an algorithm of own messages, e.g. algo=sra; this one starts MPI "
           "collectives, which must start in one order on all ranks";
}

/* What the wire carries from a poll here over a peer's to the next one here, and two buckets: one
 * is under way while the other's last bytes, which came just after a poll, wait for the next. */
static size_t iallreduce_credit(const gw_env *env, double sent) {
    double carried = env->link_bytes_per_s * 2 * GAP_S;
    double floats = (double)env->n * sizeof(float) * gw_lane_size(env->grads);
    if (!(env->link_bytes_per_s > 0 && sent > 0))
        return UNKNOWN_CREDIT;
    return (size_t)(carried * floats / sent) + 2 * gw_args_bytes(env->args, "bucket");
}

static void iallreduce_limit(const gw_overlapped *me) {
    const gw_env *env = me->env;
    char line[160];
    bool asked = gw_args_given(env->args, "credit");
    size_t credit = asked ? gw_args_bytes(env->args, "credit")
                          : iallreduce_credit(env, (double)gw_overlapped_cost(me, 0, NULL).bytes);
    gw_queue_limit(me->queue, credit);
    snprintf(line, sizeof line, "iallreduce: credit=%zu, %s", credit,
             asked                       ? "as asked"
             : env->link_bytes_per_s > 0 ? "from the wire's rate"
                                         : "since the wire's rate is not known");
    gw_lane_note(env->grads, line);
}

static gw_err iallreduce_open(void *self, const gw_env *env) {
    GW_TRY(gw_overlapped_open(self, env, GW_OVERLAP_BUCKETS, false));
    if (iallreduce_by_priority(env->args))
        iallreduce_limit(self);
    return GW_OK;
}

static const gw_opt opts[] = {
    GW_OVERLAP_BUCKET,
    GW_OVERLAP_PROGRESS,
    {"order", GW_OPT_CHOICE, "backward", 0, 0, "backward|priority", NULL,
     "which bucket goes first: in the order of the backward pass, or the one nearest the input"},
    {"credit", GW_OPT_BYTES, NULL, 4, 0x1p40, NULL, "BYTES",
     "order=priority: bytes of gradients in flight (default: what the wire carries in 40 ms, and "
     "two buckets; 4M where its rate is not known)"},
    GW_STRATEGY_ALGO,
    {0}};

const gw_strategy_ops gw_strategy_iallreduce = {
    .head = {GW_STRATEGY_ABI, "iallreduce",
             "nonblocking allreduces in buckets, overlapped with the backward pass", opts},
    .gives = GW_GIVES_MEAN,
    .traits = GW_STRATEGY_ENCODES,
    .shape = GW_SHAPE_BUCKETS,
    .formula = "one allreduce of each bucket",
    .plan = iallreduce_plan,
    .size = sizeof(gw_overlapped),
    .open = iallreduce_open,
    .close = gw_overlapped_close,
    .ready = gw_overlapped_ready,
    .progress = gw_overlapped_progress,
    .finish = gw_overlapped_finish,
    .cost = gw_overlapped_cost,
};
