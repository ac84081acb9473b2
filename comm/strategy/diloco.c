/* diloco: each rank takes `period` optimizer steps on its own samples alone; then an outer
 * optimizer treats how far the ranks have come as a gradient. With the last common parameters W and
 * a rank's own w
 *
 *      D = mean over all ranks of (W - w)
 *      v = mu v + D;  W -= eta (D + mu v);  w = W
 *
 * (Douillard et al., "DiLoCo: Distributed low-communication training of language models", arXiv
 * 2311.08105, 2023: Nesterov's momentum as PyTorch's SGD has it; the paper's H is 500). The inner
 * optimizer's state stays each rank's own, neither averaged nor reset. On one rank nothing is sent
 * and the outer optimizer runs all the same: Lookahead with Nesterov's momentum, the control by
 * which the outer optimizer's gain is told from that of fewer exchanges. mu=0, eta=1 is `local`.
 *
 * fragments, tau and alpha are Streaming DiLoCo (Douillard et al., "Streaming DiLoCo with
 * overlapping communication", arXiv 2501.18512, 2025): layer l belongs to fragment l mod F, every
 * H/F steps one fragment is due, in turn, so that each has its own rounds of H steps. Its exchange
 * starts tau steps before it is taken in, hidden under these; what w has gained meanwhile is mixed
 * in: w = (1 - alpha) W + alpha w.
 *
 * Differences (W - w) travel on the gradient lane, so codecs and error feedback work; decay=beta
 * multiplies the residual before each encoding, e = beta e + (W - w), as SparseLoCo does (Sarfi et
 * al., arXiv 2508.15706, 2025: eta=1, mu=0, decay=0.95 and --compress chunktopk). Every rank counts
 * equally, also one that had no samples or of which the codec sent nothing of an element.
 *
 * A settling between rounds averages the replicas, as `local` does; the outer optimizer waits for
 * the round's end, W and v stay. What is under way then is taken in first.
 *
 * Cost: one allreduce of a fragment every H/F steps; memory for W, v and the differences. */
#include "comm/schedule/collective.h"
#include "comm/schedule/queue.h"
#include "comm/steps.h"
#include "comm/strategy.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

typedef struct self {
    const gw_env *env;
    int fragments;
    int64_t each, tau; /* steps from one fragment's turn to the next one's; of overlap */
    float rate, momentum, alpha;
    gw_steps steps;
    int64_t agreed;    /* steps done when the replicas last agreed */
    float *global, *v; /* W, v */
    float *drift;      /* reduced: W - w */
    gw_collective over_drift;
    gw_queue *queue;
} self;

static void diloco_close(void *p) {
    self *me = p;
    gw_queue_close(me->queue); /* first: it waits for what is in flight */
    gw_collective_clear(&me->over_drift);
    free(me->global);
    free(me->v);
}

/* What is exchanged in one piece. */
static int diloco_parts(const self *me) {
    return me->fragments == 1 ? gw_env_spans(me->env) : me->env->n_layers;
}

static gw_span diloco_part(const self *me, int i) {
    return me->fragments == 1 ? gw_env_span(me->env, i) : me->env->layers[i];
}

/* ---- opening ---- */

static float diloco_alpha(const gw_args *args) {
    if (gw_args_given(args, "alpha"))
        return (float)gw_args_real(args, "alpha");
    return gw_args_int(args, "tau") > 0 ? 0.5f : 0.0f;
}

/* After a turn all replicas hold W. */
static bool diloco_meets(const gw_args *args) {
    return gw_args_int(args, "fragments") == 1 && diloco_alpha(args) == 0;
}

static const char *diloco_plan(gw_strategy_plan *p) {
    p->polls = gw_args_int(p->args, "tau") > 0;
    p->agrees = diloco_meets(p->args);
    return NULL;
}

static gw_err diloco_read(self *me, const gw_env *env) {
    const gw_args *args = env->args;
    long long period = gw_args_int(args, "period"), fragments = gw_args_int(args, "fragments");
    long long tau = gw_args_int(args, "tau");
    if (fragments > 1 && fragments > env->n_layers)
        return gw_fail(GW_ERR_USAGE,
                       "diloco: fragments=%lld: a rank holds %d layers, and a fragment needs one",
                       fragments, env->n_layers);
    if (period % fragments)
        return gw_fail(GW_ERR_USAGE,
                       "diloco: period=%lld is not a multiple of fragments=%lld: in each period "
                       "every fragment is exchanged once, at equal distances",
                       period, fragments);
    if (tau >= period / fragments)
        return gw_fail(GW_ERR_USAGE,
                       "diloco: tau=%lld: an exchange must end before the next one starts, so it "
                       "must be below period / fragments = %lld",
                       tau, period / fragments);
    me->fragments = (int)fragments;
    me->each = period / fragments;
    me->tau = tau;
    me->rate = (float)gw_args_real(args, "outer-lr");
    me->momentum = (float)gw_args_real(args, "outer-momentum");
    me->alpha = diloco_alpha(args);
    double decay = gw_args_real(args, "decay");
    return decay == 1 ? GW_OK : gw_lane_decay(env->grads, (float)decay);
}

