/* zerooneadam: 1-bit Adam whose second moment learns ever less often, and whose ranks, once it is
 * frozen, meet ever less often (Y. Lu, C. Li, M. Zhang, C. De Sa, Y. He, "Maximizing communication
 * efficiency for large-scale training via 0/1 Adam", ICLR 2023). In each step rank i does
 *
 *   m_i = b1 m_i + (1 - b1) g_i;  u_i = u_i + m_i;  x_i = x_i - lr m_i / (sqrt(v) + eps)
 *
 * and where ranks meet, in the k-th step since they last did, at x, with a residual e_i
 *
 *   u = mean of C(u_i + e_i);  m_i = u / k;  x = x - lr u / (sqrt(v) + eps);  x_i = x;  u_i = 0
 *
 * v = b2 v + (1 - b2) g^2 learns of the exact mean gradient g in `kappa` steps, then in `kappa`
 * that are every second one, every fourth, .., up to step `freeze`. Until then ranks meet in each
 * step. After it, they meet again 2^j steps after a meeting, and at most `local`, where j is how
 * often `double` steps have passed since `freeze`: an interval that has begun keeps its length. C
 * is the run's codec: onebit in the paper.
 *
 * Where g is exact, so is b1 m + (1 - b1) g, which u would be: it is taken, and the codec has
 * nothing to send, where the paper sends both. Between these steps, as in the paper and not in
 * DeepSpeed's port, the momentum is encoded and no gradient. So it is one quantity throughout, and
 * its residual need not be cleared when v freezes. Moments are corrected for their start at 0 as in
 * onebitadam, which this is up to its first local step if v learns in each up to `freeze`. The
 * paper weighs each m_i by its step's rate; here that of the meeting, so corrected, counts for all.
 *
 * u_i is weighted by the rank's share of the batch: a rank whose local step has no samples, or is
 * void, adds nothing and stays where it is. A settling averages the parameters exactly, and leaves
 * x and u_i alone: the next meeting is as without it. Parameters that had no gradient while v
 * learned stay where they are, as in onebitadam.
 *
 * Cost: an exact allreduce where v learns, nothing in a local step, else one of the codec's
 * encodings; memory for m, v, u and x. */
#include "comm/adam.h"
#include "comm/steps.h"

#include "base/clones.h"
#include "base/mem.h"
#include "base/norm.h"
#include "base/probe.h"

#include <stdlib.h>
#include <string.h>

typedef struct self {
    const gw_env *env;
    int64_t freeze, kappa, twice, local;
    gw_adam adam;
    float *sum, *reference; /* u_i, x */
    gw_steps steps;
    int64_t agreed; /* steps done when the replicas last agreed */
} self;

static void zerooneadam_close(void *p) {
    self *me = p;
    gw_adam_close(&me->adam);
    free(me->sum);
    free(me->reference);
}

static gw_err zerooneadam_open(void *p, const gw_env *env) {
    self *me = p;
    me->env = env;
    me->steps.n = env->n;
    me->freeze = gw_args_int(env->args, "freeze");
    me->kappa = gw_args_int(env->args, "kappa");
    me->twice = gw_args_int(env->args, "double");
    me->local = gw_args_int(env->args, "local");
    GW_TRY(gw_env_refuse_tracked(env));
    gw_err e = gw_alloc(&me->sum, env->n, sizeof *me->sum);
    GW_THEN(e, gw_alloc(&me->reference, env->n, sizeof *me->reference));
    GW_TRY(gw_lane_agree(env->grads, e));
    return gw_adam_open(&me->adam, env);
}

/* ---- when ---- */

/* What step number 1, 2, .. does. */
typedef struct action {
    bool learns;    /* v does, of an exact gradient, */
    int64_t learnt; /* for the so-manieth time, or so often before */
    bool meets;
    int64_t k; /* steps since the ranks last met, with this one */
} action;

/* The interval that the meeting `at` steps after `freeze` begins. */
static int64_t zerooneadam_interval(const self *me, int64_t at) {
    int64_t level = at / me->twice;
    return level < 31 && 1LL << level < me->local ? 1LL << level : me->local;
}

