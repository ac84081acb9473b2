/* What a rank of a mesh holds: which layers, which neurons of them, and how many microbatches. */
#include "mesh/pipeline_parts.h"

#include "base/json.h"
#include "mpi/agree.h"
#include "mpi/wait.h"
#include "nn/shard.h"
#include "roofline/twins.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the cut into stages ---- */

/* cost[l] = the least time of layer l's products, forward and backward, over `rows` samples. */
static gw_err pipeline_time_layers(const gw_model_spec *s, int rows, double *cost) {
    gw_shard whole;
    gw_share share = gw_share_whole(s);
    GW_TRY(gw_shard_of(&whole, s, &share));
    for (int l = 0; l < whole.n_layers; l++) {
        gw_product all[GW_UNIT_PRODUCTS];
        int n = gw_twin_products_of(&whole, l, rows, all);
        cost[l] = 0;
        for (int i = 0; i < n; i++) {
            double seconds;
            GW_TRY(gw_twin_time_product(&all[i], &seconds));
            cost[l] += seconds;
        }
    }
    return GW_OK;
}

static gw_err pipeline_measure_layers(const gw_model_spec *s, int rows, double *cost,
                                      MPI_Comm comm) {
    int rank;
    GW_TRY(gw_comm_place(comm, &rank, NULL));
    GW_TRY(gw_agree(comm, rank == 0 ? pipeline_time_layers(s, rows, cost) : GW_OK));
    return gw_bcast(cost, gw_model_spec_layers(s), MPI_DOUBLE, 0, comm);
}

/* --stages 2,1,1, or what a checkpoint says of `--stages measured` */
gw_err gw_pipeline_read_cut(const char *text, bool resumed, int layers, int runs, int *sizes) {
    int n = 0, sum = 0;
    const char *at = text;
    while (n < runs) {
        char *end;
        long size = strtol(at, &end, 10);
        if (end == at || size < 1 || size > layers || (*end && *end != ','))
            break;
        sizes[n++] = (int)size;
        sum += (int)size;
        at = *end && n < runs ? end + 1 : end;
        if (!*end)
            break;
    }
    bool bad = *at || n != runs || sum != layers;
    if (bad && resumed)
        return gw_fail(GW_ERR_INPUT,
                       "--resume: the checkpoint's stages, '%.40s', are not %d numbers from 1 on "
                       "that add up to the model's %d layers",
                       text, runs, layers);
    if (bad)
        return gw_fail(GW_ERR_USAGE,
                       "--stages %s: give %d number%s from 1 on that add up to the model's %d "
                       "layers, or flops or measured",
                       text, runs, runs == 1 ? "" : "s", layers);
    return GW_OK;
}

gw_err gw_pipeline_check_layers(const gw_parallel *o, int stages, int chunks, int layers) {
    if (stages == 1 && chunks > 1)
        return gw_fail(GW_ERR_USAGE,
                       "--timetable %s: one stage has nothing to interleave: add pipe to --mesh",
                       o->timetable->text);
    if (stages * chunks > layers)
        return gw_fail(GW_ERR_USAGE,
                       "--mesh pipe=%d: the model has %d layer%s, each chunk needs one: at most "
                       "pipe=%d",
                       stages, layers, layers == 1 ? "" : "s", layers / chunks);
    return GW_OK;
}

gw_err gw_pipeline_check_samples(const gw_parallel *o, int samples) {
    if (o->microbatches <= samples)
        return GW_OK;
    return gw_fail(GW_ERR_USAGE, "--microbatches %d: a replica takes %d sample%s a step",
                   o->microbatches, samples, samples == 1 ? "" : "s");
}

static gw_err pipeline_cut(gw_pipeline *p, const gw_model_spec *s, int rows, MPI_Comm comm) {
    double cost[GW_MAX_LAYERS] = {0};
    int layers = gw_model_spec_layers(s), runs = p->at.stages * p->at.chunks;
    const char *how = p->options->stages;
    GW_TRY(gw_pipeline_check_layers(p->options, p->at.stages, p->at.chunks, layers));
    bool resumed = strcmp(how, "measured") == 0 && p->cut;
    if (resumed)
        how = p->cut;
    if (strcmp(how, "flops") != 0 && strcmp(how, "measured") != 0)
        return gw_pipeline_read_cut(how, resumed, layers, runs, p->at.sizes);
    for (int l = 0; l < layers; l++)
        cost[l] = gw_shard_flops(s, l);
    if (strcmp(how, "measured") == 0)
        GW_TRY(pipeline_measure_layers(s, rows, cost, comm));
    return gw_partition(cost, layers, runs, p->at.sizes);
}

/* ---- how much is held ---- */