static gw_err diloco_open(void *p, const gw_env *env) {
    self *me = p;
    me->env = env;
    me->steps.n = env->n;
    GW_TRY(diloco_read(me, env));
    gw_err e = gw_alloc(&me->global, env->n, sizeof(float));
    GW_THEN(e, gw_alloc(&me->v, env->n, sizeof(float)));
    GW_TRY(gw_lane_agree(env->grads, e));
    GW_TRY(gw_lane_floats(env->grads, env->n, &me->drift));
    me->over_drift = (gw_collective){.algo = env->algo, .lane = env->grads, .base = me->drift};
    for (int i = 0; i < diloco_parts(me); i++) {
        gw_schedule *s;
        GW_TRY(gw_collective_get(&me->over_drift, diloco_part(me, i), &s));
    }
    return gw_queue_open(&me->queue, GW_PROGRESS_POLL, diloco_parts(me),
                         gw_lane_yields(env->grads));
}

/* ---- parts ---- */

typedef gw_err diloco_visit(self *me, gw_span part, gw_schedule *sum);

/* visit() each part of the fragment that overlaps `s`; fragment < 0: of all. */
static gw_err diloco_each(self *me, int64_t fragment, gw_span s, diloco_visit *visit) {
    for (int i = 0; i < diloco_parts(me); i++) {
        gw_span part = diloco_part(me, i);
        gw_schedule *sum;
        if (!gw_span_overlap(part, s) || (fragment >= 0 && i % me->fragments != fragment))
            continue;
        GW_TRY(gw_collective_get(&me->over_drift, part, &sum));
        GW_TRY(visit(me, part, sum));
    }
    return GW_OK;
}

static void diloco_differ(self *me, gw_span s) {
    for (size_t i = s.off; i < gw_span_end(s); i++)
        me->drift[i] = me->global[i] - me->env->param[i];
}

static gw_err diloco_start(self *me, gw_span s, gw_schedule *sum) {
    diloco_differ(me, s);
    return me->tau > 0 ? gw_queue_start(me->queue, sum) : gw_schedule_run(sum);
}

static gw_err diloco_wait(self *me, gw_span s, gw_schedule *sum) {
    (void)s;
    return gw_queue_wait(me->queue, sum); /* at once if it was not overlapped */
}

/* The outer optimizer's step. */
static gw_err diloco_take(self *me, gw_span s, gw_schedule *sum) {
    float *w = me->env->param, ranks = (float)gw_lane_size(me->env->grads);
    GW_TRY(diloco_wait(me, s, sum));
    for (size_t i = s.off; i < gw_span_end(s); i++) {
        float d = me->drift[i] / ranks;
        me->v[i] = me->momentum * me->v[i] + d;
        me->global[i] -= me->rate * (d + me->momentum * me->v[i]);
        w[i] = (1 - me->alpha) * me->global[i] + me->alpha * w[i];
    }
    return GW_OK;
}

static gw_err diloco_average(self *me, gw_span s, gw_schedule *sum) {
    float ranks = (float)gw_lane_size(me->env->grads);
    diloco_differ(me, s);
    GW_TRY(gw_schedule_run(sum));
    for (size_t i = s.off; i < gw_span_end(s); i++)
        me->env->param[i] = me->global[i] - me->drift[i] / ranks;
    return GW_OK;
}

/* ---- the step ---- */

static gw_err diloco_progress(void *p) {
    self *me = p;
    return gw_queue_poll(me->queue);
}

static gw_err diloco_finish(void *p, gw_span s, gw_update *u) {
    self *me = p;
    (void)u;
    if (me->steps.done == 0)
        memcpy(me->global + s.off, me->env->param + s.off, s.n * sizeof(float));
    return GW_OK;
}

/* Whose turn comes after so many steps, counting from a turn on. */
static int64_t diloco_turn(const self *me, int64_t steps) {
    return steps / me->each % me->fragments;
}

/* Ends this step a turn whose exchange started and was not taken in by a settling since? */
static bool diloco_takes(const self *me, int64_t step) {
    return step % me->each == 0 && me->agreed < step - me->tau;
}

