/* A step out of a profile, on one rank: the order in which DistributedDataParallel (S. Li et al.,
 * VLDB 2020) and Megatron-LM (Shoeybi et al., 2019) compute, announce, wait and update. */
#include "play/actor.h"

#include <math.h>
#include <string.h>

#define TICK_S 1e-9 /* of a fabric's clock */
/* DistributedDataParallel's first bucket is smaller, for the exchange to begin early. */
#define FIRST_BUCKET ((size_t)1 << 20)

/* A hook of the exchange's table; without it there is nothing to do. */
#define HOOK(a, name, ...) ((a)->exchange->name ? (a)->exchange->name(__VA_ARGS__) : GW_OK)

double gw_actor_now_s(const gw_actor *a) {
    return 1e-9 * (double)a->fabric->ops->now_ns(a->fabric);
}

gw_err gw_actor_poll(gw_actor *a) {
    if (a->lanes.runner.queue)
        GW_TRY(gw_queue_poll(a->lanes.runner.queue));
    return HOOK(a, poll, a);
}

/* ---- the device ---- */

/* What was given to the device so far is over, at the earliest now. */
static void actor_restart(gw_actor *a) {
    a->due_s = fmax(a->due_s, gw_actor_now_s(a));
}

static gw_err actor_enter(gw_actor *a, gw_phase phase) {
    a->phase = phase;
    return HOOK(a, enter, a, phase);
}

/* Another device computes on, whatever this core does meanwhile: its ends are instants, so that a
 * slice that lasts too long makes the next one shorter. */
static gw_err actor_compute(gw_actor *a, double seconds) {
    seconds /= a->script.speed;
    a->computed_s += seconds;
    a->phase_s[a->phase] += seconds;
    a->due_s += seconds;
    if (!a->script.sleeps) {
        a->world->spend(a, seconds);
        return gw_actor_poll(a);
    }
    for (double now; (now = gw_actor_now_s(a)) + TICK_S < a->due_s;) {
        a->world->spend(a, fmin(GW_PLAY_POLL_S, a->due_s - now));
        GW_TRY(gw_actor_poll(a));
    }
    return GW_OK;
}

/* The same with what the computation writes, number `which`; NULL: nothing. The time that this
 * takes is a part of what a core takes, and passes while a device computes. */
static gw_err actor_compute_writing(gw_actor *a, gw_err (*write)(gw_actor *a, int which), int which,
                                    double seconds) {
    if (!write)
        return actor_compute(a, seconds);
    double begun_s = gw_actor_now_s(a);
    GW_TRY(write(a, which));
    double spent_s = a->script.sleeps ? 0 : a->script.speed * (gw_actor_now_s(a) - begun_s);
    return actor_compute(a, fmax(0, seconds - spent_s));
}

/* The end of a group's exchange, or of all of them. */
static gw_err actor_update(gw_actor *a, int group) {
    const gw_step_profile *of = a->script.profile;
    size_t own = 0;
    GW_TRY(HOOK(a, finish, a, group, &own));
    GW_TRY(actor_enter(a, GW_PHASE_UPDATE));
    actor_restart(a);
    GW_TRY(actor_compute_writing(a, own ? a->exchange->move : NULL, group,
                                 of->optimizer_s * (double)own / (double)of->n));
    return HOOK(a, publish, a, group);
}

/* ---- forward ---- */

static gw_err actor_joined(gw_actor *a, const gw_sim_join *j) {
    GW_TRY(gw_actor_join(a, j, false));
    if (a->lanes.tensor && j->floats)
        actor_restart(a);
    return GW_OK;
}

/* A tensor forward, with what tensor ranks exchange before and behind it: in pieces, one of which
 * travels while another is computed. */