/* How many local steps come before step freeze + 1 + past since the ranks last met, and the length
 * of the interval that it is in. The loop passes from one length to the next, of which there are
 * few. */
static int64_t zerooneadam_within(const self *me, int64_t past, int64_t *period) {
    int64_t at = 0; /* a meeting */
    for (*period = zerooneadam_interval(me, at); *period < me->local;
         *period = zerooneadam_interval(me, at)) {
        int64_t left = (at / me->twice + 1) * me->twice - at; /* until others are due */
        int64_t next = at + (left + *period - 1) / *period * *period;
        if (past < next)
            break;
        at = next;
    }
    return (past - at) % *period;
}

static action zerooneadam_action(const self *me, int64_t step) {
    action now = {.meets = true, .k = 1};
    int64_t at = (step < me->freeze ? step : me->freeze) - 1, past = step - me->freeze - 1;
    int64_t every = 1, period;
    for (; at >= me->kappa * every; every *= 2) {
        at -= me->kappa * every;
        now.learnt += me->kappa;
    }
    now.learnt += at / every + 1;
    now.learns = past < 0 && at % every == 0;
    if (past < 0)
        return now;
    now.k = zerooneadam_within(me, past, &period) + 1;
    now.meets = now.k == period;
    return now;
}

/* ---- a step ---- */

GW_CLONES static void zerooneadam_walk(const float *restrict g, float *restrict m,
                                       const float *restrict v, float *restrict sum, float b1,
                                       float share, size_t n) {
    for (size_t i = 0; i < n; i++) {
        m[i] = v[i] > 0 ? b1 * m[i] + (1 - b1) * (g[i] / share) : 0;
        sum[i] += share * m[i];
    }
}

GW_CLONES static void zerooneadam_add(float *restrict g, float *restrict sum, size_t n) {
    for (size_t i = 0; i < n; i++) {
        g[i] += sum[i];
        sum[i] = 0;
    }
}

/* This rank's sum, in the place of its gradient, becomes that of all. */
static gw_err zerooneadam_meet(self *me, gw_span s, int64_t k) {
    const gw_env *env = me->env;
    gw_work_enter(GW_PHASE_ENCODE);
    gw_adam_blend(&me->adam, s, (float)env->share);
    if (k > 1) {
        zerooneadam_add(env->grad + s.off, me->sum + s.off, s.n);
        memcpy(env->param + s.off, me->reference + s.off, s.n * sizeof(float));
    }
    gw_work_leave();
    return gw_collective_run(&me->adam.coded, s);
}

static gw_err zerooneadam_finish(void *p, gw_span s, gw_update *u) {
    self *me = p;
    const gw_env *env = me->env;
    int64_t step = me->steps.done + 1;
    action now = zerooneadam_action(me, step);
    bool moves = now.meets || (env->share > 0 && !env->skip);
    if (!now.meets && now.k == 1)
        memcpy(me->reference + s.off, env->param + s.off, s.n * sizeof(float));
    if (!moves) {
        u->own.n = 0;
        return GW_OK;
    }
    if (now.learns)
        GW_TRY(gw_collective_run(&me->adam.dense, s));
    else if (now.meets)
        GW_TRY(zerooneadam_meet(me, s, now.k));
    gw_work_enter(GW_PHASE_DECODE);
    if (now.learns)
        gw_adam_learn(&me->adam, s);
    else if (now.meets)
        gw_adam_take(&me->adam, s, now.k);
    else
        zerooneadam_walk(env->grad + s.off, me->adam.m + s.off, me->adam.v + s.off, me->sum + s.off,
                         me->adam.beta1, (float)env->share, s.n);
    gw_adam_direct(&me->adam, s, now.meets ? now.k : 1, step, now.learnt);
    gw_work_leave();
    return GW_OK;
}

static gw_err zerooneadam_publish(void *p, gw_span s) {
    self *me = p;
    if (gw_steps_pass(&me->steps, s) && zerooneadam_action(me, me->steps.done).meets)
        me->agreed = me->steps.done;
    return GW_OK;
}

