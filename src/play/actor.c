/* A step out of a profile, on one rank: the walk's kernels take the times that it says, and
 * gradients are announced as DistributedDataParallel does (S. Li et al., VLDB 2020). */
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
    if (a->walk.runner.queue)
        GW_TRY(gw_queue_poll(a->walk.runner.queue));
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
        place %= 1 + gw_timetable_kept(m->timetable, a->walk.runner.stage, chunk);
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
    int run = act.chunk * actor_stages(m) + a->walk.runner.stage - (forward == receives);
    int replica = a->at.at[GW_DIM_DATA] * m->shape.size[GW_DIM_TENSOR] + a->at.at[GW_DIM_TENSOR];
    int line = (replica * actor_runs(m) + run) * GW_HOP_KINDS + forward;
    return &m->sent[(size_t)line * (size_t)m->micros + (size_t)act.micro];
}

/* ---- what tensor ranks exchange ---- */

/* Of each sample. */
static size_t actor_floats(const gw_actor *a, int l, gw_moment moment) {
    return a->lanes.tensor && !a->idle ? a->has->group[l].joins[moment] : 0;
}

static bool actor_joins(const void *actor, int l, gw_moment moment, gw_micro at) {
    (void)at;
    return actor_floats(actor, l, moment) > 0;
}

static gw_err actor_join(void *actor, int l, gw_moment moment, gw_micro at, bool starts,
                         gw_schedule **out) {
    gw_actor *a = actor;
    size_t floats = actor_floats(a, l, moment);
    bool scatters = moment == GW_MOMENT_DELTA && a->has->group[l].scatters,
         sums = moment == GW_MOMENT_PRODUCT || moment == GW_MOMENT_DELTA;
    gw_verb verb = scatters ? GW_REDUCE_SCATTER : sums ? GW_ALLREDUCE : GW_ALLGATHER;
    gw_collective *of = &a->lanes.join[verb];
    gw_span span = {(size_t)at.first * floats, (size_t)at.n * floats};
    *out = NULL;
    if (floats == 0)
        return GW_OK;
    if (starts && a->at.at[GW_DIM_TENSOR] == 0)
        a->lanes.joins = gw_cost_sum(a->lanes.joins, gw_collective_cost(of, span));
    return gw_collective_get(of, span, out);
}

static void actor_message(void *actor, gw_act act, gw_dim d, bool begins) {
    gw_actor *a = actor;
    double now_s = actor_now_s(a);
    if (!begins)
        *(d == GW_DIM_PIPE ? &a->comm_s : &a->joins_s) += now_s - a->lanes.message_s;
    else if (d == GW_DIM_PIPE)
        *actor_sent(a, act, false) = now_s;
    a->lanes.message_s = now_s;
}

/* ---- parameters are awaited ---- */

/* A forward pass needs the last step's exchange, when it comes to a group. */
static gw_err actor_await(void *actor, int group) {
    gw_actor *a = actor;
    bool ahead = a->script.ahead;
    if (a->script.lazy && a->step > 0) {
        if (group == 0 || !ahead)
            GW_TRY(actor_update(a, group));
        if (ahead && group + 1 < a->has->n_layers)
            GW_TRY(actor_update(a, group + 1));
        GW_TRY(actor_enter(a, GW_PHASE_FORWARD));
    }
    return HOOK(a, await, a, group);
}

/* ---- kernels ---- */

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

static gw_err actor_forward(gw_actor *a, const gw_kernel *k, double part) {
    const gw_sim_group *of = &a->has->group[k->l];
    if (k->at.first == 0 || actor_floats(a, k->l, GW_MOMENT_INPUT) > 0)
        actor_restart(a);
    for (int t = of->first; t < of[1].first; t++)
        GW_TRY(actor_compute(a, part * a->has->of[t].forward_s));
    return GW_OK;
}

