/* local: local SGD. Every rank takes `period` optimizer steps on its own samples alone, by the mean
 * gradient over them; then the replicas are averaged (Stich, "Local SGD converges fast and
 * communicates little", ICLR 2019). One exchange in H steps, so 1/H of the bytes, for replicas that
 * drift apart in between: neither synchronous nor exact. period=1 with plain SGD and equal shares
 * is `allreduce` up to rounding.
 *
 * What is averaged is how far each rank has moved since the replicas last agreed, over the gradient
 * lane: drifts are small where parameters are not, so a codec errs little, and its error feedback
 * works as it does for gradients. All ranks then compute reference + sum / P from equal bits. With
 * momentum=1 what the optimizer remembers, such as momentum, is averaged too (exactly), as it would
 * be one in a serial run; without it each rank keeps its own.
 *
 * A rank without samples in a step does not move in it; replicas count equally in the average.
 *
 * Cost: one allreduce every `period` steps (momentum=1: and one for each vector of the optimizer's
 * state); memory for the reference and the drift, two arenas. */
#include "comm/schedule/collective.h"
#include "comm/steps.h"
#include "comm/strategy.h"

#include "base/mem.h"
#include "mpi/agree.h"

#include <stdlib.h>
#include <string.h>

typedef struct self {
    const gw_env *env;
    int64_t period;
    gw_steps steps;
    int64_t agreed;   /* steps done when the replicas last agreed */
    float *reference; /* what they agreed on */
    float *drift;     /* reduced: parameters - reference */
    float *vector;    /* reduced: one of the optimizer's; NULL: they are not averaged */
    gw_collective over_drift, over_vector;
} self;

static void local_close(void *p) {
    self *me = p;
    gw_collective_clear(&me->over_drift);
    gw_collective_clear(&me->over_vector);
    free(me->reference);
}

static gw_err local_open_vector(self *me, const gw_env *env) {
    if (env->vectors.count == 0)
        return gw_fail(GW_ERR_USAGE, "local: momentum=1 averages the optimizer's momentum, and it "
                                     "has none: give --momentum, or leave momentum=1 out");
    GW_TRY(gw_lane_floats(env->params, env->n, &me->vector));
    me->over_vector = (gw_collective){.algo = env->algo, .lane = env->params, .base = me->vector};
    return gw_env_prepare(env, &me->over_vector);
}

static gw_err local_open(void *p, const gw_env *env) {
    self *me = p;
    me->env = env;
    me->period = gw_args_int(env->args, "period");
    me->steps.n = env->n;
    GW_TRY(gw_lane_agree(env->grads, gw_alloc(&me->reference, env->n, sizeof(float))));
    GW_TRY(gw_lane_floats(env->grads, env->n, &me->drift));
    me->over_drift = (gw_collective){.algo = env->algo, .lane = env->grads, .base = me->drift};
    GW_TRY(gw_env_prepare(env, &me->over_drift));
    return gw_args_flag(env->args, "momentum") ? local_open_vector(me, env) : GW_OK;
}

static gw_err local_finish(void *p, gw_span s, gw_update *u) {
    self *me = p;
    (void)u;
    if (me->steps.done == me->agreed)
        memcpy(me->reference + s.off, me->env->param + s.off, s.n * sizeof(float));
    return GW_OK;
}

static gw_err local_average_state(self *me, gw_span s, float ranks) {
    const gw_env *env = me->env;
    for (int v = 0; v < env->vectors.count; v++) {
        float *x = env->vectors.x + (size_t)v * env->n;
        memcpy(me->vector + s.off, x + s.off, s.n * sizeof(float));
        GW_TRY(gw_collective_run(&me->over_vector, s));
        for (size_t i = s.off; i < gw_span_end(s); i++)
            x[i] = me->vector[i] / ranks;
    }
    return GW_OK;
}

static gw_err local_average(self *me, gw_span s) {
    const gw_env *env = me->env;
    float *param = env->param, *ref = me->reference, *drift = me->drift;
    float ranks = (float)gw_lane_size(env->grads);
    if (ranks == 1) /* the mean is what there is, not reference + (it - reference) */
        return GW_OK;
    for (size_t i = s.off; i < gw_span_end(s); i++)
        drift[i] = param[i] - ref[i];
    GW_TRY(gw_collective_run(&me->over_drift, s));
    for (size_t i = s.off; i < gw_span_end(s); i++)
        param[i] = ref[i] + drift[i] / ranks;
    return me->vector ? local_average_state(me, s, ranks) : GW_OK;
}

static gw_err local_publish(void *p, gw_span s) {
    self *me = p;
    bool due = (me->steps.done + 1) % me->period == 0;
    if (due)
        GW_TRY(local_average(me, s));
    if (gw_steps_pass(&me->steps, s) && due)
        me->agreed = me->steps.done;
    return GW_OK;
}

static gw_cost local_average_cost(const self *me) {
    gw_cost c = gw_env_cost(me->env, &me->over_drift);
    for (int v = 0; me->vector && v < me->env->vectors.count; v++)
        c = gw_cost_sum(c, gw_env_cost(me->env, &me->over_vector));
    return c;
}

static gw_err local_settle(void *p, gw_cost *sent) {
    self *me = p;
    if (me->steps.done == me->agreed)
        return GW_OK;
    for (int i = 0; i < gw_env_spans(me->env); i++)
        GW_TRY(local_average(me, gw_env_span(me->env, i)));
    *sent = local_average_cost(me);
    me->agreed = me->steps.done;
    return GW_OK;
}

static gw_err local_state(void *p, gw_io *io) {
    self *me = p;
    GW_TRY(gw_steps_state(&me->steps, &me->agreed, io));
    return gw_io_field(io, "reference", me->reference, me->env->n * sizeof(float));
}

static gw_cost local_cost(const void *p, int64_t exchange, int64_t *period) {
    const self *me = p;
    *period = me->period;
    return (exchange + 1) % me->period == 0 ? local_average_cost(me) : (gw_cost){0};
}

static bool local_agrees(const void *p, int steps) {
    const self *me = p;
    return steps ? (me->steps.done + steps) % me->period == 0 : me->steps.done == me->agreed;
}

static const gw_opt opts[] = {
    {"period", GW_OPT_PERIOD, "8", 1, 0x1p31, NULL, "H", "steps between averages"},
    {"momentum", GW_OPT_FLAG, NULL, 0, 0, NULL, NULL, "also average the optimizer's state"},
    GW_STRATEGY_ALGO,
    {0}};

const gw_strategy_ops gw_strategy_local = {
    .head = {GW_STRATEGY_ABI, "local", "local SGD: parameters are averaged every `period` steps",
             opts},
    .gives = GW_GIVES_OWN,
    .traits = GW_STRATEGY_VARIES,
    .formula = "one allreduce of n every `period` steps (momentum=1: and exact ones of its state)",
    .size = sizeof(self),
    .open = local_open,
    .close = local_close,
    .finish = local_finish,
    .publish = local_publish,
    .settle = local_settle,
    .state = local_state,
    .cost = local_cost,
    .agrees = local_agrees,
};