static gw_err actor_tensor(gw_actor *a, const gw_step_tensor *t, int micro, double seconds) {
    int n = gw_actor_pieces(a, micro, t->input_parts + t->forward_sum);
    gw_sim_join in = {GW_ALLGATHER, t->input_parts, micro, n, 0},
                out = {GW_ALLREDUCE, t->forward_sum, micro, n, 0},
                told = {GW_ALLGATHER, t->forward_gather, micro, 1, 0};
    for (in.piece = 0; in.piece < n; in.piece++)
        GW_TRY(gw_actor_join(a, &in, true));
    for (; out.piece < n; out.piece++) {
        in.piece = out.piece;
        GW_TRY(actor_joined(a, &in));
        GW_TRY(actor_compute(a, seconds / n));
        GW_TRY(gw_actor_join(a, &out, true));
    }
    for (out.piece = 0; out.piece < n; out.piece++)
        GW_TRY(actor_joined(a, &out));
    GW_TRY(gw_actor_join(a, &told, true));
    return actor_joined(a, &told);
}

/* Before the first microbatch parameters are awaited. */
static gw_err actor_forward(gw_actor *a, gw_act act, double part) {
    const gw_sim_share *has = a->has;
    GW_TRY(actor_enter(a, GW_PHASE_FORWARD));
    for (int t = has->first[act.chunk], group = -1; t < has->first[act.chunk + 1]; t++) {
        if (has->tensors[t].layer != group) {
            group = has->tensors[t].layer;
            if (act.micro == 0 && a->script.lazy && a->step > 0) {
                GW_TRY(actor_update(a, group));
                GW_TRY(actor_enter(a, GW_PHASE_FORWARD));
            }
            if (act.micro == 0)
                GW_TRY(HOOK(a, await, a, group));
            actor_restart(a);
        }
        GW_TRY(actor_tensor(a, &has->of[t], act.micro, part * has->of[t].forward_s));
    }
    return gw_actor_send(a, act);
}

/* ---- backward ---- */

/* Gradient t is there: announce it with those that wait for their bucket to be full. */
static gw_err actor_announce(gw_actor *a, int t) {
    size_t bucket = a->script.bucket,
           limit = a->filling.first && bucket > FIRST_BUCKET ? FIRST_BUCKET : bucket;
    if (t != --a->left)
        return gw_fail(GW_ERR_UNSUPPORTED,
                       "simulate: --timetable %s: a chunk ends before a later one",
                       gw_timetable_name(a->script.mesh->timetable));
    a->filling.bytes += a->has->tensors[t].span.n * sizeof(float);
    if (t > 0 && a->filling.bytes < limit)
        return GW_OK;
    int end = a->filling.end;
    a->filling.bytes = 0;
    a->filling.end = t;
    a->filling.first = false;
    return HOOK(a, ready, a, t, end);
}

/* Which part of a tensor's backward pass is played. */
typedef enum actor_half { BOTH, OF_INPUT, OF_WEIGHTS } actor_half;

/* Of the tensors [first, end) of this rank. `last`: their gradients are final behind it. */
static gw_err actor_gradients(gw_actor *a, int first, int end, actor_half half, double part,
                              bool last) {
    for (int t = end - 1; t >= first; t--) {
        const gw_step_tensor *of = &a->has->of[t];
        double input = 0.5 + of->input_extra, share = half == BOTH       ? 1
                                                      : half == OF_INPUT ? input
                                                                         : 1 - input;
        GW_TRY(actor_compute_writing(a, last ? a->exchange->draw : NULL, t,
                                     part * share * of->backward_s));
        if (last)
            GW_TRY(actor_announce(a, t));
    }
    return GW_OK;
}

