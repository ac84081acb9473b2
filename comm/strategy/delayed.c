/* delayed: an update uses the gradient of the step before, so that its exchange has a whole step,
 * forward and backward pass, to hide under (Li et al., "Pipe-SGD: a decentralized pipelined SGD
 * framework for distributed deep net training", NeurIPS 2018, with a pipeline of two). Where that
 * step takes as long as the exchange, communication is free. All ranks make the same updates, so
 * replicas agree after each step; but the gradient was taken one update earlier than where it is
 * applied, so the curve is not the serial one, and large rates stand it less well. The first step
 * updates nothing; the last gradient stays unused.
 *
 * The exchange of a step starts when that step is published, on a copy, for the next backward pass
 * writes the gradients anew: then the one before it is complete and used, so that one copy serves
 * and only one exchange is under way. Buckets let the algorithm's rounds run side by side.
 *
 * Cost: one allreduce a bucket, and an arena of memory. */
#include "comm/overlap.h"
#include "comm/steps.h"

#include <string.h>

typedef struct self {
    gw_overlapped buckets; /* of the sum of the step before, under way or complete */
    gw_steps steps;
} self;

static gw_err delayed_open(void *p, const gw_env *env) {
    self *me = p;
    me->steps.n = env->n;
    GW_TRY(gw_lane_floats(env->grads, env->n, &me->buckets.grads.collective.base));
    return gw_overlapped_open(&me->buckets, env, GW_OVERLAP_BUCKETS, false);
}

static gw_err delayed_finish(void *p, gw_span s, gw_update *u) {
    self *me = p;
    GW_TRY(gw_overlapped_finish(me, s, u));
    if (me->steps.done == 0) /* nothing was sent yet */
        u->own.n = 0;
    return GW_OK;
}

static gw_err delayed_publish(void *p, gw_span s) {
    self *me = p;
    const gw_env *env = me->buckets.env;
    float *sum = me->buckets.grads.collective.base + s.off;
    if (env->skip)
        memset(sum, 0, s.n * sizeof *sum);
    else
        memcpy(sum, env->grad + s.off, s.n * sizeof *sum);
    gw_steps_pass(&me->steps, s);
    return gw_overlapped_ready(me, s);
}

/* Replicas agree anyway; this completes what is under way, so that what comes next (an evaluation,
 * a checkpoint) is not slowed down by it. */
static gw_err delayed_settle(void *p, gw_cost *sent) {
    self *me = p;
    (void)sent;
    gw_span all = {0, me->buckets.env->n};
    return gw_overlap_wait(&me->buckets.grads, me->buckets.queue, all);
}

static gw_err delayed_state(void *p, gw_io *io) {
    self *me = p;
    GW_TRY(delayed_settle(me, NULL));
    GW_TRY(gw_steps_state(&me->steps, NULL, io));
    return gw_io_field(io, "sum", me->buckets.grads.collective.base, me->steps.n * sizeof(float));
}

/* No thread: it would call MPI while the trainer does, between steps, when all else is quiet. */
static const gw_opt opts[] = {
    GW_OVERLAP_BUCKET,
    {"progress", GW_OPT_CHOICE, "poll", 0, 0, "poll|none", NULL,
     "who drives messages: polls between kernels, or nobody until the wait"},
    GW_STRATEGY_ALGO,
    {0}};

const gw_strategy_ops gw_strategy_delayed = {
    .head = {GW_STRATEGY_ABI, "delayed",
             "nonblocking allreduces overlapped with a whole step; the update is one step late",
             opts},
    .gives = GW_GIVES_LATE,
    .shape = GW_SHAPE_BUCKETS,
    .formula = "one allreduce of each bucket",
    .plan = gw_overlap_plan,
    .size = sizeof(self),
    .open = delayed_open,
    .close = gw_overlapped_close,
    .progress = gw_overlapped_progress,
    .finish = delayed_finish,
    .publish = delayed_publish,
    .settle = delayed_settle,
    .state = delayed_state,
    .cost = gw_overlapped_cost,
};
