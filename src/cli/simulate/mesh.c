#include "cli/simulate/mesh.h"

#include "base/json.h"
#include "base/mem.h"
#include "mesh/pipeline.h"
#include "nn/partition.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static int mesh_stages(const gw_sim_mesh *m) {
    return m->shape.size[GW_DIM_PIPE];
}

static int mesh_runs(const gw_sim_mesh *m) {
    return mesh_stages(m) * gw_timetable_chunks(m->timetable);
}

static size_t mesh_rows(const gw_sim_mesh *m, int micro) {
    return gw_span_part((gw_span){0, (size_t)m->samples}, micro, m->micros).n;
}

/* ---- the cut ---- */

static bool mesh_cuts(const gw_step_profile *of, int t) {
    return t + 1 == of->n_tensors || of->tensor[t].activation > 0;
}

/* cost: zeros, for each tensor. */
static gw_err mesh_cut(gw_sim_mesh *m, const gw_parallel *o, const gw_step_profile *of,
                       double *cost) {
    int parts = 0, runs = mesh_runs(m);
    for (int t = 0; t < of->n_tensors; t++) {
        cost[parts] += of->tensor[t].forward_s + of->tensor[t].backward_s;
        parts += mesh_cuts(of, t);
    }
    if (runs > 1 && parts == 1 && of->groups > 1)
        return gw_fail(GW_ERR_USAGE,
                       "simulate: --mesh pipe=%d: the profile of %s does not say what passes from "
                       "layer to layer: add `activation` where it can be cut",
                       mesh_stages(m), of->model);
    GW_TRY(gw_pipeline_check_layers(o, mesh_stages(m), runs / mesh_stages(m), parts));
    return gw_partition(cost, parts, runs, m->sizes);
}

/* A stage holds tensor t, too, behind what it has of this run and those before. */
static void mesh_hold(gw_sim_share *s, const gw_step_tensor *t, bool opens) {
    int rows = t->rows ? (int)t->rows : 1;
    if (opens)
        s->layers[s->n_layers++].off = s->n;
    s->of[s->n_tensors] = *t;
    s->tensors[s->n_tensors++] = (gw_tensor){.span = {s->n, t->n},
                                             .layer = s->n_layers - 1,
                                             .rows = rows,
                                             .cols = (int)(t->n / (size_t)rows)};
    s->layers[s->n_layers - 1].n += t->n;
    s->n += t->n;
}

static void mesh_share(gw_sim_mesh *m, const gw_step_profile *of) {
    const gw_step_tensor *x = of->tensor;
    for (int run = 0, t = 0; run < mesh_runs(m); run++) {
        gw_sim_share *s = &m->share[run % mesh_stages(m)];
        for (int begin = t, left = m->sizes[run]; left > 0; left -= mesh_cuts(of, t++))
            mesh_hold(s, &x[t], t == begin || x[t].group != x[t - 1].group);
        s->first[run / mesh_stages(m) + 1] = s->n_tensors;
        m->edge[run] = run + 1 < mesh_runs(m) ? x[t - 1].activation : 0;
        size_t wide = m->edge[run] * mesh_rows(m, m->micros - 1);
        m->widest = wide > m->widest ? wide : m->widest;
        m->cost.bytes += 2 * sizeof(float) * m->edge[run] * (size_t)m->samples;
    }
    m->cost.messages = 2 * (uint64_t)((mesh_runs(m) - 1) * m->micros);
    m->room = m->widest * (size_t)(mesh_runs(m) * GW_HOP_KINDS * m->micros);
}

static gw_err mesh_open(gw_sim_mesh *m, const gw_parallel *o, const gw_step_profile *of) {
    size_t n = (size_t)of->n_tensors, runs = (size_t)mesh_runs(m), stages = (size_t)mesh_stages(m);
    size_t hops = (runs > 1 ? runs : 0) * GW_HOP_KINDS * (size_t)m->micros;
    double *cost;
    GW_TRY(gw_alloc(&m->sizes, runs, sizeof *m->sizes));
    GW_TRY(gw_alloc(&m->edge, runs, sizeof *m->edge));
    GW_TRY(gw_alloc(&m->sent, (size_t)m->shape.size[GW_DIM_DATA] * hops, sizeof *m->sent));
    GW_TRY(gw_alloc(&m->share, stages, sizeof *m->share));
    for (gw_sim_share *s = m->share; s < m->share + stages; s++) {
        GW_TRY(gw_alloc(&s->of, n, sizeof *s->of));
        GW_TRY(gw_alloc(&s->tensors, n, sizeof *s->tensors));
        GW_TRY(gw_alloc(&s->layers, n, sizeof *s->layers));
        GW_TRY(gw_alloc(&s->first, runs / stages + 1, sizeof *s->first));
    }
    GW_TRY(gw_alloc(&cost, n, sizeof *cost));
    gw_err e = mesh_cut(m, o, of, cost);
    free(cost);
    if (e == GW_OK)
        mesh_share(m, of);
    return e;
}

