/* gossip: decentralised SGD. Nobody ever sums over all ranks: each updates its own parameters by
 * its own samples' mean gradient, then averages them with those of a few neighbours. The weights of
 * that average form a doubly stochastic matrix, so the mean over all ranks moves as if every rank's
 * gradient had been averaged into it, while the replicas gather around it as fast as the topology
 * mixes. Neither synchronous nor exact: a slow rank delays its neighbours, not everybody.
 *
 *  ring         self, left and right, 1/3 each (two ranks: 1/2 each): 2 neighbours whatever P is,
 *               but news travels one rank a step (Lian et al., "Can decentralized algorithms
 *               outperform centralized algorithms?", NeurIPS 2017).
 *  exponential  in step k self and rank - 2^(k mod ceil(log2 P)), 1/2 each: one neighbour, and
 *               where P is a power of two log2 P rounds average exactly (Assran et al., "Stochastic
 *               gradient push for distributed deep learning", ICML 2019; Ying et al., "Exponential
 *               graph is provably efficient for decentralized deep training", NeurIPS 2021).
 *
 * Parameters are exchanged, not gradients, and never compressed: an error in them would stay. What
 * is evaluated or saved is the exact mean over all ranks, by an allreduce (settle).
 *
 * Cost: a step sends the parameters to each neighbour, whatever P is; settle is one allreduce. */
#include "comm/schedule/collective.h"
#include "comm/schedule/queue.h"
#include "comm/steps.h"
#include "comm/strategy.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_HOPS = 32 };

typedef struct self {
    const gw_env *env;
    bool ring;
    int hops;                /* exchanges of different neighbours that take turns */
    gw_schedule **schedules; /* [span * hops + hop] */
    gw_queue *queue;
    gw_collective mean;
    gw_steps steps;
    int64_t agreed; /* steps done when the replicas last agreed */
} self;

static void gossip_close(void *p) {
    self *me = p;
    gw_queue_close(me->queue);
    for (int i = 0; me->schedules && i < gw_env_spans(me->env) * me->hops; i++)
        gw_schedule_free(me->schedules[i]);
    free(me->schedules);
    gw_collective_clear(&me->mean);
}

/* ---- one exchange of one span ---- */

typedef struct scaling {
    float *x;
    size_t n;
    float by;
} scaling;

static gw_err gossip_scale(void *ctx) {
    const scaling *c = ctx;
    for (size_t i = 0; i < c->n; i++)
        c->x[i] *= c->by;
    return GW_OK;
}

static gw_err gossip_lay_down_scale(gw_schedule *s, float by) {
    scaling *c = NULL;
    gw_span span = gw_schedule_span(s);
    GW_TRY(gw_alloc(&c, 1, sizeof *c));
    *c = (scaling){gw_schedule_base(s) + span.off, span.n, by};
    GW_TRY(gw_schedule_own(s, c, free));
    return gw_schedule_work(s, gossip_scale, c);
}

/* The span to each of to[], that of each of from[] added, and the mean of them all. */
static gw_err gossip_lay_down(gw_schedule *s, const int *to, const int *from, int neighbours) {
    gw_span span = gw_schedule_span(s);
    int own, got[2], peers[GW_EXCHANGE_PEERS], n = 0;
    for (int i = 0; i < neighbours; i++) {
        peers[n++] = to[i];
        peers[n++] = from[i];
    }
    gw_schedule_among(s, peers, n);
    GW_TRY(gw_schedule_pack(s, span, false, &own));
    for (int i = 0; i < neighbours; i++) {
        GW_TRY(gw_schedule_recv(s, span, from[i], false, &got[i]));
        GW_TRY(gw_schedule_send(s, own, to[i]));
    }
    GW_TRY(gw_schedule_round(s));
    for (int i = 0; i < neighbours; i++)
        GW_TRY(gw_schedule_unpack(s, got[i], span, true));
    return gossip_lay_down_scale(s, 1.0f / (float)(neighbours + 1));
}

static gw_err gossip_lay_down_hop(const self *me, gw_schedule *s, int hop) {
    const gw_lane *lane = me->env->params;
    int rank = gw_lane_rank(lane), ranks = gw_lane_size(lane);
    int left = (rank - 1 + ranks) % ranks, right = (rank + 1) % ranks;
    if (me->ring)
        return gossip_lay_down(s, (int[]){right, left}, (int[]){left, right}, ranks == 2 ? 1 : 2);
    int far = 1 << hop; /* below `ranks` */
    return gossip_lay_down(s, (int[]){(rank + far) % ranks}, (int[]){(rank - far + ranks) % ranks},
                           1);
}

static int gossip_count_hops(bool ring, int ranks) {
    int hops = 0;
    if (ring)
        return ranks > 1;
    while (hops < MOST_HOPS - 2 && 1 << hops < ranks)
        hops++;
    return hops;
}