/* By how far the ranks have gone: what did not move keeps its bits. */
static gw_err zerooneadam_settle(void *p, gw_cost *sent) {
    self *me = p;
    float *param = me->env->param, *way = me->env->grad;
    float ranks = (float)gw_lane_size(me->env->params);
    const float *ref = me->reference;
    if (me->steps.done == me->agreed)
        return GW_OK;
    for (int i = 0; ranks > 1 && i < gw_env_spans(me->env); i++) {
        gw_span s = gw_env_span(me->env, i);
        for (size_t k = s.off; k < gw_span_end(s); k++)
            way[k] = param[k] - ref[k];
        GW_TRY(gw_collective_run(&me->adam.dense, s));
        for (size_t k = s.off; k < gw_span_end(s); k++)
            param[k] = ref[k] + way[k] / ranks;
    }
    *sent = gw_env_cost(me->env, &me->adam.dense);
    me->agreed = me->steps.done;
    return GW_OK;
}

static gw_err zerooneadam_state(void *p, gw_io *io) {
    self *me = p;
    size_t bytes = me->env->n * sizeof(float);
    GW_TRY(gw_steps_state(&me->steps, &me->agreed, io));
    GW_TRY(gw_adam_state(&me->adam, io));
    GW_TRY(gw_io_field(io, "sum", me->sum, bytes));
    return gw_io_field(io, "reference", me->reference, bytes);
}

/* ---- what is sent ---- */

/* From when on the interval is `local` for sure: each shorter one lasts `twice` steps, and at most
 * until the next meeting. */
static int64_t zerooneadam_settled(const self *me) {
    int64_t at = me->freeze;
    for (int64_t every = 1; every < me->local; every *= 2)
        at += me->twice + me->local;
    return at;
}

static gw_cost zerooneadam_cost(const void *p, int64_t exchange, int64_t *period) {
    const self *me = p;
    action now = zerooneadam_action(me, exchange + 1);
    *period = exchange < zerooneadam_settled(me) ? 0 : me->local;
    return now.meets ? gw_env_cost(me->env, now.learns ? &me->adam.dense : &me->adam.coded)
                     : (gw_cost){0};
}

static bool zerooneadam_agrees(const void *p, int steps) {
    const self *me = p;
    return steps ? zerooneadam_action(me, me->steps.done + steps).meets
                 : me->steps.done == me->agreed;
}

static const gw_opt opts[] = {
    {"freeze", GW_OPT_STEPS, "1000", 1, 1e9, NULL, "STEPS",
     "steps after which the second moment stays, and ranks begin to take steps of their own"},
    {"kappa", GW_OPT_INT, "16", 1, 1e9, NULL, "N",
     "updates of the second moment after which the interval between them doubles"},
    {"double", GW_OPT_INT, "1000", 1, 1e9, NULL, "STEPS",
     "steps after which the interval to the next meeting doubles; e.g. those in which the rate "
     "halves"},
    {"local", GW_OPT_INT, "16", 1, 1e6, NULL, "STEPS", "most steps between two meetings"},
    GW_ADAM_OPTS,
    GW_STRATEGY_ALGO,
    {0}};

const gw_strategy_ops gw_strategy_zerooneadam = {
    .head =
        {GW_STRATEGY_ABI, "zerooneadam",
         "Adam: its momentum by the codec, its second moment at times exactly; then local steps",
         opts},
    .gives = GW_GIVES_DIRECTION,
    .traits = GW_STRATEGY_VARIES,
    .formula = "one exact allreduce of n where the second moment learns, one by the codec in other "
               "steps that meet",
    .size = sizeof(self),
    .open = zerooneadam_open,
    .close = zerooneadam_close,
    .finish = zerooneadam_finish,
    .publish = zerooneadam_publish,
    .settle = zerooneadam_settle,
    .state = zerooneadam_state,
    .cost = zerooneadam_cost,
    .agrees = zerooneadam_agrees,
    .most = GW_SQUARES_MOST,
};