/* A receive is posted one action ahead of its use, so what is received has a place more. */
static void pipeline_make_room(gw_pipeline *p, int rows) {
    gw_model_room *r = &p->room;
    int ahead = p->at.stages > 1, n;
    const gw_act *acts = gw_timetable_acts(p->timetable, p->at.stage, &n);
    *r = (gw_model_room){.rows = rows > 0 ? rows : 1, .recompute = p->options->recompute};
    for (int c = 0; c < p->at.chunks; c++) {
        int kept = gw_timetable_kept(p->timetable, p->at.stage, c) + ahead;
        r->slots[c] = gw_timetable_slots(p->timetable, p->at.stage, c) + ahead;
        r->deltas = kept > r->deltas ? kept : r->deltas;
    }
    for (int i = 0; i < n; i++)
        r->keep |= acts[i].kind == GW_ACT_INPUT;
    r->deltas += r->keep && r->recompute; /* of outputs that are not kept: gw_pipeline_at */
}

/* ---- */

/* Where replicas do not divide the batch, one may take more of the last, shorter batch than of a
 * full one (data/sampler.c). */
static int pipeline_most(const gw_pipeline *p) {
    return p->rows.full > p->rows.last ? p->rows.full : p->rows.last;
}

static gw_err pipeline_check_rows(const gw_pipeline *p, MPI_Comm comm) {
    int most = p->rows.full;
    GW_TRY(gw_allreduce(MPI_IN_PLACE, &most, 1, MPI_INT, MPI_MAX, comm));
    return gw_pipeline_check_samples(p->options, most);
}

/* Errors are the same on all ranks, but for a measurement's and a plugin's. */
static gw_err pipeline_divide(gw_pipeline *p, const gw_model_spec *whole, MPI_Comm comm) {
    const gw_parallel *o = p->options;
    int rows = (pipeline_most(p) + o->microbatches - 1) / o->microbatches;
    GW_TRY(gw_timetable_open(&p->timetable, o->timetable, p->at.stages, o->microbatches));
    p->at.chunks = gw_timetable_chunks(p->timetable);
    p->walk.runner.timetable = p->timetable;
    p->walk.runner.stage = p->at.stage;
    GW_TRY(pipeline_cut(p, whole, rows, comm));
    gw_share share = {.tensor = p->mesh->shape.size[GW_DIM_TENSOR],
                      .part = p->mesh->at[GW_DIM_TENSOR],
                      .split = o->columns ? GW_SPLIT_COLUMNS : GW_SPLIT_PAIRS};
    gw_share_stage(&share, p->at.sizes, p->at.stages, p->at.chunks, p->at.stage);
    GW_TRY(gw_shard_of(&p->shard, whole, &share));
    pipeline_make_room(p, rows);
    return GW_OK;
}

gw_err gw_pipeline_divide(gw_pipeline *p, const gw_mesh *mesh, const gw_model_spec *whole,
                          gw_pipeline_rows rows, MPI_Comm comm) {
    p->mesh = mesh;
    p->at.stages = mesh->shape.size[GW_DIM_PIPE];
    p->at.stage = mesh->at[GW_DIM_PIPE];
    p->rows = rows;
    GW_TRY(pipeline_check_rows(p, comm));
    return gw_agree(comm, pipeline_divide(p, whole, comm));
}

const gw_shard *gw_pipeline_shard(const gw_pipeline *p) {
    return &p->shard;
}

const gw_model_room *gw_pipeline_room(const gw_pipeline *p) {
    return &p->room;
}

const gw_mesh *gw_pipeline_mesh(const gw_pipeline *p) {
    return p->mesh;
}

int gw_pipeline_chunks(const gw_pipeline *p) {
    return p->at.chunks;
}

void gw_pipeline_recut(gw_pipeline *p, const char *stages) {
    p->cut = stages;
}

void gw_pipeline_stages(const gw_pipeline *p, char out[GW_PIPELINE_STAGES]) {
    int len = 0;
    for (int i = 0; i < p->at.stages * p->at.chunks; i++)
        len += sprintf(out + len, "%s%d", i ? "," : "", p->at.sizes[i]);
}

json_t *gw_pipeline_json(const gw_pipeline *p) {
    if (!p)
        return json_null();
    json_t *sizes = json_array();
    for (int i = 0; i < p->at.stages * p->at.chunks; i++)
        json_array_append_new(sizes, json_integer(p->at.sizes[i]));
    const int *size = p->mesh->shape.size;
    return gw_json_object("data:i pipe:i tensor:i split:s timetable:s microbatches:i chunks:i "
                          "layers:o recompute:b",
                          size[GW_DIM_DATA], size[GW_DIM_PIPE], size[GW_DIM_TENSOR],
                          p->options->columns ? "columns" : "pairs",
                          gw_timetable_name(p->timetable), p->options->microbatches, p->at.chunks,
                          sizes, p->options->recompute);
}
