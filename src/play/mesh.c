/* How a profile's model is cut over the ranks of a mesh: into stages that compute alike
 * (nn/shard.h), and into the parts of tensors that the profile has tensor ranks divide
 * (Shoeybi et al., "Megatron-LM", 2019). */
#include "play/mesh.h"

#include "base/json.h"
#include "base/mem.h"
#include "mesh/pipeline.h"
#include "nn/shard.h"

#include <stdlib.h>
#include <string.h>

static int mesh_stages(const gw_sim_mesh *m) {
    return m->shape.size[GW_DIM_PIPE];
}

static int mesh_tensor(const gw_sim_mesh *m) {
    return m->shape.size[GW_DIM_TENSOR];
}

static int mesh_runs(const gw_sim_mesh *m) {
    return mesh_stages(m) * gw_timetable_chunks(m->timetable);
}

size_t gw_sim_mesh_rows(const gw_sim_mesh *m, int micro) {
    return gw_span_part((gw_span){0, (size_t)m->samples}, micro, m->micros).n;
}

size_t gw_sim_mesh_edge(const gw_sim_mesh *m, int run, int part) {
    const gw_sim_edge *e = &m->edge[run];
    return e->divided ? gw_share_part((int)e->n, part, mesh_tensor(m)).n : e->n;
}

/* ---- tensor ranks ---- */

gw_err gw_sim_algo_open(gw_algo *out, const gw_spec *spec, const gw_codec *codec) {
    GW_TRY(gw_algo_open(out, spec, codec));
    bool ordered = out->ops->caps & GW_ALGO_ORDERED && !(out->ops->caps & GW_ALGO_SHARED);
    return ordered ? gw_algo_replace(out, codec) : GW_OK;
}

/* What one of the tensor ranks has of it. Parts of an input travel in blocks of one length, that of
 * the widest. */
static gw_step_tensor mesh_part(const gw_sim_mesh *m, const gw_step_tensor *t, int part) {
    gw_step_tensor own = *t;
    int parts = mesh_tensor(m);
    size_t widest = 0;
    for (int k = 0; k < parts; k++) {
        size_t width = gw_share_part((int)t->input_parts, k, parts).n;
        widest = width > widest ? width : widest;
    }
    own.forward_gather *= (size_t)parts;
    own.input_parts = (size_t)parts * widest;
    if (t->shard == 0 || parts == 1)
        return own;
    size_t n = gw_share_part((int)t->shard, part, parts).n;
    own.n = t->n / t->shard * n;
    own.rows = t->shard_rows ? n : t->rows;
    if (m->shared)
        return own;
    own.forward_s *= (double)n / (double)t->shard;
    own.backward_s *= (double)n / (double)t->shard;
    return own;
}

static gw_err mesh_check_tensor(const gw_sim_mesh *m, const gw_step_profile *of) {
    size_t parts = (size_t)mesh_tensor(m);
    bool divides = parts == 1;
    for (const gw_step_tensor *t = of->tensor; t < of->tensor + of->n_tensors; t++) {
        divides = divides || t->shard;
        if (t->shard && t->shard < parts)
            return gw_fail(GW_ERR_USAGE,
                           "simulate: --mesh tensor=%zu: tensor %s of %s comes in %zu part%s: at "
                           "most tensor=%zu",
                           parts, t->name, of->model, t->shard, t->shard == 1 ? "" : "s", t->shard);
    }
    return divides ? GW_OK
                   : gw_fail(GW_ERR_USAGE,
                             "simulate: --mesh tensor=%zu: the profile of %s does not say what "
                             "tensor ranks divide: add `shard` and what they sum",
                             parts, of->model);
}

/* ---- the cut ---- */

static bool mesh_cuts(const gw_step_profile *of, int t) {
    return t + 1 == of->n_tensors || of->tensor[t].activation > 0;
}

/* Tensors [begin, end) are a run's. Where the last group of it is divided and not summed, tensor
 * ranks have parts of what passes on. */