/* Gradients of parameters are final behind the last microbatch. */
static gw_err actor_backward(gw_actor *a, const gw_kernel *k, double part) {
    const gw_sim_group *of = &a->has->group[k->l];
    bool weighs = k->kind == GW_KERNEL_WEIGHTS,
         last = weighs && k->act.micro + 1 == a->walk.runner.micros;
    for (int t = of[1].first - 1; t >= of->first; t--) {
        double input = 0.5 + a->has->of[t].input_extra, share = !weighs    ? input
                                                                : k->alone ? 1
                                                                           : 1 - input;
        GW_TRY(actor_compute_writing(a, last ? a->exchange->draw : NULL, t,
                                     part * share * a->has->of[t].backward_s));
        if (last)
            GW_TRY(actor_announce(a, t));
    }
    return GW_OK;
}

static gw_err actor_kernel(void *actor, const gw_kernel *k) {
    gw_actor *a = actor;
    double part = (double)k->at.n / a->script.mesh->samples;
    switch (k->kind) {
    case GW_KERNEL_PRODUCT: return actor_forward(a, k, part);
    case GW_KERNEL_DESCEND: return k->alone ? GW_OK : actor_backward(a, k, part);
    case GW_KERNEL_WEIGHTS: return actor_backward(a, k, part);
    case GW_KERNEL_TRANSFER:
        if (actor_floats(a, k->l, GW_MOMENT_PRODUCT) == 0)
            return GW_OK; /* fall through */
    case GW_KERNEL_ARRIVE: actor_restart(a); return GW_OK;
    default: return GW_OK;
    }
}

/* It takes no time of its own, but tensor ranks tell each other of it. */
static gw_err actor_loss(void *actor, gw_act act) {
    gw_actor *a = actor;
    int top = a->has->n_layers - 1;
    if (actor_floats(a, top, GW_MOMENT_LOSS) == 0)
        return GW_OK;
    gw_micro at = {.n = (int)gw_sim_mesh_rows(a->script.mesh, act.micro)};
    GW_TRY(gw_walk_join(&a->walk, top, act, GW_MOMENT_LOSS, at));
    actor_restart(a);
    return GW_OK;
}

/* ---- actions ---- */

static void actor_layers(const void *actor, int chunk, int *first, int *end) {
    const gw_actor *a = actor;
    *first = a->has->first[chunk];
    *end = a->has->first[chunk + 1];
}

static gw_micro actor_at(const void *actor, gw_act act) {
    const gw_actor *a = actor;
    return (gw_micro){.n = a->idle ? 0 : (int)gw_sim_mesh_rows(a->script.mesh, act.micro)};
}

static gw_err actor_begin(void *actor, gw_act act) {
    gw_actor *a = actor;
    bool forward = act.kind == GW_ACT_FORWARD;
    if (gw_runner_hop(&a->walk.runner, act, true))
        a->bubble_s += fmax(0, *actor_sent(a, act, true) - a->ended_s);
    a->comm_s += actor_now_s(a) - a->ended_s;
    GW_TRY(actor_enter(a, forward ? GW_PHASE_FORWARD : GW_PHASE_BACKWARD));
    if (!forward && a->left == 0) { /* its first of the step */
        a->left = a->filling.end = a->has->n_tensors;
        a->filling.first = true;
    }
    if (!forward && a->lanes.hops) /* it may have waited for one */
        actor_restart(a);
    return GW_OK;
}

static void actor_end(void *actor, gw_act act) {
    gw_actor *a = actor;
    a->ended_s = actor_now_s(a);
    if (act.kind != GW_ACT_FORWARD && a->left == 0 && a->script.sleeps)
        a->late_s += fmax(0, a->ended_s - a->due_s);
}

static const gw_walk_ops actor_ops = {.layers = actor_layers,
                                      .at = actor_at,
                                      .joins = actor_joins,
                                      .join = actor_join,
                                      .compute = actor_kernel,
                                      .loss = actor_loss,
                                      .begin = actor_begin,
                                      .end = actor_end,
                                      .await = actor_await,
                                      .message = actor_message};

/* ---- a step ---- */

/* What the program computes beside the model. */
static gw_err actor_program(gw_actor *a, gw_phase phase, double seconds) {
    a->phase = phase;
    return seconds > 0 ? actor_compute(a, seconds) : GW_OK;
}

