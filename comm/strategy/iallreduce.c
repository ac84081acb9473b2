/* iallreduce: nonblocking allreduces overlapped with the backward pass. Gradients are exchanged in
 * buckets, filled in backward order and posted as soon as full; what is in flight is moved on
 * between kernels (progress=poll), by a thread (thread), or not before finish (none). Every rank
 * updates everything. Synchronous; the same sums as `allreduce` up to the order of rounding. */
#include "comm/buckets.h"
#include "comm/plan.h"
#include "comm/queue.h"
#include "comm/strategy.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

/* Each bucket in flight has a tag of its own, and each poll looks at all of them. */
enum { MOST_BUCKETS = 4096 };

typedef struct self {
    const gw_env *env;
    gw_buckets buckets;
    gw_schedule **schedules; /* one a bucket */
    gw_plan plan;
    gw_queue *queue;
    size_t ready_from; /* grad[ready_from, n) is final in this step */
    int posted;        /* buckets posted in this step */
} self;

static void close(void *p) {
    self *me = p;
    gw_queue_close(me->queue);
    gw_plan_clear(&me->plan);
    free(me->schedules);
    free(me);
}

static gw_progress mode_of(const gw_args *args) {
    const char *mode = gw_args_text(args, "progress");
    if (strcmp(mode, "thread") == 0)
        return GW_PROGRESS_THREAD;
    return strcmp(mode, "poll") == 0 ? GW_PROGRESS_POLL : GW_PROGRESS_NONE;
}

static int thread_level(const gw_args *args) {
    return mode_of(args) == GW_PROGRESS_THREAD ? MPI_THREAD_SERIALIZED : MPI_THREAD_FUNNELED;
}

static gw_err open(void **out, const gw_env *env) {
    self *me = NULL;
    GW_TRY(gw_alloc(&me, 1, sizeof *me));
    me->env = env;
    me->buckets = gw_buckets_cut(env->n, gw_args_bytes(env->args, "bucket"));
    if (env->n / me->buckets.each >= MOST_BUCKETS) {
        free(me);
        return gw_fail(GW_ERR_USAGE,
                       "iallreduce: bucket=%s cuts %zu parameters into more than %d buckets: use "
                       "larger ones",
                       gw_args_text(env->args, "bucket"), env->n, MOST_BUCKETS);
    }
    me->plan = (gw_plan){.algo = env->algo, .lane = env->grads, .base = env->grad};
    me->ready_from = env->n;
    gw_err e = gw_alloc(&me->schedules, (size_t)me->buckets.count, sizeof *me->schedules);
    for (int i = 0; e == GW_OK && i < me->buckets.count; i++)
        e = gw_plan_get(&me->plan, gw_buckets_span(&me->buckets, i), &me->schedules[i]);
    if (e == GW_OK)
        e = gw_queue_open(&me->queue, mode_of(env->args), me->buckets.count, env->grads->yield);
    if (e != GW_OK) {
        close(me);
        return e;
    }
    *out = me;
    return GW_OK;
}

static gw_err ready(void *p, gw_span s) {
    self *me = p;
    if (s.n == 0)
        return GW_OK;
    if (me->ready_from == 0) { /* the first layer of a new step */
        me->ready_from = me->env->n;
        me->posted = 0;
    }
    if (gw_span_end(s) != me->ready_from)
        return gw_fail(GW_ERR_INTERNAL,
                       "iallreduce: gradients [%zu, %zu) ready before those behind", s.off,
                       gw_span_end(s));
    me->ready_from = s.off;
    while (me->posted < me->buckets.count &&
           gw_buckets_span(&me->buckets, me->posted).off >= me->ready_from) {
        GW_TRY(gw_queue_start(me->queue, me->schedules[me->posted]));
        me->posted++;
    }
    return GW_OK;
}

static gw_err progress(void *p) {
    self *me = p;
    return gw_queue_poll(me->queue);
}

static gw_err finish(void *p, gw_span s, gw_update *u) {
    self *me = p;
    for (int i = 0; i < me->posted; i++)
        if (gw_span_overlap(gw_buckets_span(&me->buckets, i), s))
            GW_TRY(gw_queue_wait(me->queue, me->schedules[i]));
    *u = (gw_update){me->env->grad, s, 1.0f};
    return GW_OK;
}

static gw_cost cost(const void *p, int64_t exchange) {
    const self *me = p;
    gw_cost sum = {0};
    (void)exchange;
    for (int i = 0; i < me->buckets.count; i++)
        sum = gw_cost_sum(sum, gw_plan_cost(&me->plan, gw_buckets_span(&me->buckets, i).n));
    return sum;
}

static const gw_opt opts[] = {
    {"bucket", GW_OPT_BYTES, "1M", 4, 0x1p40, NULL, "BYTES",
     "bytes of gradients in a bucket, posted when full"},
    {"progress", GW_OPT_CHOICE, "poll", 0, 0, "poll|thread|none", NULL,
     "who moves messages on: polls between kernels, a thread, nobody before finish"},
    GW_STRATEGY_ALGO,
    {0}};

const gw_strategy_ops gw_strategy_iallreduce = {
    .head = {GW_STRATEGY_ABI, "iallreduce",
             "nonblocking allreduces in buckets, overlapped with the backward pass", opts},
    .traits = GW_STRATEGY_SYNCHRONOUS | GW_STRATEGY_EXACT,
    .formula = "one allreduce of each bucket",
    .thread_level = thread_level,
    .open = open,
    .close = close,
    .ready = ready,
    .progress = progress,
    .finish = finish,
    .cost = cost,
};