static gw_err mesh_share_run(gw_sim_mesh *m, const gw_step_tensor *x, int run, int begin, int end) {
    gw_sim_share *share = &m->share[run % mesh_stages(m) * mesh_tensor(m)];
    gw_sim_edge *edge = &m->edge[run];
    for (int part = 0; part < mesh_tensor(m); part++) {
        gw_sim_share *s = &share[part];
        for (int t = begin; t < end; t++) {
            gw_step_tensor own = mesh_part(m, &x[t], part);
            /* A rank holds tensor t, too, behind what it has of this run and those before. */
            int rows = own.rows ? (int)own.rows : 1;
            if (t == begin || x[t].group != x[t - 1].group)
                s->layers[s->n_layers++].off = s->n;
            s->of[s->n_tensors] = own;
            s->tensors[s->n_tensors++] = (gw_tensor){.span = {s->n, own.n},
                                                     .layer = s->n_layers - 1,
                                                     .rows = rows,
                                                     .cols = (int)(own.n / (size_t)rows)};
            s->layers[s->n_layers - 1].n += own.n;
            s->n += own.n;
            gw_sim_group *of = &s->group[s->n_layers - 1];
            of->joins[GW_MOMENT_INPUT] += own.input_parts;
            of->joins[GW_MOMENT_PRODUCT] += own.forward_sum;
            of->joins[GW_MOMENT_LOSS] += own.forward_gather;
            of->joins[GW_MOMENT_DELTA] += own.input_parts + own.backward_sum;
            of->scatters |= own.input_parts > 0;
            of[1].first = s->n_tensors;
        }
        s->first[run / mesh_stages(m) + 1] = s->n_layers;
    }
    if (run + 1 == mesh_runs(m))
        return GW_OK;
    *edge = (gw_sim_edge){.n = x[end - 1].activation};
    for (int t = end - 1, summed = 0; t >= begin && x[t].group == x[end - 1].group; t--) {
        summed |= x[t].forward_sum > 0;
        edge->divided = !summed && (edge->divided || x[t].shard > 0);
    }
    if (!edge->divided || edge->n >= (size_t)mesh_tensor(m))
        return GW_OK;
    return gw_fail(GW_ERR_USAGE,
                   "simulate: --mesh tensor=%d: tensor ranks divide the %zu float%s that pass on "
                   "behind %s: at most tensor=%zu",
                   mesh_tensor(m), edge->n, edge->n == 1 ? "" : "s", x[end - 1].name, edge->n);
}

static gw_err mesh_share(gw_sim_mesh *m, const gw_step_profile *of) {
    size_t rows = gw_sim_mesh_rows(m, m->micros - 1);
    for (int run = 0, t = 0; run < mesh_runs(m); run++) {
        int begin = t;
        for (int left = m->sizes[run]; left > 0; left -= mesh_cuts(of, t++))
            ;
        GW_TRY(mesh_share_run(m, of->tensor, run, begin, t));
        for (int part = 0; part < mesh_tensor(m); part++) {
            size_t n = gw_sim_mesh_edge(m, run, part);
            m->widest = n * rows > m->widest ? n * rows : m->widest;
            m->cost.bytes += 2 * sizeof(float) * n * (size_t)m->samples;
        }
    }
    m->cost.messages = 2 * (uint64_t)((mesh_runs(m) - 1) * m->micros * mesh_tensor(m));
    m->room = m->widest * (size_t)(mesh_runs(m) * GW_HOP_KINDS * m->micros);
    int shares = mesh_stages(m) * mesh_tensor(m);
    for (const gw_sim_share *x = m->share; mesh_tensor(m) > 1 && x < m->share + shares; x++)
        for (const gw_sim_group *g = x->group; g < x->group + x->n_layers; g++)
            for (int k = 0; k <= GW_MOMENT_DELTA; k++)
                m->joined = g->joins[k] * rows > m->joined ? g->joins[k] * rows : m->joined;
    return GW_OK;
}

/* Into runs that compute alike. cost: zeros, for each tensor. */
static gw_err mesh_cut(gw_sim_mesh *m, const gw_parallel *o, const gw_step_profile *of,
                       double *cost) {
    int parts = 0, runs = mesh_runs(m);
    for (int t = 0; t < of->n_tensors; t++) {
        gw_step_tensor own = mesh_part(m, &of->tensor[t], 0);
        cost[parts] += own.forward_s + own.backward_s;
        parts += mesh_cuts(of, t);
    }
    if (runs > 1 && parts == 1 && of->groups > 1)
        return gw_fail(GW_ERR_USAGE,
                       "simulate: --mesh pipe=%d: the profile of %s does not say what passes from "
                       "layer to layer: add `activation` where it can be cut",
                       mesh_stages(m), of->model);
    GW_TRY(gw_pipeline_check_layers(o, mesh_stages(m), runs / mesh_stages(m), parts));
    if (strcmp(o->stages, "flops") != 0)
        return gw_pipeline_read_cut(o->stages, false, parts, runs, m->sizes);
    return gw_partition(cost, parts, runs, m->sizes);
}

const gw_parallel gw_parallel_plain = {
    .codec = {[GW_HOP_ACTIVATION] = &gw_codec_exact},
    .shape = {{0, 1, 1}, {GW_DIM_PIPE, GW_DIM_TENSOR, GW_DIM_DATA}},
    .stages = "flops",
    .microbatches = 1,
    .tensor_chunks = 1};

