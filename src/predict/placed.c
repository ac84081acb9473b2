#include "predict/placed.h"

#include "base/mem.h"
#include "base/rng.h"
#include "step/step.h"

#include <stdlib.h>

/* ---- the batch ---- */

gw_err gw_batch_open(gw_dataset *out, const gw_model_spec *spec, gw_span rows, uint64_t seed) {
    size_t inputs = (size_t)spec->inputs, targets = (size_t)gw_model_spec_targets(spec);
    uint64_t classes = (uint64_t)spec->classes, values = spec->context ? classes : UINT8_MAX + 1;
    uint64_t pixel_key = gw_rng_key(seed, 1), label_key = gw_rng_key(seed, 2);
    uint8_t *images = NULL;
    gw_label *labels = NULL;
    gw_err e = gw_alloc(&images, rows.n * inputs, sizeof *images);
    GW_THEN(e, gw_alloc(&labels, rows.n * targets, sizeof *labels));
    *out = (gw_dataset){.n = (uint32_t)rows.n,
                        .n_global = (uint32_t)rows.n,
                        .first = (uint32_t)rows.off,
                        .stored = (uint32_t)rows.n,
                        .rows = 1,
                        .cols = spec->inputs,
                        .to_rows = 1,
                        .to_cols = spec->inputs,
                        .images = images,
                        .labels = labels,
                        .channels = 1,
                        .targets = (int)targets,
                        .tokens = spec->context > 0};
    for (size_t i = 0; e == GW_OK && i < rows.n * inputs; i++)
        images[i] = (uint8_t)(gw_rng_u64(pixel_key, rows.off * inputs + i) % values);
    for (size_t i = 0; e == GW_OK && i < rows.n * targets; i++)
        labels[i] = (gw_label)(gw_rng_u64(label_key, rows.off * targets + i) % classes);
    return e;
}

void gw_batch_close(gw_dataset *s) {
    free((void *)s->images);
    free((void *)s->labels);
    *s = (gw_dataset){0};
}

/* ---- the model ---- */

static gw_err placed_open_model(gw_placed *p, const gw_place_setup *s, const gw_session *session) {
    size_t n = p->rows.n;
    if (p->pipeline)
        GW_TRY(gw_model_open_shard(&p->model, gw_pipeline_shard(p->pipeline),
                                   gw_pipeline_room(p->pipeline)));
    else
        GW_TRY(gw_model_open(&p->model, &s->spec, n > 0 ? (int)n : 1));
    GW_TRY(gw_step_optimizer(&p->optimizer, &p->c, p->model, session->residuals.corrects));
    GW_TRY(gw_step_check_parts(p->optimizer, p->model, false));
    GW_TRY(gw_alloc(&p->labels, n * (size_t)gw_model_spec_targets(&s->spec), sizeof *p->labels));
    GW_TRY(gw_alloc(&p->idx, n, sizeof *p->idx));
    for (size_t i = 0; i < n; i++)
        p->idx[i] = (uint32_t)(p->rows.off + i);
    if (s->set)
        return GW_OK;
    gw_micro all = {.n = (int)n};
    gw_span to = gw_model_edge(p->model, 0, GW_EDGE_INPUT, all);
    gw_dataset set;
    gw_err e = gw_batch_open(&set, &s->spec, p->rows, s->c->run.seed);
    if (e == GW_OK)
        gw_dataset_gather(&set, p->idx, all.n, gw_model_work(p->model) + to.off, p->labels);
    gw_batch_close(&set);
    return e;
}

gw_err gw_placed_open(gw_placed *p, const gw_place_setup *s, const gw_parallel *o,
                      const gw_session *session) {
    p->comm = s->comm;
    p->c = *s->c;
    p->set = s->set;
    int rank, ranks, servers = session->strategy.plan.servers;
    GW_TRY(gw_comm_place(s->comm, &rank, &ranks));
    GW_TRY(gw_step_batch(s->c, ranks, &p->global));
    gw_span batch = {0, (size_t)p->global};
    if (o) {
        p->c.parallel = *o;
        p->meshed = true;
        GW_TRY(gw_mesh_open(&p->mesh, &o->shape, s->comm));
        GW_TRY(gw_agree(s->comm, gw_pipeline_new(&p->pipeline, &p->c, session)));
        p->rows = gw_span_part(batch, p->mesh.at[GW_DIM_DATA], p->mesh.shape.size[GW_DIM_DATA]);
    } else if (rank >= servers) {
        p->rows = gw_span_part(batch, rank - servers, ranks - servers);
    }
    gw_pipeline_rows rows = {(int)p->rows.n, (int)p->rows.n};
    if (p->pipeline)
        GW_TRY(gw_pipeline_divide(p->pipeline, &p->mesh, &s->spec, rows, s->comm));
    return gw_agree(s->comm, placed_open_model(p, s, session));
}

void gw_placed_close(gw_placed *p) {
    gw_pipeline_close(p->pipeline);
    gw_pipeline_free(p->pipeline);
    gw_optimizer_close(p->optimizer);
    gw_model_close(p->model);
    if (p->meshed)
        gw_mesh_close(&p->mesh);
    free(p->idx);
    free(p->labels);
    *p = (gw_placed){0};
}

gw_layer_job gw_placed_layers(const gw_placed *p) {
    return (gw_layer_job){.model = p->model,
                          .walk = p->pipeline,
                          .optimizer = p->optimizer,
                          .pass = {.set = p->set,
                                   .idx = p->idx,
                                   .labels = p->labels,
                                   .local = (int)p->rows.n,
                                   .global = p->global,
                                   .step = 1},
                          .comm = p->comm};
}
