/* flip: an allreduce, but after the update of one step one rank flips a bit of its parameters, as
 * damaged memory would. For tests of who notices. A plugin like plugin_example.c. */
#include "comm/schedule/collective.h"
#include "comm/strategy.h"

#include <string.h>

typedef struct self {
    const gw_env *env;
    gw_collective sum;
    int64_t step; /* that was published last */
} self;

static void close(void *p) {
    self *me = p;
    gw_collective_clear(&me->sum);
}

static gw_err open(void *p, const gw_env *env) {
    self *me = p;
    me->env = env;
    me->sum = (gw_collective){
        .algo = env->algo, .verb = GW_ALLREDUCE, .lane = env->grads, .base = env->grad};
    return gw_env_prepare(env, &me->sum);
}

static gw_err finish(void *p, gw_span s, gw_update *u) {
    self *me = p;
    (void)u;
    return gw_collective_run(&me->sum, s);
}

static gw_err publish(void *p, gw_span s) {
    self *me = p;
    const gw_env *env = me->env;
    gw_span layer = env->layers[gw_args_int(env->args, "layer")];
    if (s.off == 0)
        me->step++;
    if (me->step == gw_args_int(env->args, "step") && gw_span_common(s, layer).n == layer.n &&
        gw_lane_rank(env->grads) == gw_args_int(env->args, "rank")) {
        uint32_t bits; /* a bit so high that later updates do not round it away */
        float *last = env->param + gw_span_end(layer) - 1;
        memcpy(&bits, last, sizeof bits);
        bits ^= 1u << 22;
        memcpy(last, &bits, sizeof bits);
    }
    return GW_OK;
}

static gw_cost cost(const void *p, int64_t exchange, int64_t *period) {
    const self *me = p;
    (void)exchange, (void)period;
    return gw_env_cost(me->env, &me->sum);
}

static const gw_opt opts[] = {
    {"step", GW_OPT_INT, "1", 1, 1e9, NULL, "N", "after which a bit flips"},
    {"rank", GW_OPT_INT, "0", 0, 1e9, NULL, "R", "on which"},
    {"layer", GW_OPT_INT, "0", 0, 1e9, NULL, "L", "in the last float of which"},
    GW_STRATEGY_ALGO,
    {0}};

const gw_strategy_ops gw_strategy_plugin = {
    .head = {GW_STRATEGY_ABI, "flip", "allreduces; then a bit of one rank's parameters flips",
             opts},
    .gives = GW_GIVES_MEAN,
    .formula = "one allreduce of n",
    .size = sizeof(self),
    .open = open,
    .close = close,
    .finish = finish,
    .publish = publish,
    .cost = cost,
};