static gw_err gossip_lay_down_all(self *me) {
    const gw_env *env = me->env;
    int spans = gw_env_spans(env);
    GW_TRY(gw_alloc(&me->schedules, (size_t)spans * (size_t)me->hops, sizeof *me->schedules));
    for (int i = 0; i < spans; i++)
        for (int hop = 0; hop < me->hops; hop++) {
            gw_schedule **s = &me->schedules[i * me->hops + hop];
            GW_TRY(gw_schedule_new(s, env->params, env->param, gw_env_span(env, i)));
            GW_TRY(gossip_lay_down_hop(me, *s, hop));
        }
    return gw_queue_open(&me->queue, GW_PROGRESS_POLL, spans, gw_lane_yields(env->params));
}

static gw_err gossip_open(void *p, const gw_env *env) {
    self *me = p;
    me->env = env;
    me->steps.n = env->n;
    me->ring = strcmp(gw_args_text(env->args, "topology"), "ring") == 0;
    me->hops = gossip_count_hops(me->ring, gw_lane_size(env->params));
    me->mean = (gw_collective){.algo = env->algo, .lane = env->params, .base = env->param};
    GW_TRY(gw_env_prepare(env, &me->mean));
    return gossip_lay_down_all(me);
}

/* ---- the step ---- */

static gw_err gossip_progress(void *p) {
    self *me = p;
    return gw_queue_poll(me->queue);
}

/* Each rank updates at once, by its own gradient. */
static gw_err gossip_finish(void *p, gw_span s, gw_update *u) {
    (void)p, (void)s, (void)u;
    return GW_OK;
}

/* In a step all exchanges of a span start before the next step's: `hop` is the step's for both. */
static gw_schedule *gossip_exchange(const self *me, int span, int64_t step) {
    return me->schedules[span * me->hops + (int)(step % me->hops)];
}

static gw_err gossip_publish(void *p, gw_span s) {
    self *me = p;
    for (int i = 0; me->hops > 0 && i < gw_env_spans(me->env); i++)
        if (gw_span_overlap(gw_env_span(me->env, i), s))
            GW_TRY(gw_queue_start(me->queue, gossip_exchange(me, i, me->steps.done)));
    gw_steps_pass(&me->steps, s);
    return GW_OK;
}

static gw_err gossip_await(void *p, gw_span s) {
    self *me = p;
    for (int i = 0; i < gw_env_spans(me->env); i++)
        for (int hop = 0; gw_span_overlap(gw_env_span(me->env, i), s) && hop < me->hops; hop++)
            GW_TRY(gw_queue_wait(me->queue, me->schedules[i * me->hops + hop]));
    return GW_OK;
}

static gw_err gossip_settle(void *p, gw_cost *sent) {
    self *me = p;
    const gw_env *env = me->env;
    if (me->steps.done == me->agreed)
        return GW_OK;
    for (int i = 0; gw_lane_size(env->params) > 1 && i < gw_env_spans(env); i++) {
        gw_span s = gw_env_span(env, i);
        GW_TRY(gw_collective_run(&me->mean, s));
        for (size_t k = s.off; k < gw_span_end(s); k++)
            env->param[k] /= (float)gw_lane_size(env->params);
    }
    *sent = gw_env_cost(env, &me->mean);
    me->agreed = me->steps.done;
    return GW_OK;
}

static gw_err gossip_state(void *p, gw_io *io) {
    self *me = p;
    return gw_steps_state(&me->steps, &me->agreed, io);
}

static gw_cost gossip_cost(const void *p, int64_t exchange, int64_t *period) {
    const self *me = p;
    const gw_lane *lane = me->env->params;
    uint64_t ranks = (uint64_t)gw_lane_size(lane), to = ranks == 1              ? 0
                                                        : me->ring && ranks > 2 ? 2
                                                                                : 1;
    (void)exchange;
    *period = me->hops > 1 ? me->hops : 1; /* neighbours at other distances may be in other racks */
    return gw_env_messages(me->env, ranks * to, 1);
}

static const gw_opt opts[] = {
    {"topology", GW_OPT_CHOICE, "ring", 0, 0, "ring|exponential", NULL,
     "left and right neighbours, or one neighbour at distance 1, 2, 4, .. in turn"},
    GW_STRATEGY_ALGO,
    {0}};

const gw_strategy_ops gw_strategy_gossip = {
    .head = {GW_STRATEGY_ABI, "gossip",
             "decentralized: after each update, parameters are averaged with one or two neighbours",
             opts},
    .gives = GW_GIVES_OWN,
    .traits = GW_STRATEGY_VARIES,
    .formula = "P spans of n (exact) per neighbour: 2 (ring), 1 (exponential or P = 2)",
    .plan = gw_strategy_plan_exact,
    .size = sizeof(self),
    .open = gossip_open,
    .close = gossip_close,
    .progress = gossip_progress,
    .finish = gossip_finish,
    .publish = gossip_publish,
    .await = gossip_await,
    .settle = gossip_settle,
    .state = gossip_state,
    .cost = gossip_cost,
};
