#include "select/placed.h"

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

enum { WARMUP = 1, LEAST = 3, MOST = 25 };
#define ENOUGH_S 0.15
#define RATE     1e-9f /* parameters stay what they are, nearly */

enum { FORWARD, INPUT, WEIGHTS, KINDS };

typedef struct passes {
    gw_placed *p;
    gw_pipeline *walk; /* the layout's, or `own` */
    gw_pipeline *own;
    gw_pipeline_job job;
    uint64_t since;
    double s[GW_MAX_LAYERS][KINDS]; /* of the present step */
    double run[GW_MAX_LAYERS][KINDS][MOST], update[MOST];
    int n; /* steps so far */
} passes;

/* The executor computes, and times each stretch. */

static bool placed_begin(void *ctx, gw_phase phase) {
    passes *t = ctx;
    (void)phase;
    t->since = gw_clock_ticks();
    return true;
}

static void placed_end(void *ctx, gw_phase phase) {
    passes *t = ctx;
    gw_pipeline_unit u = gw_pipeline_at_work(t->walk);
    int kind = phase != GW_PHASE_BACKWARD ? FORWARD : u.weights ? WEIGHTS : INPUT;
    if (phase != GW_PHASE_DATA)
        t->s[u.layer][kind] += gw_clock_since(t->since);
}

static void placed_grads(void *ctx, float **grads, bool *add) {
    passes *t = ctx;
    *grads = gw_model_grads(t->p->model);
    *add = false;
}

/* A step without messages, then the update. */
static gw_err placed_step(passes *t, bool keep) {
    gw_pipeline_hooks hooks = {.ctx = t, .begin = placed_grads};
    gw_exec exec = {
        .ctx = t, .begin = placed_begin, .end = placed_end, .alone = true, .aside = true};
    gw_placed *p = t->p;
    double loss;
    memset(t->s, 0, sizeof t->s);
    GW_TRY(gw_pipeline_step_by(t->walk, &t->job, &exec, &hooks, &loss));
    uint64_t start = gw_clock_ticks();
    gw_span all = {0, gw_model_size(p->model)};
    gw_optimizer_update(p->optimizer, gw_model_params(p->model), gw_model_grads(p->model), all,
                        RATE, 1);
    if (!keep)
        return GW_OK;
    t->update[t->n] = gw_clock_since(start);
    for (int l = 0; l < gw_model_layers(p->model); l++)
        for (int k = 0; k < KINDS; k++)
            t->run[l][k][t->n] = t->s[l][k];
    t->n++;
    return GW_OK;
}

static gw_err placed_run(passes *t, MPI_Comm comm) {
    double spent = 0, start = MPI_Wtime();
    gw_err e = GW_OK;
    for (int k = -WARMUP; t->n < MOST && (t->n < LEAST || spent < ENOUGH_S); k++) {
        GW_TRY(gw_barrier(comm));
        e = placed_step(t, k >= 0);
        spent = MPI_Wtime() - start;
        GW_TRY(gw_agree(comm, e));
        GW_TRY(gw_allreduce(MPI_IN_PLACE, &spent, 1, MPI_DOUBLE, MPI_MAX, comm));
    }
    return gw_agree(comm, gw_gemm_check());
}

static gw_err placed_open(passes *t, const gw_place_setup *s) {
    gw_placed *p = t->p;
    uint32_t *idx;
    t->job = (gw_pipeline_job){
        .set = s->set, .local = (int)p->rows.n, .global = (int)s->set->n, .step = 1};
    GW_TRY(gw_alloc(&idx, p->rows.n, sizeof *idx));
    t->job.idx = idx;
    GW_TRY(gw_alloc(&t->job.labels, p->rows.n * (size_t)s->set->targets, sizeof *t->job.labels));
    for (size_t i = 0; i < p->rows.n; i++)
        idx[i] = (uint32_t)(p->rows.off + i);
    if (!p->pipeline)
        GW_TRY(gw_pipeline_open_whole(&t->own, p->model, NULL));
    else
        gw_pipeline_lend(p->pipeline, p->model);
    t->walk = p->pipeline ? p->pipeline : t->own;
    return GW_OK;
}

/* The slowest rank's of each layer; tensor ranks have parts of the same ones. */
static gw_err placed_share(passes *t, MPI_Comm comm, gw_share_times *out) {
    const gw_shard *held = gw_model_shard(t->p->model);
    *out = (gw_share_times){{0}};
    for (int l = 0; l < held->n_layers; l++) {
        int number = held->layers[l].number;
        out->forward_s[number] = gw_stats_typical(t->run[l][FORWARD], t->n);
        out->input_s[number] = gw_stats_typical(t->run[l][INPUT], t->n);
        out->weights_s[number] = gw_stats_typical(t->run[l][WEIGHTS], t->n);
    }
    out->update_s = gw_stats_typical(t->update, t->n) / (double)gw_model_size(t->p->model);
    return gw_allreduce(MPI_IN_PLACE, out, sizeof *out / sizeof(double), MPI_DOUBLE, MPI_MAX, comm);
}

gw_err gw_placed_time(gw_placed *p, const gw_place_setup *s, gw_share_times *out) {
    passes *t = NULL;
    gw_err e = gw_alloc(&t, 1, sizeof *t);
    if (e == GW_OK) {
        t->p = p;
        e = placed_open(t, s);
    }
    e = gw_agree(s->comm, e);
    GW_THEN(e, placed_run(t, s->comm));
    GW_THEN(e, placed_share(t, s->comm, out));
    if (t) {
        gw_pipeline_close(t->own);
        gw_pipeline_free(t->own);
        free((uint32_t *)t->job.idx);
        free(t->job.labels);
    }
    free(t);
    return e;
}
