/* noloco: local steps without any collective. Every `period` steps the ranks are paired by a random
 * permutation, the same on all of them, and a rank's outer optimizer hears of its partner alone.
 * With a rank's parameters W at the start of a round and w at its end, D = w - W:
 *
 *      v = a v + (b/2) (D + D') - g (W - (W + W') / 2);  W += v;  w = W
 *
 * (Kolehmainen et al., "NoLoCo: No-all-reduce low communication training method for large models",
 * arXiv 2506.10911, 2025). The last term pulls the two together, for W and v are each rank's own.
 * That gathers them if 0 < g < 2 (1 - a^2): where D is left out, the second moments of the ranks'
 * distances from their mean and of v shrink from round to round. Beyond it they grow where there
 * are many ranks or an odd number of them; few and even ones bear a larger g. Of an odd number one,
 * drawn anew in each round, is alone: v = a v + b D. The inner optimizer's state stays each
 * rank's own.
 *
 * What is evaluated or saved is the exact mean over all ranks, by an allreduce (settle); a round
 * that it falls into keeps its differences D. Nothing is compressed: an error in W would stay.
 *
 * Cost: every `period` steps each paired rank sends 2n floats, W and D, whatever P is; memory for
 * W, v and what is exchanged, six arenas, and a schedule for each possible partner (with messages
 * in frames a buffer of 2n, too). */
#include "comm/schedule/collective.h"
#include "comm/steps.h"
#include "comm/strategy.h"

#include "base/mem.h"
#include "base/rng.h"

#include <stdlib.h>
#include <string.h>

typedef struct self {
    const gw_env *env;
    int64_t period;
    float rate, momentum, pull;
    gw_steps steps;
    int64_t agreed;   /* steps done when the replicas last agreed */
    float *outer, *v; /* W, v */
    float *both;      /* of a span, at four times its offset: D and W, then those of the partner */
    gw_schedule **schedules; /* [span * ranks + (rank + partner) % ranks]: a pair knows its own */
    uint32_t *order;         /* ranks, by pairs */
    gw_collective mean;
} self;

static void noloco_close(void *p) {
    self *me = p;
    int ranks = gw_lane_size(me->env->params);
    for (int i = 0; me->schedules && i < gw_env_spans(me->env) * ranks; i++)
        gw_schedule_free(me->schedules[i]);
    free(me->schedules);
    gw_collective_clear(&me->mean);
    free(me->outer);
    free(me->v);
    free(me->order);
}

/* ---- opening ---- */

static gw_err noloco_read(self *me, const gw_args *args) {
    double a = gw_args_real(args, "outer-momentum"), most = 2 * (1 - a * a);
    double g = gw_args_given(args, "pull") ? gw_args_real(args, "pull") : most / 2;
    if (!(g > 0 && g < most))
        return gw_fail(
            GW_ERR_USAGE,
            "noloco: pull=%g: replicas would drift apart: with outer-momentum=%g it must "
            "be above 0 and below %g",
            g, a, most);
    me->period = gw_args_int(args, "period");
    me->rate = (float)gw_args_real(args, "outer-lr");
    me->momentum = (float)a;
    me->pull = (float)g;
    return GW_OK;
}

static gw_span noloco_sent(gw_span s) {
    return (gw_span){4 * s.off, 2 * s.n};
}

/* The partner's come in where all partners' do, behind this rank's own. */
static gw_err noloco_lay_down(gw_schedule *s, int partner) {
    gw_span mine = gw_schedule_span(s), theirs = {gw_span_end(mine), mine.n};
    int own, got;
    gw_schedule_among(s, &partner, 1);
    GW_TRY(gw_schedule_pack(s, mine, false, &own));
    GW_TRY(gw_schedule_recv(s, theirs, partner, true, &got));
    GW_TRY(gw_schedule_send(s, own, partner));
    GW_TRY(gw_schedule_round(s));
    return gw_schedule_unpack(s, got, theirs, false);
}

static gw_err noloco_lay_down_all(self *me) {
    gw_lane *lane = me->env->params;
    int rank = gw_lane_rank(lane), ranks = gw_lane_size(lane), spans = gw_env_spans(me->env);
    for (int i = 0; i < spans; i++)
        for (int k = 0; k < ranks; k++) {
            gw_schedule **s = &me->schedules[i * ranks + k];
            int partner = (k - rank + ranks) % ranks;
            GW_TRY(gw_schedule_new(s, lane, me->both, noloco_sent(gw_env_span(me->env, i))));
            if (partner != rank) /* else it is never run */
                GW_TRY(noloco_lay_down(*s, partner));
        }
    return GW_OK;
}

static gw_err noloco_open(void *p, const gw_env *env) {
    self *me = p;
    size_t ranks = (size_t)gw_lane_size(env->params);
    me->env = env;
    me->steps.n = env->n;
    GW_TRY(noloco_read(me, env->args));
    gw_err e = gw_alloc(&me->outer, env->n, sizeof(float));
    GW_THEN(e, gw_alloc(&me->v, env->n, sizeof(float)));
    GW_THEN(e, gw_alloc(&me->order, ranks, sizeof *me->order));
    GW_THEN(e, gw_alloc(&me->schedules, (size_t)gw_env_spans(env) * ranks, sizeof *me->schedules));
    GW_TRY(gw_lane_agree(env->params, e));
    GW_TRY(gw_lane_floats(env->params, 4 * env->n, &me->both));
    me->mean = (gw_collective){.algo = env->algo, .lane = env->params, .base = env->param};
    GW_TRY(gw_env_prepare(env, &me->mean));
    return noloco_lay_down_all(me);
}

