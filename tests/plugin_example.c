/* halves: gradients are exchanged in two halves. The backward pass completes the upper layers
 * first; they are reduced while it computes the lower ones, which are reduced at its end. This is a
 * strategy outside the tree, as docs/extend-plugin.md describes it: a shared object, loaded by its
 * path, that must pass the same contract as the strategies inside. */
#include "comm/schedule/collective.h"
#include "comm/schedule/queue.h"
#include "comm/strategy.h"

enum { LOWER, UPPER, HALVES };

typedef struct self {
    const gw_env *env;
    gw_collective sum;
    gw_queue *queue;
    gw_span half[HALVES];
    gw_schedule *schedule[HALVES];
    size_t final[HALVES]; /* floats of this half that are final in this step */
} self;

static void close(void *p) {
    self *me = p;
    gw_queue_close(me->queue);
    gw_collective_clear(&me->sum);
}

static gw_err open(void *p, const gw_env *env) {
    self *me = p;
    size_t cut = env->n_layers > 1 ? env->layers[env->n_layers / 2].off : 0;
    me->env = env;
    me->half[LOWER] = (gw_span){0, cut};
    me->half[UPPER] = (gw_span){cut, env->n - cut};
    me->sum = (gw_collective){
        .algo = env->algo, .verb = GW_ALLREDUCE, .lane = env->grads, .base = env->grad};
    for (int i = 0; i < HALVES; i++)
        GW_TRY(gw_collective_get(&me->sum, me->half[i], &me->schedule[i]));
    return gw_queue_open(&me->queue, GW_PROGRESS_POLL, HALVES, gw_lane_yields(env->grads));
}

static gw_err ready(void *p, gw_span s) {
    self *me = p;
    int i = s.off >= me->half[UPPER].off ? UPPER : LOWER; /* a layer lies in one of them */
    me->final[i] += s.n;
    if (s.n == 0 || me->final[i] < me->half[i].n)
        return GW_OK;
    me->final[i] = 0;
    return gw_queue_start(me->queue, me->schedule[i]);
}

static gw_err progress(void *p) {
    self *me = p;
    return gw_queue_poll(me->queue);
}

static gw_err finish(void *p, gw_span s, gw_update *u) {
    self *me = p;
    (void)u;
    for (int i = 0; i < HALVES; i++)
        if (gw_span_overlap(me->half[i], s))
            GW_TRY(gw_queue_wait(me->queue, me->schedule[i]));
    return GW_OK;
}

static gw_cost cost(const void *p, int64_t exchange, int64_t *period) {
    const self *me = p;
    (void)exchange, (void)period;
    return gw_cost_sum(gw_collective_cost(&me->sum, me->half[LOWER]),
                       gw_collective_cost(&me->sum, me->half[UPPER]));
}

static const gw_opt opts[] = {GW_STRATEGY_ALGO, {0}};

const gw_strategy_ops gw_strategy_plugin = {
    .head = {GW_STRATEGY_ABI, "halves", "two allreduces, the upper layers' overlapped", opts},
    .gives = GW_GIVES_MEAN,
    .formula = "two allreduces that add up to n",
    .size = sizeof(self),
    .open = open,
    .close = close,
    .ready = ready,
    .progress = progress,
    .finish = finish,
    .cost = cost,
};