gw_err gw_actor_play(gw_actor *a, long steps) {
    actor_restart(a);
    for (a->step = 0; a->step < steps; a->step++) {
        GW_TRY(HOOK(a, begin, a));
        GW_TRY(actor_program(a, GW_PHASE_DATA, a->script.profile->data_s));
        a->ended_s = actor_now_s(a);
        a->bubble_s = a->comm_s = a->joins_s = 0;
        GW_TRY(gw_walk_step(&a->walk));
        a->comm_s += actor_now_s(a) - a->ended_s;
        GW_TRY(actor_program(a, GW_PHASE_OTHER, a->script.profile->rest_s));
        if (!a->script.lazy)
            GW_TRY(actor_update(a, -1));
        GW_TRY(HOOK(a, end, a));
    }
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

static gw_err actor_lay_hops(gw_actor *a, gw_codec *exact, gw_phantom *phantom) {
    static const char *const names[] = {"activations", "deltas"};
    const gw_sim_mesh *m = a->script.mesh;
    gw_hops_setup setup = {.chunks = actor_runs(m),
                           .micro = m->micros,
                           .deltas = true,
                           .where = actor_where,
                           .ctx = a};
    a->lanes.places = phantom ? m->micros : 0;
    for (int c = 0; c < gw_timetable_chunks(m->timetable) && !phantom; c++) {
        /* one more than microbatches are held at a time: a receive is posted ahead */
        int places = gw_timetable_slots(m->timetable, a->at.at[GW_DIM_PIPE], c) + 1;
        a->lanes.places = places > a->lanes.places ? places : a->lanes.places;
    }
    for (int k = 0; k < GW_HOP_KINDS; k++) {
        gw_lane_setup lane = {.codec = exact, .phantom = phantom, .name = names[k]};
        GW_TRY(gw_actor_lane(a, GW_DIM_PIPE, lane, &a->lanes.hop[k]));
        setup.lane[k] = a->lanes.hop[k];
    }
    size_t places = (size_t)(actor_runs(m) * GW_HOP_KINDS * a->lanes.places);
    GW_TRY(gw_lane_floats(a->lanes.hop[0], places * m->widest, &setup.base));
    GW_TRY(gw_hops_open(&a->lanes.hops, &setup));
    a->walk.runner.hops = a->lanes.hops;
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
    gw_runner *r = &a->walk.runner;
    GW_TRY(gw_mesh_place(&a->at, &m->shape, a->fabric->rank, a->fabric->size));
    a->idle = a->at.at[GW_DIM_DATA] < servers;
    a->has = gw_sim_mesh_share(m, &a->at);
    a->walk = (gw_walk){.ops = &actor_ops, .of = a, .pieces = m->pieces};
    *r =
        (gw_runner){.timetable = m->timetable, .stage = a->at.at[GW_DIM_PIPE], .micros = m->micros};
    if (!gw_mesh_divides(&m->shape))
        return GW_OK;
    int flying = 4 * (m->micros + 1) * gw_timetable_chunks(m->timetable) + 4 * m->pieces;
    GW_TRY(gw_queue_open(&r->queue, GW_PROGRESS_POLL, flying, true));
    gw_queue_beside(r->queue, actor_beside, a);
    if (m->shape.size[GW_DIM_TENSOR] > 1) {
        gw_lane_setup lane = {.codec = exact, .phantom = phantom, .n = m->joined};
        float *floats;
        GW_TRY(gw_actor_lane(a, GW_DIM_TENSOR, lane, &a->lanes.tensor));
        GW_TRY(gw_lane_floats(a->lanes.tensor, m->joined, &floats));
        for (int verb = 0; verb <= GW_ALLGATHER; verb++)
            a->lanes.join[verb] = (gw_collective){
                .algo = &m->algo, .verb = (gw_verb)verb, .lane = a->lanes.tensor, .base = floats};
    }
    return actor_stages(m) > 1 ? actor_lay_hops(a, exact, phantom) : GW_OK;
}

void gw_actor_close(gw_actor *a) {
    gw_queue_close(a->walk.runner.queue);
    gw_hops_close(a->lanes.hops);
    for (int verb = 0; verb <= GW_ALLGATHER; verb++)
        gw_collective_clear(&a->lanes.join[verb]);
    gw_lane_close(a->lanes.tensor);
    for (int k = 0; k < GW_HOP_KINDS; k++)
        gw_lane_close(a->lanes.hop[k]);
    a->lanes = (gw_actor_lanes){0};
    a->walk.runner.queue = NULL;
}
