/* ps: the parameter server, blocking: gradients are reduced to rank 0, which alone runs the
 * optimizer and broadcasts the new parameters (Li et al., "Scaling distributed machine learning
 * with the parameter server", OSDI 2014, here with one server and in step). Synchronous; gradients
 * as exact as their codec, parameters always exact.
 *
 * dedicated=1: rank 0 only serves; the samples of a batch go to ranks 1 to P-1. Its own gradient is
 * that of no samples, zero, so the sum is still that of the global batch.
 *
 * Cost: one reduce and one broadcast. As many bytes as an allreduce has at least, but all of them
 * through rank 0, whose link sees P-1 encoded gradients a step come in. */
#include "comm/schedule/collective.h"
#include "comm/strategy.h"

enum { SERVER = 0 };

typedef struct self {
    const gw_env *env;
    gw_collective reduce, bcast;
} self;

static const char *ps_plan(gw_strategy_plan *p) {
    p->servers = gw_args_flag(p->args, "dedicated");
    return NULL;
}

static void ps_close(void *p) {
    self *me = p;
    gw_collective_clear(&me->reduce);
    gw_collective_clear(&me->bcast);
}

static gw_err ps_open(void *p, const gw_env *env) {
    self *me = p;
    if (gw_args_flag(env->args, "dedicated") && gw_lane_size(env->grads) == 1)
        return gw_fail(
            GW_ERR_USAGE,
            "ps: dedicated=1 keeps the only rank, or replica, from training: start more ranks");
    me->env = env;
    me->reduce = (gw_collective){.algo = env->algo,
                                 .verb = GW_REDUCE,
                                 .lane = env->grads,
                                 .base = env->grad,
                                 .root = SERVER};
    me->bcast = (gw_collective){.algo = env->algo,
                                .verb = GW_BCAST,
                                .lane = env->params,
                                .base = env->param,
                                .root = SERVER};
    GW_TRY(gw_env_prepare(env, &me->reduce));
    return gw_env_prepare(env, &me->bcast);
}

static gw_err ps_finish(void *p, gw_span s, gw_update *u) {
    self *me = p;
    (void)u;
    return gw_collective_run(&me->reduce, s);
}

static gw_err ps_publish(void *p, gw_span s) {
    self *me = p;
    return gw_collective_run(&me->bcast, s);
}

static gw_cost ps_cost(const void *p, int64_t exchange, int64_t *period) {
    const self *me = p;
    (void)exchange, (void)period;
    return gw_cost_sum(gw_env_cost(me->env, &me->reduce), gw_env_cost(me->env, &me->bcast));
}

static const gw_opt opts[] = {
    {"dedicated", GW_OPT_FLAG, NULL, 0, 0, NULL, NULL, "rank 0 only updates: it trains no samples"},
    GW_STRATEGY_ALGO,
    {0}};

const gw_strategy_ops gw_strategy_ps = {
    .head = {GW_STRATEGY_ABI, "ps",
             "parameter server: reduce to rank 0, update there, broadcast (blocking)", opts},
    .gives = GW_GIVES_ROOT,
    .formula = "one reduce of n (codec) + one bcast of n (exact)",
    .plan = ps_plan,
    .size = sizeof(self),
    .open = ps_open,
    .close = ps_close,
    .finish = ps_finish,
    .publish = ps_publish,
    .cost = ps_cost,
};
