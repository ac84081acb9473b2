/* What an actor exchanges within its replica: hops from stage to stage by the pipeline's runner, as
 * in a real run, and the collectives of tensor ranks (Shoeybi et al., "Megatron-LM", 2019). */
#include "play/actor.h"

#include <string.h>

static int lanes_stages(const gw_sim_mesh *m) {
    return m->shape.size[GW_DIM_PIPE];
}

static int lanes_runs(const gw_sim_mesh *m) {
    return lanes_stages(m) * gw_timetable_chunks(m->timetable);
}

/* ---- hops ---- */

/* Without memory each message has a place of its own, but deltas as many as a real stage has: what
 * is in one must have left before it is written again. An activation has, before its slot is
 * free. */
static gw_span lanes_where(const void *actor, gw_hop hop, bool receives) {
    const gw_actor *a = actor;
    const gw_sim_mesh *m = a->script.mesh;
    int chunk = (hop.boundary + 1) / lanes_stages(m), place = hop.micro % a->lanes.places;
    if (hop.kind == GW_HOP_DELTA && !receives)
        place %= 1 + gw_timetable_kept(m->timetable, a->lanes.runner.stage, chunk);
    place += (hop.boundary * GW_HOP_KINDS + (int)hop.kind) * a->lanes.places;
    return (gw_span){(size_t)place * m->widest,
                     a->idle ? 0
                             : gw_sim_mesh_edge(m, hop.boundary, a->at.at[GW_DIM_TENSOR]) *
                                   gw_sim_mesh_rows(m, hop.micro)};
}

double *gw_actor_sent(const gw_actor *a, gw_act act, bool receives) {
    const gw_sim_mesh *m = a->script.mesh;
    bool forward = act.kind == GW_ACT_FORWARD;
    int run = act.chunk * lanes_stages(m) + a->lanes.runner.stage - (forward == receives);
    int replica = a->at.at[GW_DIM_DATA] * m->shape.size[GW_DIM_TENSOR] + a->at.at[GW_DIM_TENSOR];
    int line = (replica * lanes_runs(m) + run) * GW_HOP_KINDS + forward;
    return &m->sent[(size_t)line * (size_t)m->micros + (size_t)act.micro];
}

gw_err gw_actor_send(gw_actor *a, gw_act act) {
    if (!gw_runner_hop(&a->lanes.runner, act, false))
        return GW_OK;
    double now_s = *gw_actor_sent(a, act, false) = gw_actor_now_s(a);
    GW_TRY(gw_runner_send(&a->lanes.runner, act));
    a->comm_s += gw_actor_now_s(a) - now_s;
    return GW_OK;
}

/* ---- joins ---- */

static bool lanes_join(const gw_actor *a, size_t floats) {
    return a->lanes.tensor && !a->idle && floats > 0;
}

int gw_actor_pieces(const gw_actor *a, int micro, size_t floats) {
    int rows = (int)gw_sim_mesh_rows(a->script.mesh, micro),
        pieces = lanes_join(a, floats) ? a->script.mesh->pieces : 1;
    return pieces < rows ? pieces : rows > 1 ? rows : 1;
}

gw_err gw_actor_join(gw_actor *a, const gw_sim_join *j, bool starts) {
    gw_collective *of = &a->lanes.join[j->verb];
    const gw_runner *r = &a->lanes.runner;
    gw_schedule *s;
    if (!lanes_join(a, j->floats))
        return GW_OK;
    double now_s = gw_actor_now_s(a);
    gw_span rows =
        gw_span_part((gw_span){0, gw_sim_mesh_rows(a->script.mesh, j->micro)}, j->piece, j->pieces);
    gw_span span = {rows.off * j->floats, rows.n * j->floats};
    GW_TRY(gw_collective_get(of, span, &s));
    if (starts && a->at.at[GW_DIM_TENSOR] == 0)
        a->lanes.joins = gw_cost_sum(a->lanes.joins, gw_collective_cost(of, span));
    GW_TRY(starts ? gw_runner_start(r, s, j->micro) : gw_runner_wait(r, s));
    a->joins_s += gw_actor_now_s(a) - now_s;
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
static int lanes_places(const gw_actor *a) {
    const gw_timetable *t = a->script.mesh->timetable;
    int most = 0;
    for (int c = 0; c < gw_timetable_chunks(t); c++) {
        int places = gw_timetable_slots(t, a->at.at[GW_DIM_PIPE], c) + 1;
        most = places > most ? places : most;
    }
    return most;
}

static gw_err lanes_lay_hops(gw_actor *a, gw_codec *exact, gw_phantom *phantom) {
    static const char *const names[] = {"activations", "deltas"};
    const gw_sim_mesh *m = a->script.mesh;
    gw_hops_setup setup = {.chunks = lanes_runs(m),
                           .micro = m->micros,
                           .deltas = true,
                           .where = lanes_where,
                           .ctx = a};
    a->lanes.places = phantom ? m->micros : lanes_places(a);
    for (int k = 0; k < GW_HOP_KINDS; k++) {
        gw_lane_setup lane = {.codec = exact, .phantom = phantom, .name = names[k]};
        GW_TRY(gw_actor_lane(a, GW_DIM_PIPE, lane, &a->lanes.hop[k]));
        setup.lane[k] = a->lanes.hop[k];
    }
    size_t places = (size_t)(lanes_runs(m) * GW_HOP_KINDS * a->lanes.places);
    GW_TRY(gw_lane_floats(a->lanes.hop[0], places * m->widest, &setup.base));
    GW_TRY(gw_hops_open(&a->lanes.hops, &setup));
    a->lanes.runner.hops = a->lanes.hops;
    return GW_OK;
}

static gw_err lanes_join_ranks(gw_actor *a, gw_codec *exact, gw_phantom *phantom) {
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

static gw_err lanes_beside(void *actor) {
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
    gw_queue_beside(r->queue, lanes_beside, a);
    if (m->shape.size[GW_DIM_TENSOR] > 1)
        GW_TRY(lanes_join_ranks(a, exact, phantom));
    return lanes_stages(m) > 1 ? lanes_lay_hops(a, exact, phantom) : GW_OK;
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