static gw_err diloco_publish(void *p, gw_span s) {
    self *me = p;
    int64_t before = me->steps.done, step = before + 1;
    if ((step + me->tau) % me->each == 0)
        GW_TRY(diloco_each(me, diloco_turn(me, before + me->tau), s, diloco_start));
    if (diloco_takes(me, step))
        GW_TRY(diloco_each(me, diloco_turn(me, before), s, diloco_take));
    if (gw_steps_pass(&me->steps, s) && diloco_meets(me->env->args) && diloco_takes(me, step))
        me->agreed = step;
    return GW_OK;
}

static gw_cost diloco_parts_cost(const self *me, int64_t fragment) {
    gw_cost sum = {0};
    for (int i = 0; i < diloco_parts(me); i++)
        if (fragment < 0 || i % me->fragments == fragment)
            sum = gw_cost_sum(sum, gw_collective_cost(&me->over_drift, diloco_part(me, i)));
    return sum;
}

static gw_err diloco_settle(void *p, gw_cost *sent) {
    self *me = p;
    gw_span all = {0, me->env->n};
    if (me->steps.done == me->agreed)
        return GW_OK;
    int64_t turn = (me->steps.done / me->each + 1) * me->each; /* ends then */
    if (me->steps.done >= turn - me->tau && diloco_takes(me, turn))
        GW_TRY(diloco_each(me, diloco_turn(me, me->steps.done), all, diloco_take));
    if (gw_lane_size(me->env->grads) > 1) /* else the mean is what there is */
        GW_TRY(diloco_each(me, -1, all, diloco_average));
    *sent = diloco_parts_cost(me, -1);
    me->agreed = me->steps.done;
    return GW_OK;
}

static gw_err diloco_state(void *p, gw_io *io) {
    self *me = p;
    size_t n = me->env->n, bytes = n * sizeof(float);
    GW_TRY(diloco_each(me, -1, (gw_span){0, n}, diloco_wait));
    GW_TRY(gw_steps_state(&me->steps, &me->agreed, io));
    GW_TRY(gw_io_field(io, "global", me->global, bytes));
    GW_TRY(gw_io_field(io, "velocity", me->v, bytes));
    return me->tau > 0 ? gw_io_field(io, "drift", me->drift, bytes) : GW_OK;
}

/* ---- what is sent ---- */

static gw_cost diloco_cost(const void *p, int64_t exchange, int64_t *period) {
    const self *me = p;
    bool starts = (exchange + 1 + me->tau) % me->each == 0;
    *period = me->each * me->fragments; /* fragments differ in size */
    return starts ? diloco_parts_cost(me, diloco_turn(me, exchange + me->tau)) : (gw_cost){0};
}

static bool diloco_agrees(const void *p, int steps) {
    const self *me = p;
    return steps ? diloco_meets(me->env->args) && diloco_takes(me, me->steps.done + steps)
                 : me->steps.done == me->agreed;
}

static const gw_opt opts[] = {
    {"period", GW_OPT_PERIOD, "30", 1, 0x1p31, NULL, "H", "steps per round"},
    {"outer-lr", GW_OPT_REAL, "0.7", 0, 100, NULL, "ETA", "rate of the outer optimizer"},
    {"outer-momentum", GW_OPT_REAL, "0.9", 0, 0.9999, NULL, "MU",
     "its momentum, by Nesterov's rule"},
    {"fragments", GW_OPT_INT, "1", 1, 1e6, NULL, "F",
     "layer l is exchanged with fragment l mod F, one fragment every H/F steps"},
    {"tau", GW_OPT_INT, "0", 0, 0x1p31, NULL, "STEPS",
     "steps that hide an exchange, below H/F (0: it blocks)"},
    {"alpha", GW_OPT_REAL, NULL, 0, 1, NULL, "X",
     "weight of a rank's own parameters after an exchange (default: 0.5 with tau, else 0)"},
    {"decay", GW_OPT_REAL, "1", 0, 1, NULL, "BETA",
     "factor on what error feedback keeps, per exchange (SparseLoCo: 0.95)"},
    GW_STRATEGY_ALGO,
    {0}};

const gw_strategy_ops gw_strategy_diloco = {
    .head = {GW_STRATEGY_ABI, "diloco",
             "an outer optimizer every `period` steps of each rank's own; whole or by fragments",
             opts},
    .gives = GW_GIVES_OWN,
    .traits = GW_STRATEGY_VARIES,
    .formula = "one allreduce of n every `period` steps, or of each fragment, in turn",
    .plan = diloco_plan,
    .size = sizeof(self),
    .open = diloco_open,
    .close = diloco_close,
    .progress = diloco_progress,
    .finish = diloco_finish,
    .publish = diloco_publish,
    .settle = diloco_settle,
    .state = diloco_state,
    .cost = diloco_cost,
    .agrees = diloco_agrees,
};
