/* allreduce: when the backward pass is over, one blocking allreduce of what the trainer asks for;
 * every rank updates everything. Synchronous, exact as its codec. The baseline of all others. */
#include "comm/schedule/collective.h"
#include "comm/strategy.h"

typedef struct self {
    const gw_env *env;
    gw_collective sum;
} self;

static void allreduce_close(void *p) {
    self *me = p;
    gw_collective_clear(&me->sum);
}

static gw_err allreduce_open(void *p, const gw_env *env) {
    self *me = p;
    me->env = env;
    me->sum = (gw_collective){.algo = env->algo, .lane = env->grads, .base = env->grad};
    return gw_env_prepare(env, &me->sum);
}

static gw_err allreduce_finish(void *p, gw_span s, gw_update *u) {
    self *me = p;
    (void)u;
    return gw_collective_run(&me->sum, s);
}

static gw_cost allreduce_cost(const void *p, int64_t exchange, int64_t *period) {
    const self *me = p;
    (void)exchange, (void)period;
    return gw_env_cost(me->env, &me->sum);
}

static const gw_opt opts[] = {GW_STRATEGY_ALGO, {0}};

const gw_strategy_ops gw_strategy_allreduce = {
    .head = {GW_STRATEGY_ABI, "allreduce", "one blocking allreduce after the backward pass", opts},
    .gives = GW_GIVES_MEAN,
    .traits = GW_STRATEGY_ENCODES,
    .shape = GW_SHAPE_WHOLE,
    .formula = "one allreduce of n",
    .size = sizeof(self),
    .open = allreduce_open,
    .close = allreduce_close,
    .finish = allreduce_finish,
    .cost = allreduce_cost,
};