/* As in a real stage, a delta leaves, or is summed, before the weights' gradient. */
static gw_err actor_layer(gw_actor *a, gw_act act, int first, int end, double part) {
    bool last = act.micro + 1 == a->script.mesh->micros && act.kind != GW_ACT_INPUT;
    bool hops = first == a->has->first[act.chunk] && gw_runner_hop(&a->lanes.runner, act, false);
    gw_sim_join sum = {GW_ALLREDUCE, 0, act.micro, 1, 0};
    for (int t = first; t < end && a->lanes.tensor && act.kind != GW_ACT_WEIGHTS; t++) {
        sum.verb = a->has->of[t].input_parts ? GW_REDUCE_SCATTER : sum.verb;
        sum.floats += a->has->of[t].input_parts + a->has->of[t].backward_sum;
    }
    if (!hops && sum.floats == 0)
        return actor_gradients(a, first, end,
                               act.kind == GW_ACT_BACKWARD ? BOTH
                               : act.kind == GW_ACT_INPUT  ? OF_INPUT
                                                           : OF_WEIGHTS,
                               part, last);
    sum.pieces = gw_actor_pieces(a, act.micro, sum.floats);
    for (; sum.piece < sum.pieces; sum.piece++) {
        GW_TRY(actor_gradients(a, first, end, OF_INPUT, part / sum.pieces, false));
        GW_TRY(gw_actor_join(a, &sum, true));
    }
    if (hops && sum.floats == 0)
        GW_TRY(gw_actor_send(a, act));
    if (act.kind == GW_ACT_BACKWARD)
        GW_TRY(actor_gradients(a, first, end, OF_WEIGHTS, part, last));
    for (sum.piece = 0; sum.piece < sum.pieces; sum.piece++)
        GW_TRY(actor_joined(a, &sum));
    return hops && sum.floats ? gw_actor_send(a, act) : GW_OK;
}

static gw_err actor_backward(gw_actor *a, gw_act act, double part) {
    const int *chunk = a->has->first + act.chunk;
    GW_TRY(actor_enter(a, GW_PHASE_BACKWARD));
    if (a->left == 0) { /* its first of the step */
        a->left = a->filling.end = a->has->n_tensors;
        a->filling.first = true;
    }
    if (a->lanes.hops) /* it may have waited for one */
        actor_restart(a);
    for (int t = chunk[1] - 1, end = chunk[1]; t >= chunk[0]; t--)
        if (t == chunk[0] || a->has->tensors[t - 1].layer != a->has->tensors[t].layer) {
            GW_TRY(actor_layer(a, act, t, end, part));
            end = t;
        }
    a->late_s += a->script.sleeps && a->left == 0 ? fmax(0, gw_actor_now_s(a) - a->due_s) : 0;
    return GW_OK;
}

/* ---- a step ---- */

static gw_err actor_act(void *actor, gw_act act) {
    gw_actor *a = actor;
    const gw_sim_mesh *m = a->script.mesh;
    double part = a->idle         ? 0
                  : m->micros > 1 ? (double)gw_sim_mesh_rows(m, act.micro) / m->samples
                                  : 1;
    if (gw_runner_hop(&a->lanes.runner, act, true))
        a->bubble_s += fmax(0, *gw_actor_sent(a, act, true) - a->ended_s);
    GW_TRY(gw_runner_vacate(&a->lanes.runner, act));
    a->comm_s += gw_actor_now_s(a) - a->ended_s;
    a->polls = 0;
    GW_TRY(act.kind == GW_ACT_FORWARD ? actor_forward(a, act, part) : actor_backward(a, act, part));
    a->ended_s = gw_actor_now_s(a);
    return GW_OK;
}

static gw_err actor_step(gw_actor *a) {
    gw_runner *r = &a->lanes.runner;
    r->act = actor_act;
    r->ctx = a;
    GW_TRY(HOOK(a, begin, a));
    a->ended_s = gw_actor_now_s(a);
    a->bubble_s = a->comm_s = a->joins_s = 0;
    GW_TRY(gw_runner_step(r));
    a->comm_s += gw_actor_now_s(a) - a->ended_s;
    if (!a->script.lazy)
        GW_TRY(actor_update(a, -1));
    return HOOK(a, end, a);
}

gw_err gw_actor_play(gw_actor *a, long steps) {
    actor_restart(a);
    for (a->step = 0; a->step < steps; a->step++)
        GW_TRY(actor_step(a));
    return GW_OK;
}

gw_err gw_actor_settle(gw_actor *a) {
    for (int group = 0; group < a->has->n_layers; group++) {
        if (a->script.lazy)
            GW_TRY(actor_update(a, group));
        GW_TRY(HOOK(a, await, a, group));
    }
    return GW_OK;
}
