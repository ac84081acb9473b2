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

static double actor_now_s(const gw_actor *a) {
    return 1e-9 * (double)a->fabric->ops->now_ns(a->fabric);
}

gw_err gw_actor_poll(gw_actor *a) {
    if (a->lanes.runner.queue)
        GW_TRY(gw_queue_poll(a->lanes.runner.queue));
    return HOOK(a, poll, a);
}

/* ---- the device ---- */

/* What was given to the device so far is over, at the earliest now. But a stage that is known not
 * to have waited begins where its last action should have ended, so that delays by a busy machine
 * do not add up. */
static void actor_restart(gw_actor *a) {
    bool waited = !a->lanes.hops || !a->world->rest || a->polls > 1; /* one finds what is there */
    a->due_s = waited ? fmax(a->due_s, actor_now_s(a)) : a->due_s;
}

static gw_err actor_enter(gw_actor *a, gw_phase phase) {
    a->phase = phase;
    return HOOK(a, enter, a, phase);
}

/* Another device computes on, whatever this core does meanwhile: its ends are instants, so that a
 * slice that lasts too long makes the next one shorter. */
static gw_err actor_compute(gw_actor *a, double seconds) {
    seconds /= a->script.speed;
    a->polls = 0;
    a->computed_s += seconds;
    a->phase_s[a->phase] += seconds;
    a->due_s += seconds;
    if (!a->script.sleeps) {
        a->world->spend(a, seconds);
        return gw_actor_poll(a);
    }
    double poll_s = a->script.profile->poll_s > 0 ? a->script.profile->poll_s : GW_PLAY_POLL_S;
    for (double now; (now = actor_now_s(a)) + TICK_S < a->due_s;) {
        a->world->spend(a, fmin(poll_s, a->due_s - now));
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
    double begun_s = actor_now_s(a);
    GW_TRY(write(a, which));
    double spent_s = a->script.sleeps ? 0 : a->script.speed * (actor_now_s(a) - begun_s);
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

/* ---- hops ---- */

static int actor_stages(const gw_sim_mesh *m) {
    return m->shape.size[GW_DIM_PIPE];
}

static int actor_runs(const gw_sim_mesh *m) {
    return actor_stages(m) * gw_timetable_chunks(m->timetable);
}

/* Without memory each message has a place of its own, but deltas as many as a real stage has: what
 * is in one must have left before it is written again. An activation has, before its slot is
 * free. */
static gw_span actor_where(const void *actor, gw_hop hop, bool receives) {
    const gw_actor *a = actor;
    const gw_sim_mesh *m = a->script.mesh;
    int chunk = (hop.boundary + 1) / actor_stages(m), place = hop.micro % a->lanes.places;
    if (hop.kind == GW_HOP_DELTA && !receives)
        place %= 1 + gw_timetable_kept(m->timetable, a->lanes.runner.stage, chunk);
    place += (hop.boundary * GW_HOP_KINDS + (int)hop.kind) * a->lanes.places;
    return (gw_span){(size_t)place * m->widest,
                     a->idle ? 0
                             : gw_sim_mesh_edge(m, hop.boundary, a->at.at[GW_DIM_TENSOR]) *
                                   gw_sim_mesh_rows(m, hop.micro)};
}

/* When the hop left that an action takes (`receives`), or ends in: in this process. */
static double *actor_sent(const gw_actor *a, gw_act act, bool receives) {
    const gw_sim_mesh *m = a->script.mesh;
    bool forward = act.kind == GW_ACT_FORWARD;
    int run = act.chunk * actor_stages(m) + a->lanes.runner.stage - (forward == receives);
    int replica = a->at.at[GW_DIM_DATA] * m->shape.size[GW_DIM_TENSOR] + a->at.at[GW_DIM_TENSOR];
    int line = (replica * actor_runs(m) + run) * GW_HOP_KINDS + forward;
    return &m->sent[(size_t)line * (size_t)m->micros + (size_t)act.micro];
}

/* Hand the result of an action on, if there is somebody to take it. */
static gw_err actor_send(gw_actor *a, gw_act act) {
    if (!gw_runner_hop(&a->lanes.runner, act, false))
        return GW_OK;
    double now_s = *actor_sent(a, act, false) = actor_now_s(a);
    GW_TRY(gw_runner_send(&a->lanes.runner, act));
    a->comm_s += actor_now_s(a) - now_s;
    return GW_OK;
}

/* ---- what tensor ranks exchange ---- */

/* A collective of a piece of a microbatch's samples, over so many floats of each. Pieces may be
 * under way at once, but not beside another such exchange. */
typedef struct tensor_join {
    gw_verb verb;
    size_t floats; /* 0: nothing */
    int micro, pieces, piece;
} tensor_join;

static bool actor_joins(const gw_actor *a, size_t floats) {
    return a->lanes.tensor && !a->idle && floats > 0;
}

/* How many pieces there are of `floats` of each sample: 1 where there is nothing to exchange. */
static int actor_pieces(const gw_actor *a, int micro, size_t floats) {
    int rows = (int)gw_sim_mesh_rows(a->script.mesh, micro),
        pieces = actor_joins(a, floats) ? a->script.mesh->pieces : 1;
    return pieces < rows ? pieces : rows > 1 ? rows : 1;
}

/* Starts such an exchange, or waits for it. */
static gw_err actor_join(gw_actor *a, const tensor_join *j, bool starts) {
    gw_collective *of = &a->lanes.join[j->verb];
    const gw_runner *r = &a->lanes.runner;
    gw_schedule *s;
    if (!actor_joins(a, j->floats))
        return GW_OK;
    double now_s = actor_now_s(a);
    gw_span rows =
        gw_span_part((gw_span){0, gw_sim_mesh_rows(a->script.mesh, j->micro)}, j->piece, j->pieces);
    gw_span span = {rows.off * j->floats, rows.n * j->floats};
    GW_TRY(gw_collective_get(of, span, &s));
    if (starts && a->at.at[GW_DIM_TENSOR] == 0)
        a->lanes.joins = gw_cost_sum(a->lanes.joins, gw_collective_cost(of, span));
    GW_TRY(starts ? gw_runner_start(r, s, j->micro) : gw_runner_wait(r, s));
    a->joins_s += actor_now_s(a) - now_s;
    return GW_OK;
}

/* ---- forward ---- */

static gw_err actor_joined(gw_actor *a, const tensor_join *j) {
    GW_TRY(actor_join(a, j, false));
    if (a->lanes.tensor && j->floats)
        actor_restart(a);
    return GW_OK;
}

/* A tensor forward, with what tensor ranks exchange before and behind it: in pieces, one of which
 * travels while another is computed. */
static gw_err actor_tensor(gw_actor *a, const gw_step_tensor *t, int micro, double seconds) {
    int n = actor_pieces(a, micro, t->input_parts + t->forward_sum);
    tensor_join in = {GW_ALLGATHER, t->input_parts, micro, n, 0},
                out = {GW_ALLREDUCE, t->forward_sum, micro, n, 0},
                told = {GW_ALLGATHER, t->forward_gather, micro, 1, 0};
    for (in.piece = 0; in.piece < n; in.piece++)
        GW_TRY(actor_join(a, &in, true));
    for (; out.piece < n; out.piece++) {
        in.piece = out.piece;
        GW_TRY(actor_joined(a, &in));
        GW_TRY(actor_compute(a, seconds / n));
        GW_TRY(actor_join(a, &out, true));
    }
    for (out.piece = 0; out.piece < n; out.piece++)
        GW_TRY(actor_joined(a, &out));
    GW_TRY(actor_join(a, &told, true));
    return actor_joined(a, &told);
}

/* What a forward pass needs of the last step's exchange, when it comes to a group. */
static gw_err actor_update_lazily(gw_actor *a, int group) {
    bool ahead = a->script.ahead;
    if (group == 0 || !ahead)
        GW_TRY(actor_update(a, group));
    if (ahead && group + 1 < a->has->n_layers)
        GW_TRY(actor_update(a, group + 1));
    return actor_enter(a, GW_PHASE_FORWARD);
}

/* Before the first microbatch parameters are awaited. */
static gw_err actor_forward(gw_actor *a, gw_act act, double part) {
    const gw_sim_share *has = a->has;
    GW_TRY(actor_enter(a, GW_PHASE_FORWARD));
    for (int t = has->first[act.chunk], group = -1; t < has->first[act.chunk + 1]; t++) {
        if (has->tensors[t].layer != group) {
            group = has->tensors[t].layer;
            if (act.micro == 0 && a->script.lazy && a->step > 0)
                GW_TRY(actor_update_lazily(a, group));
            if (act.micro == 0)
                GW_TRY(HOOK(a, await, a, group));
            actor_restart(a);
        }
        GW_TRY(actor_tensor(a, &has->of[t], act.micro, part * has->of[t].forward_s));
    }
    return actor_send(a, act);
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
    tensor_join sum = {GW_ALLREDUCE, 0, act.micro, 1, 0};
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
    sum.pieces = actor_pieces(a, act.micro, sum.floats);
    for (; sum.piece < sum.pieces; sum.piece++) {
        GW_TRY(actor_gradients(a, first, end, OF_INPUT, part / sum.pieces, false));
        GW_TRY(actor_join(a, &sum, true));
    }
    if (hops && sum.floats == 0)
        GW_TRY(actor_send(a, act));
    if (act.kind == GW_ACT_BACKWARD)
        GW_TRY(actor_gradients(a, first, end, OF_WEIGHTS, part, last));
    for (sum.piece = 0; sum.piece < sum.pieces; sum.piece++)
        GW_TRY(actor_joined(a, &sum));
    return hops && sum.floats ? actor_send(a, act) : GW_OK;
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
    a->late_s += a->script.sleeps && a->left == 0 ? fmax(0, actor_now_s(a) - a->due_s) : 0;
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
        a->bubble_s += fmax(0, *actor_sent(a, act, true) - a->ended_s);
    GW_TRY(gw_runner_vacate(&a->lanes.runner, act));
    a->comm_s += actor_now_s(a) - a->ended_s;
    GW_TRY(act.kind == GW_ACT_FORWARD ? actor_forward(a, act, part) : actor_backward(a, act, part));
    a->ended_s = actor_now_s(a);
    return GW_OK;
}

/* What the program computes beside the model. */
static gw_err actor_program(gw_actor *a, gw_phase phase, double seconds) {
    a->phase = phase;
    return seconds > 0 ? actor_compute(a, seconds) : GW_OK;
}

static gw_err actor_step(gw_actor *a) {
    gw_runner *r = &a->lanes.runner;
    r->act = actor_act;
    r->ctx = a;
    GW_TRY(HOOK(a, begin, a));
    GW_TRY(actor_program(a, GW_PHASE_DATA, a->script.profile->data_s));
    a->ended_s = actor_now_s(a);
    a->bubble_s = a->comm_s = a->joins_s = 0;
    GW_TRY(gw_runner_step(r));
    a->comm_s += actor_now_s(a) - a->ended_s;
    GW_TRY(actor_program(a, GW_PHASE_OTHER, a->script.profile->rest_s));
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

/* ---- opening ---- */

gw_err gw_actor_lane(gw_actor *a, gw_dim d, gw_lane_setup setup, gw_lane **out) {
    gw_fabric *line;
    int first[GW_DIMS];
    memcpy(first, a->at.at, sizeof first);
    first[d] = 0;
    GW_TRY(a->fabric->ops->split(a->fabric, gw_mesh_rank(&a->at, first), &line));
    if (a->world->count)
        a->world->count(line, &a->sent[d]);
    setup.apart = setup.yield = true;
    setup.dim = (int)d;
    return gw_lane_open_on(out, line, &setup);
}

/* One more than microbatches are held at a time: a receive is posted ahead. */
static int actor_places(const gw_actor *a) {
    const gw_timetable *t = a->script.mesh->timetable;
    int most = 0;
    for (int c = 0; c < gw_timetable_chunks(t); c++) {
        int places = gw_timetable_slots(t, a->at.at[GW_DIM_PIPE], c) + 1;
        most = places > most ? places : most;
    }
    return most;
}

static gw_err actor_lay_hops(gw_actor *a, gw_codec *exact, gw_phantom *phantom) {
    static const char *const names[] = {"activations", "deltas"};
    const gw_sim_mesh *m = a->script.mesh;
    gw_hops_setup setup = {.chunks = actor_runs(m),
                           .micro = m->micros,
                           .deltas = true,
                           .where = actor_where,
                           .ctx = a};
    a->lanes.places = phantom ? m->micros : actor_places(a);
    for (int k = 0; k < GW_HOP_KINDS; k++) {
        gw_lane_setup lane = {.codec = exact, .phantom = phantom, .name = names[k]};
        GW_TRY(gw_actor_lane(a, GW_DIM_PIPE, lane, &a->lanes.hop[k]));
        setup.lane[k] = a->lanes.hop[k];
    }
    size_t places = (size_t)(actor_runs(m) * GW_HOP_KINDS * a->lanes.places);
    GW_TRY(gw_lane_floats(a->lanes.hop[0], places * m->widest, &setup.base));
    GW_TRY(gw_hops_open(&a->lanes.hops, &setup));
    a->lanes.runner.hops = a->lanes.hops;
    return GW_OK;
}

static gw_err actor_join_ranks(gw_actor *a, gw_codec *exact, gw_phantom *phantom) {
    const gw_sim_mesh *m = a->script.mesh;
    gw_lane_setup lane = {.codec = exact, .phantom = phantom, .n = m->joined};
    float *floats;
    GW_TRY(gw_actor_lane(a, GW_DIM_TENSOR, lane, &a->lanes.tensor));
    GW_TRY(gw_lane_floats(a->lanes.tensor, m->joined, &floats));
    for (int verb = 0; verb <= GW_ALLGATHER; verb++)
        a->lanes.join[verb] = (gw_collective){
            .algo = &m->algo, .verb = (gw_verb)verb, .lane = a->lanes.tensor, .base = floats};
    return GW_OK;
}

static gw_err actor_beside(void *actor) {
    gw_actor *a = actor;
    if (a->world->rest)
        a->world->rest(a);
    return a->exchange->poll ? a->exchange->poll(a) : GW_OK;
}

gw_err gw_actor_open(gw_actor *a, int servers, gw_codec *exact, gw_phantom *phantom) {
    const gw_sim_mesh *m = a->script.mesh;
    gw_runner *r = &a->lanes.runner;
    GW_TRY(gw_mesh_place(&a->at, &m->shape, a->fabric->rank, a->fabric->size));
    a->idle = a->at.at[GW_DIM_DATA] < servers;
    a->has = gw_sim_mesh_share(m, &a->at);
    *r =
        (gw_runner){.timetable = m->timetable, .stage = a->at.at[GW_DIM_PIPE], .micros = m->micros};
    if (!gw_mesh_divides(&m->shape))
        return GW_OK;
    int flying = 4 * (m->micros + 1) * gw_timetable_chunks(m->timetable) + 4 * m->pieces;
    GW_TRY(gw_queue_open(&r->queue, GW_PROGRESS_POLL, flying, true));
    gw_queue_beside(r->queue, actor_beside, a);
    if (m->shape.size[GW_DIM_TENSOR] > 1)
        GW_TRY(actor_join_ranks(a, exact, phantom));
    return actor_stages(m) > 1 ? actor_lay_hops(a, exact, phantom) : GW_OK;
}

void gw_actor_close(gw_actor *a) {
    gw_queue_close(a->lanes.runner.queue);
    gw_hops_close(a->lanes.hops);
    for (int verb = 0; verb <= GW_ALLGATHER; verb++)
        gw_collective_clear(&a->lanes.join[verb]);
    gw_lane_close(a->lanes.tensor);
    for (int k = 0; k < GW_HOP_KINDS; k++)
        gw_lane_close(a->lanes.hop[k]);
    a->lanes = (gw_actor_lanes){0};
}