/* ---- a round ---- */

/* Its partner in this rank's round; this rank itself: it is alone. */
static int noloco_partner(self *me, int64_t round) {
    uint32_t ranks = (uint32_t)gw_lane_size(me->env->params), at = 0;
    uint32_t rank = (uint32_t)gw_lane_rank(me->env->params);
    for (uint32_t i = 0; i < ranks; i++)
        me->order[i] = i;
    gw_rng_shuffle(gw_rng_key(gw_lane_seed(me->env->params), (uint64_t)round), me->order, ranks);
    while (me->order[at] != rank)
        at++;
    return (int)((at ^ 1) < ranks ? me->order[at ^ 1] : rank);
}

static gw_err noloco_meet(self *me, int i) {
    const gw_env *env = me->env;
    gw_span s = gw_env_span(env, i);
    int rank = gw_lane_rank(env->params), ranks = gw_lane_size(env->params);
    int partner = noloco_partner(me, me->steps.done / me->period);
    float *w = env->param + s.off, *outer = me->outer + s.off, *v = me->v + s.off;
    float *moved = me->both + 4 * s.off, *start = moved + s.n;
    const float *theirs = partner == rank ? moved : start + s.n;
    for (size_t k = 0; k < s.n; k++) {
        moved[k] = w[k] - outer[k];
        start[k] = outer[k];
    }
    if (partner != rank) /* alone, it is its own */
        GW_TRY(gw_schedule_run(me->schedules[i * ranks + (rank + partner) % ranks]));
    for (size_t k = 0; k < s.n; k++) {
        float mean = (moved[k] + theirs[k]) / 2, apart = (start[k] - theirs[s.n + k]) / 2;
        v[k] = me->momentum * v[k] + me->rate * mean - me->pull * apart;
        outer[k] += v[k];
        w[k] = outer[k];
    }
    return GW_OK;
}

/* ---- the step ---- */

static gw_err noloco_finish(void *p, gw_span s, gw_update *u) {
    self *me = p;
    (void)u;
    if (me->steps.done % me->period == 0)
        memcpy(me->outer + s.off, me->env->param + s.off, s.n * sizeof(float));
    return GW_OK;
}

static gw_err noloco_publish(void *p, gw_span s) {
    self *me = p;
    bool due = (me->steps.done + 1) % me->period == 0;
    for (int i = 0; due && i < gw_env_spans(me->env); i++)
        if (gw_span_overlap(gw_env_span(me->env, i), s))
            GW_TRY(noloco_meet(me, i));
    gw_steps_pass(&me->steps, s);
    return GW_OK;
}

static gw_err noloco_settle(void *p, gw_cost *sent) {
    self *me = p;
    const gw_env *env = me->env;
    if (me->steps.done == me->agreed)
        return GW_OK;
    for (int i = 0; gw_lane_size(env->params) > 1 && i < gw_env_spans(env); i++) {
        gw_span s = gw_env_span(env, i);
        for (size_t k = s.off; k < gw_span_end(s); k++)
            me->outer[k] -= env->param[k];
        GW_TRY(gw_collective_run(&me->mean, s));
        for (size_t k = s.off; k < gw_span_end(s); k++) {
            env->param[k] /= (float)gw_lane_size(env->params);
            me->outer[k] += env->param[k]; /* as far behind as before */
        }
    }
    *sent = gw_env_cost(env, &me->mean);
    me->agreed = me->steps.done;
    return GW_OK;
}

static gw_err noloco_state(void *p, gw_io *io) {
    self *me = p;
    size_t bytes = me->env->n * sizeof(float);
    GW_TRY(gw_steps_state(&me->steps, &me->agreed, io));
    GW_TRY(gw_io_field(io, "outer", me->outer, bytes));
    return gw_io_field(io, "velocity", me->v, bytes);
}

static gw_cost noloco_cost(const void *p, int64_t exchange, int64_t *period) {
    const self *me = p;
    uint64_t ranks = (uint64_t)gw_lane_size(me->env->params), paired = ranks - ranks % 2;
    bool due = (exchange + 1) % me->period == 0;
    *period = me->period;
    return due ? gw_env_messages(me->env, paired, 2) : (gw_cost){0};
}

static const gw_opt opts[] = {
    {"period", GW_OPT_PERIOD, "50", 1, 0x1p31, NULL, "H", "steps per round"},
    {"outer-lr", GW_OPT_REAL, "0.7", 0, 100, NULL, "B", "rate of the outer optimizer"},
    {"outer-momentum", GW_OPT_REAL, "0.5", 0, 0.9999, NULL, "A", "its momentum"},
    {"pull", GW_OPT_REAL, NULL, 0, 10, NULL, "G",
     "pull of a pair towards its mean, below 2 (1 - A^2) (default: half of that)"},
    GW_STRATEGY_ALGO,
    {0}};

const gw_strategy_ops gw_strategy_noloco = {
    .head = {GW_STRATEGY_ABI, "noloco",
             "an outer optimizer every `period` steps, which exchanges with one random partner",
             opts},
    .gives = GW_GIVES_OWN,
    .traits = GW_STRATEGY_VARIES,
    .formula = "every `period` steps P (P odd: P-1) messages of 2n (exact)",
    .plan = gw_strategy_plan_exact,
    .size = sizeof(self),
    .open = noloco_open,
    .close = noloco_close,
    .finish = noloco_finish,
    .publish = noloco_publish,
    .settle = noloco_settle,
    .state = noloco_state,
    .cost = noloco_cost,
};
