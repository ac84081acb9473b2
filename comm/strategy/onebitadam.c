/* onebitadam: Adam whose second moment is frozen after some steps; from then on what travels is the
 * first moment, compressed with error feedback (H. Tang, S. Gan, A. A. Awan, S. Rajbhandari, C. Li,
 * X. Lian, J. Liu, C. Zhang, Y. He, "1-bit Adam: Communication efficient large-scale training with
 * Adam's convergence speed", ICML 2021). With P ranks and rank i's gradient g_i:
 *
 *   up to step T   g = mean of g_i, exact;  m = b1 m + (1 - b1) g;  v = b2 v + (1 - b2) g^2
 *   after it       m = mean of C(b1 m + (1 - b1) g_i + e_i), with the residual e_i; v stays
 *
 * and -lr m / (sqrt(v) + eps), corrected for the zeros that m and v began with, moves a parameter,
 * as in adamw. C is the run's codec: onebit in the paper, whose owners' encoding of the sum has a
 * residual, too, as every algorithm gives it here. A parameter without any gradient in the first
 * phase stays where it is: v is 0, and one bit cannot tell that its momentum is.
 *
 * Cost: an exact allreduce up to step T, one of the codec's encodings after it. */
#include "comm/adam.h"

#include "base/mem.h"
#include "base/norm.h"
#include "base/probe.h"

#include <stdlib.h>

typedef struct self {
    const gw_env *env;
    int64_t freeze;
    gw_adam adam;
    int64_t *steps; /* finished, of each span that finish() asks for */
} self;

static void onebitadam_close(void *p) {
    self *me = p;
    gw_adam_close(&me->adam);
    free(me->steps);
}

static gw_err onebitadam_open(void *p, const gw_env *env) {
    self *me = p;
    me->env = env;
    me->freeze = gw_args_int(env->args, "freeze");
    gw_err e = gw_alloc(&me->steps, (size_t)gw_env_spans(env), sizeof *me->steps);
    GW_TRY(gw_lane_agree(env->grads, e));
    return gw_adam_open(&me->adam, env);
}

/* ---- a step ---- */

/* Part of a span that holds parameters alone: running means go as they are. */
static gw_span onebitadam_next(const self *me, gw_span s, size_t at) {
    const gw_env *env = me->env;
    size_t end = gw_span_end(s);
    for (int i = 0; i < env->n_tensors; i++) {
        gw_span t = env->tensors[i].span;
        if (!env->tensors[i].tracks || gw_span_end(t) <= at || t.off >= gw_span_end(s))
            continue;
        if (t.off <= at)
            at = gw_span_end(t);
        else if (t.off < end)
            end = t.off;
    }
    return (gw_span){at, at < end ? end - at : 0};
}

typedef enum work { BLEND, MOMENTS, TAKE, DIRECT } work;

static void onebitadam_do(const self *me, gw_span s, work what, int64_t step) {
    const gw_adam *a = &me->adam;
    gw_work_enter(what == BLEND ? GW_PHASE_ENCODE : GW_PHASE_DECODE);
    for (gw_span k = onebitadam_next(me, s, s.off); k.n > 0;
         k = onebitadam_next(me, s, gw_span_end(k))) {
        if (what == BLEND)
            gw_adam_blend(a, k, (float)me->env->share);
        else if (what == MOMENTS)
            gw_adam_learn(a, k);
        else if (what == TAKE)
            gw_adam_take(a, k, 1);
        else
            gw_adam_direct(a, k, 1, step, step < me->freeze ? step : me->freeze);
    }
    gw_work_leave();
}

static gw_err onebitadam_finish(void *p, gw_span s, gw_update *u) {
    self *me = p;
    int i;
    (void)u;
    GW_TRY(gw_env_find(me->env, s, &i));
    int64_t step = ++me->steps[i];
    bool dense = step <= me->freeze;
    if (!dense)
        onebitadam_do(me, s, BLEND, step);
    GW_TRY(gw_collective_run(dense ? &me->adam.dense : &me->adam.coded, s));
    onebitadam_do(me, s, dense ? MOMENTS : TAKE, step);
    onebitadam_do(me, s, DIRECT, step);
    return GW_OK;
}

static gw_err onebitadam_state(void *p, gw_io *io) {
    self *me = p;
    GW_TRY(gw_adam_state(&me->adam, io));
    return gw_io_alike(io, "steps", me->steps, (size_t)gw_env_spans(me->env) * sizeof *me->steps);
}

static gw_cost onebitadam_cost(const void *p, int64_t exchange, int64_t *period) {
    const self *me = p;
    *period = exchange < me->freeze ? 0 : 1;
    return gw_env_cost(me->env, exchange < me->freeze ? &me->adam.dense : &me->adam.coded);
}

static const gw_opt opts[] = {
    {"freeze", GW_OPT_STEPS, "1000", 1, 1e9, NULL, "STEPS",
     "exact steps, after which the second moment stays: 15 to 25% of a run"},
    GW_ADAM_OPTS,
    GW_STRATEGY_ALGO,
    {0}};

const gw_strategy_ops gw_strategy_onebitadam = {
    .head = {GW_STRATEGY_ABI, "onebitadam",
             "Adam: exact until its second moment is frozen, then the first moment by the codec",
             opts},
    .gives = GW_GIVES_DIRECTION,
    .traits = GW_STRATEGY_VARIES,
    .formula = "one exact allreduce of n up to step `freeze`, then one of n by the codec",
    .size = sizeof(self),
    .open = onebitadam_open,
    .close = onebitadam_close,
    .finish = onebitadam_finish,
    .state = onebitadam_state,
    .cost = onebitadam_cost,
    .most = GW_SQUARES_MOST,
};