gw_err gw_sim_mesh_open(gw_sim_mesh *m, const gw_parallel *o, const gw_step_profile *of,
                        int ranks) {
    static const gw_parallel plain = {
        .shape = {{0, 1, 1}, {GW_DIM_PIPE, GW_DIM_TENSOR, GW_DIM_DATA}},
        .stages = "flops",
        .microbatches = 1};
    gw_mesh at;
    o = o ? o : &plain;
    *m = (gw_sim_mesh){.samples = (int)of->batch, .micros = o->microbatches};
    GW_TRY(gw_pipeline_check_idle(o, "simulate"));
    GW_TRY(gw_mesh_place(&at, &o->shape, 0, ranks));
    m->shape = at.shape;
    if (m->shape.size[GW_DIM_TENSOR] > 1)
        return gw_fail(GW_ERR_UNSUPPORTED,
                       "simulate: --mesh tensor=%d: a profile does not say which parts of its "
                       "layers tensor ranks would hold, and what they would sum: use data and pipe",
                       m->shape.size[GW_DIM_TENSOR]);
    if (m->micros > 1)
        GW_TRY(gw_pipeline_check_samples(o, m->samples));
    GW_TRY(gw_timetable_open(&m->timetable, o->timetable, mesh_stages(m), m->micros));
    return mesh_open(m, o, of);
}

void gw_sim_mesh_close(gw_sim_mesh *m) {
    for (int i = 0; m->share && i < mesh_stages(m); i++) {
        free(m->share[i].of);
        free(m->share[i].tensors);
        free(m->share[i].layers);
        free(m->share[i].first);
    }
    free(m->share);
    free(m->sizes);
    free(m->edge);
    free(m->sent);
    gw_timetable_close(m->timetable);
    *m = (gw_sim_mesh){0};
}

json_t *gw_sim_mesh_json(const gw_sim_mesh *m) {
    const int *size = m->shape.size;
    if (!gw_mesh_divides(&m->shape) && m->micros == 1)
        return json_null();
    json_t *layers = json_array();
    for (int i = 0; i < mesh_runs(m); i++)
        json_array_append_new(layers, json_integer(m->sizes[i]));
    return gw_json_object("data:i pipe:i tensor:i timetable:s microbatches:i chunks:i layers:o",
                          size[GW_DIM_DATA], size[GW_DIM_PIPE], size[GW_DIM_TENSOR],
                          gw_timetable_name(m->timetable), m->micros,
                          gw_timetable_chunks(m->timetable), layers);
}

/* ---- one rank ---- */

/* A span of its own for each, but deltas in as many places as a real stage has: what is in one must
 * have left before it is written again. An activation has, before its slot is free. */
static gw_span pipe_where(const void *pipe, gw_hop hop, bool receives) {
    const gw_sim_pipe *p = pipe;
    const gw_sim_mesh *m = p->mesh;
    int chunk = (hop.boundary + 1) / mesh_stages(m), place = hop.micro;
    if (hop.kind == GW_HOP_DELTA && !receives)
        place %= 1 + gw_timetable_kept(m->timetable, p->runner.stage, chunk);
    place += (hop.boundary * GW_HOP_KINDS + (int)hop.kind) * m->micros;
    return (gw_span){(size_t)place * m->widest,
                     p->idle ? 0 : m->edge[hop.boundary] * mesh_rows(m, hop.micro)};
}

/* When the hop left that an action takes, or ends in. */
static double *pipe_sent(const gw_sim_pipe *p, gw_act act, bool receives) {
    const gw_sim_mesh *m = p->mesh;
    bool forward = act.kind == GW_ACT_FORWARD;
    int run = act.chunk * mesh_stages(m) + p->runner.stage - (forward == receives);
    int line = (p->at.at[GW_DIM_DATA] * mesh_runs(m) + run) * GW_HOP_KINDS + forward;
    return &m->sent[(size_t)line * (size_t)m->micros + (size_t)act.micro];
}

