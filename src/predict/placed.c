#include "predict/placed.h"

#include "base/mem.h"
#include "base/stats.h"
#include "mpi/wait.h"
#include "prof/clock.h"
#include "step/step.h"

#include <stdlib.h>
#include <string.h>

gw_parallel gw_layout_options(const gw_layout *l) {
    return (gw_parallel){.timetable = l->timetable,
                         .codec = {[GW_HOP_ACTIVATION] = &gw_codec_exact},
                         .shape = l->shape,
                         .microbatches = l->micro,
                         .tensor_chunks = 1,
                         .stages = "flops",
                         .columns = l->split == GW_SPLIT_COLUMNS};
}

static gw_err placed_open_model(gw_placed *p, const gw_place_setup *s) {
    if (p->pipeline)
        GW_TRY(gw_model_open_shard(&p->model, gw_pipeline_shard(p->pipeline),
                                   gw_pipeline_room(p->pipeline)));
    else
        GW_TRY(gw_model_open(&p->model, s->spec, (int)p->rows.n));
    GW_TRY(gw_step_optimizer(&p->optimizer, &p->c, p->model, false));
    return gw_step_check_parts(p->optimizer, p->model, false);
}

gw_load gw_placed_load(const gw_placed *p) {
    return (gw_load){.shard = gw_model_shard(p->model),
                     .batch = (int)p->rows.n,
                     .micro = p->c.parallel.microbatches};
}

static gw_err placed_open_products(gw_placed *p, const gw_place_setup *s) {
    gw_products_setup setup = {.comm = s->comm,
                               .load = gw_placed_load(p),
                               .threads = p->c.run.threads,
                               .polls = s->polls,
                               .adds = p->c.parallel.microbatches > 1};
    return gw_products_open(&p->products, &setup);
}

gw_err gw_placed_open(gw_placed *p, const gw_place_setup *s, const gw_layout *l,
                      const gw_session *session) {
    p->c = *s->c;
    p->c.parallel = gw_layout_options(l);
    p->meshed = true;
    GW_TRY(gw_mesh_open(&p->mesh, &l->shape, s->comm));
    GW_TRY(gw_agree(s->comm, gw_pipeline_new(&p->pipeline, &p->c, session)));
    p->rows = gw_span_part((gw_span){0, s->set->n}, p->mesh.at[GW_DIM_DATA],
                           p->mesh.shape.size[GW_DIM_DATA]);
    gw_pipeline_rows rows = {(int)p->rows.n, (int)p->rows.n};
    if (p->pipeline)
        GW_TRY(gw_pipeline_divide(p->pipeline, &p->mesh, s->spec, rows, s->comm));
    GW_TRY(gw_agree(s->comm, placed_open_model(p, s)));
    return placed_open_products(p, s);
}

void gw_placed_close(gw_placed *p) {
    gw_pipeline_close(p->pipeline);
    gw_pipeline_free(p->pipeline);
    gw_optimizer_close(p->optimizer);
    gw_model_close(p->model);
    if (p->meshed)
        gw_mesh_close(&p->mesh);
    *p = (gw_placed){0};
}

/* ---- timing the layers of a step ---- */

gw_err gw_placed_time(gw_placed *p, const gw_place_setup *s, gw_layer_times *out) {
    uint32_t *idx = NULL;
    gw_layer_job job = {
        .model = p->model,
        .walk = p->pipeline,
        .optimizer = p->optimizer,
        .pass = {.set = s->set, .local = (int)p->rows.n, .global = (int)s->set->n, .step = 1},
        .comm = s->comm,
        .warmup = 1,
        .least = 3,
        .most = 25,
        .enough_s = 0.15};
    gw_err e = gw_alloc(&idx, p->rows.n, sizeof *idx);
    GW_THEN(e, gw_alloc(&job.pass.labels, p->rows.n * (size_t)s->set->targets,
                        sizeof *job.pass.labels));
    for (size_t i = 0; e == GW_OK && i < p->rows.n; i++)
        idx[i] = (uint32_t)(p->rows.off + i);
    job.pass.idx = idx;
    if (p->pipeline)
        gw_pipeline_lend(p->pipeline, p->model);
    e = gw_agree(s->comm, e);
    GW_THEN(e, gw_layers_time(&job, out));
    free(idx);
    free(job.pass.labels);
    return e;
}