gw_err gw_sim_mesh_open(gw_sim_mesh *m, const gw_parallel *o, const gw_step_profile *of,
                        int ranks) {
    gw_mesh at;
    *m = (gw_sim_mesh){.samples = (int)of->batch,
                       .micros = o->microbatches,
                       .shared = of->shared,
                       .pieces = o->tensor_chunks};
    if (of->batch < 1)
        return gw_fail(GW_ERR_INTERNAL, "simulate: the profile of %s has no samples", of->model);
    GW_TRY(gw_pipeline_check_idle(o, "simulate"));
    GW_TRY(gw_mesh_place(&at, &o->shape, 0, ranks));
    m->shape = at.shape;
    GW_TRY(mesh_check_tensor(m, of));
    gw_codec exact;
    GW_TRY(gw_codec_open(&exact, &gw_codec_exact));
    gw_err e = gw_sim_algo_open(&m->algo, o->tensor_algo, &exact);
    gw_codec_close(&exact);
    GW_TRY(e);
    if (m->algo.ops->caps & GW_ALGO_SHARED)
        return gw_fail(GW_ERR_UNSUPPORTED,
                       "simulate: --tensor-algo %s may work in memory that ranks share, which "
                       "simulated ones do not: take ring, halving or another that sends messages",
                       o->tensor_algo->text);
    if (m->micros > 1)
        GW_TRY(gw_pipeline_check_samples(o, m->samples));
    GW_TRY(gw_timetable_open(&m->timetable, o->timetable, mesh_stages(m), m->micros));
    size_t n = (size_t)of->n_tensors, runs = (size_t)mesh_runs(m), stages = (size_t)mesh_stages(m),
           tensor = (size_t)mesh_tensor(m);
    size_t hops = (runs > 1 ? runs : 0) * GW_HOP_KINDS * (size_t)m->micros;
    double *cost;
    GW_TRY(gw_alloc(&m->sizes, runs, sizeof *m->sizes));
    GW_TRY(gw_alloc(&m->edge, runs, sizeof *m->edge));
    GW_TRY(gw_alloc(&m->sent, (size_t)m->shape.size[GW_DIM_DATA] * tensor * hops, sizeof *m->sent));
    GW_TRY(gw_alloc(&m->share, stages * tensor, sizeof *m->share));
    for (gw_sim_share *s = m->share; s < m->share + stages * tensor; s++) {
        GW_TRY(gw_alloc(&s->of, n, sizeof *s->of));
        GW_TRY(gw_alloc(&s->tensors, n, sizeof *s->tensors));
        GW_TRY(gw_alloc(&s->layers, n, sizeof *s->layers));
        GW_TRY(gw_alloc(&s->group, n + 1, sizeof *s->group));
        GW_TRY(gw_alloc(&s->first, runs / stages + 1, sizeof *s->first));
    }
    GW_TRY(gw_alloc(&cost, n, sizeof *cost));
    e = mesh_cut(m, o, of, cost);
    free(cost);
    GW_THEN(e, mesh_share(m, of));
    return e;
}

void gw_sim_mesh_close(gw_sim_mesh *m) {
    for (int i = 0; m->share && i < mesh_stages(m) * mesh_tensor(m); i++) {
        free(m->share[i].of);
        free(m->share[i].tensors);
        free(m->share[i].layers);
        free(m->share[i].group);
        free(m->share[i].first);
    }
    free(m->share);
    free(m->sizes);
    free(m->edge);
    free(m->sent);
    gw_timetable_close(m->timetable);
    gw_algo_close(&m->algo);
    *m = (gw_sim_mesh){0};
}

const gw_sim_share *gw_sim_mesh_share(const gw_sim_mesh *m, const gw_mesh *at) {
    return &m->share[at->at[GW_DIM_PIPE] * mesh_tensor(m) + at->at[GW_DIM_TENSOR]];
}

json_t *gw_sim_mesh_json(const gw_sim_mesh *m) {
    const int *size = m->shape.size;
    if (!gw_mesh_divides(&m->shape) && m->micros == 1)
        return json_null();
    char algo[96];
    snprintf(algo, sizeof algo, m->algo.stands_for ? "%s (modelled as halving:chunk=0)" : "%s",
             m->algo.stands_for ? m->algo.stands_for : m->algo.ops->head.name);
    json_t *layers = json_array();
    for (int i = 0; i < mesh_runs(m); i++)
        json_array_append_new(layers, json_integer(m->sizes[i]));
    return gw_json_object("data:i pipe:i tensor:i timetable:s microbatches:i chunks:i layers:o "
                          "tensor_algorithm:s tensor_chunks:i",
                          size[GW_DIM_DATA], size[GW_DIM_PIPE], size[GW_DIM_TENSOR],
                          gw_timetable_name(m->timetable), m->micros,
                          gw_timetable_chunks(m->timetable), layers,
                          size[GW_DIM_TENSOR] > 1 ? algo : NULL, m->pieces);
}