static double pipe_now_s(const gw_sim_pipe *p) {
    return 1e-9 * (double)p->world->ops->now_ns(p->world);
}

static gw_err pipe_act(void *pipe, gw_act act) {
    gw_sim_pipe *p = pipe;
    const gw_sim_mesh *m = p->mesh;
    double part = m->micros > 1 ? (double)mesh_rows(m, act.micro) / m->samples : 1;
    if (gw_runner_hop(&p->runner, act, true))
        p->bubble_s += fmax(0, *pipe_sent(p, act, true) - p->ended_s);
    GW_TRY(gw_runner_vacate(&p->runner, act));
    p->comm_s += pipe_now_s(p) - p->ended_s;
    GW_TRY(p->compute(p->ctx, act, p->idle ? 0 : part));
    p->ended_s = pipe_now_s(p);
    return GW_OK;
}

gw_err gw_sim_pipe_send(gw_sim_pipe *p, gw_act act) {
    gw_schedule *hop = gw_runner_hop(&p->runner, act, false);
    if (!hop)
        return GW_OK;
    double now_s = *pipe_sent(p, act, false) = pipe_now_s(p);
    size_t n = gw_schedule_span(hop).n;
    p->sent = gw_cost_sum(p->sent, (gw_cost){n * sizeof(float), n > 0});
    GW_TRY(gw_runner_send(&p->runner, act));
    p->comm_s += pipe_now_s(p) - now_s;
    return GW_OK;
}

gw_err gw_sim_pipe_lane(const gw_sim_pipe *p, gw_dim d, gw_lane_setup setup, gw_lane **out) {
    gw_fabric *line;
    int first[GW_DIMS];
    memcpy(first, p->at.at, sizeof first);
    first[d] = 0;
    GW_TRY(p->world->ops->split(p->world, gw_mesh_rank(&p->at, first), &line));
    setup.apart = setup.yield = true;
    setup.dim = (int)d;
    return gw_lane_open_on(out, line, &setup);
}

static gw_err pipe_lay_hops(gw_sim_pipe *p, gw_codec *exact, gw_phantom *phantom) {
    const gw_sim_mesh *m = p->mesh;
    gw_hops_setup setup = {
        .chunks = mesh_runs(m), .micro = m->micros, .deltas = true, .where = pipe_where, .ctx = p};
    for (int k = 0; k < GW_HOP_KINDS; k++) {
        gw_lane_setup lane = {.codec = exact, .phantom = phantom};
        GW_TRY(gw_sim_pipe_lane(p, GW_DIM_PIPE, lane, &p->lane[k]));
        setup.lane[k] = p->lane[k];
    }
    GW_TRY(gw_lane_floats(p->lane[0], m->room, &setup.base));
    GW_TRY(gw_queue_open(&p->runner.queue, GW_PROGRESS_POLL,
                         4 * (m->micros + 1) * gw_timetable_chunks(m->timetable), true));
    gw_queue_beside(p->runner.queue, p->beside, p->ctx);
    GW_TRY(gw_hops_open(&p->hops, &setup));
    p->runner.hops = p->hops;
    return GW_OK;
}

gw_err gw_sim_pipe_open(gw_sim_pipe *p, int servers, gw_codec *exact, gw_phantom *phantom) {
    const gw_sim_mesh *m = p->mesh;
    GW_TRY(gw_mesh_place(&p->at, &m->shape, p->world->rank, p->world->size));
    p->idle = p->at.at[GW_DIM_DATA] < servers;
    p->runner = (gw_runner){.timetable = m->timetable,
                            .stage = p->at.at[GW_DIM_PIPE],
                            .micros = m->micros,
                            .act = pipe_act,
                            .ctx = p};
    return mesh_stages(m) > 1 ? pipe_lay_hops(p, exact, phantom) : GW_OK;
}

void gw_sim_pipe_close(gw_sim_pipe *p) {
    gw_queue_close(p->runner.queue);
    gw_hops_close(p->hops);
    for (int k = 0; k < GW_HOP_KINDS; k++)
        gw_lane_close(p->lane[k]);
}

gw_err gw_sim_pipe_step(gw_sim_pipe *p) {
    p->ended_s = pipe_now_s(p);
    p->bubble_s = p->comm_s = 0;
    p->sent = (gw_cost){0};
    GW_TRY(gw_runner_step(&p->runner));
    p->comm_s += pipe_now_s(p) - p->ended_s;
    return GW_OK;
}
