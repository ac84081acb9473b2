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

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

typedef struct self {
    const gw_env *env;
    gw_overlap buckets;
    gw_queue *queue;
    float *sum; /* of the step before, under way or complete */
    gw_steps steps;
} self;

static void close(void *p) {
    self *me = p;
    gw_queue_close(me->queue);
    gw_overlap_clear(&me->buckets);
    free(me);
}

static gw_err open_on(self *me, const gw_env *env) {
    GW_TRY(gw_lane_floats(env->grads, env->n, &me->sum));
    me->buckets.plan = (gw_plan){.algo = env->algo, .lane = env->grads, .base = me->sum};
    GW_TRY(gw_overlap_buckets(&me->buckets, "delayed", env->n, gw_args_bytes(env->args, "bucket")));
    GW_TRY(gw_queue_open(&me->queue, gw_overlap_mode(env->args), me->buckets.count,
                         env->grads->yield));
    me->buckets.queue = me->queue;
    return GW_OK;
}

static gw_err open(void **out, const gw_env *env) {
    self *me = NULL;
    GW_TRY(gw_alloc(&me, 1, sizeof *me));
    me->env = env;
    me->steps.n = env->n;
    gw_err e = open_on(me, env);
    if (e != GW_OK) {
        close(me);
        return e;
    }
    *out = me;
    return GW_OK;
}

static gw_err progress(void *p) {
    self *me = p;
    return gw_queue_poll(me->queue);
}

static gw_err finish(void *p, gw_span s, gw_update *u) {
    self *me = p;
    GW_TRY(gw_overlap_wait(&me->buckets, s));
    bool first = me->steps.done == 0;
    *u = (gw_update){.grad = me->sum, .own = first ? (gw_span){s.off, 0} : s, .scale = 1.0f};
    return GW_OK;
}

static gw_err publish(void *p, gw_span s) {
    self *me = p;
    if (me->env->skip)
        memset(me->sum + s.off, 0, s.n * sizeof(float));
    else
        memcpy(me->sum + s.off, me->env->grad + s.off, s.n * sizeof(float));
    gw_steps_pass(&me->steps, s);
    return gw_overlap_fill(&me->buckets, s);
}

/* Replicas agree anyway; this completes what is under way, so that what comes next (an evaluation,
 * a checkpoint) is not slowed down by it. */
static gw_err settle(void *p) {
    self *me = p;
    return gw_overlap_wait(&me->buckets, (gw_span){0, me->env->n});
}

static gw_err state(void *p, gw_io *io) {
    self *me = p;
    GW_TRY(settle(me));
    GW_TRY(gw_steps_state(&me->steps, NULL, io));
    return gw_io_field(io, "sum", me->sum, me->env->n * sizeof(float));
}

static gw_cost cost(const void *p, int64_t exchange) {
    const self *me = p;
    (void)exchange;
    return gw_overlap_cost(&me->buckets);
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
    .traits = GW_STRATEGY_SYNCHRONOUS | GW_STRATEGY_LATE,
    .formula = "one allreduce of each bucket",
    .polls = gw_overlap_polls,
    .open = open,
    .close = close,
    .progress = progress,
    .finish = finish,
    .publish = publish,
    .settle = settle,
    .state = state,
    .cost = cost,
};
