#include "select/layout_passes.h"

#include "base/mem.h"
#include "base/stats.h"
#include "mpi/wait.h"
#include "prof/clock.h"

#include <stdlib.h>
#include <string.h>

enum { WARMUP = 1, LEAST = 3, MOST = 25 };
#define ENOUGH_S 0.15
#define RATE     1e-9f /* parameters stay what they are, nearly */

enum { FORWARD, INPUT, WEIGHTS, LOWEST, KINDS }; /* LOWEST: of the weights, the lowest layer's */

typedef struct passes {
    gw_placed *p;
    gw_pipeline *walk; /* the layout's, or `own` */
    gw_pipeline *own;
    gw_pipeline_job job;
    uint64_t since;
    double s[GW_MAX_LAYERS][KINDS]; /* of the present step, by chunk */
    double run[GW_MAX_LAYERS][KINDS][MOST], update[MOST];
    int n; /* steps so far */
} passes;

/* ---- the executor: computes, and times each stretch ---- */

static bool passes_begin(void *ctx, gw_phase phase) {
    passes *t = ctx;
    (void)phase;
    t->since = gw_clock_ticks();
    return true;
}

static void passes_end(void *ctx, gw_phase phase) {
    passes *t = ctx;
    gw_pipeline_unit u = gw_pipeline_at_work(t->walk);
    double s = gw_clock_since(t->since), *of = t->s[u.act.chunk];
    (void)phase;
    of[u.act.kind == GW_ACT_FORWARD ? FORWARD : u.weights ? WEIGHTS : INPUT] += s;
    if (u.weights && u.lowest)
        of[LOWEST] += s;
}

static void passes_grads(void *ctx, float **grads, bool *add) {
    passes *t = ctx;
    *grads = gw_model_grads(t->p->model);
    *add = false;
}

/* ---- steps ---- */

static int passes_chunks(const passes *t) {
    return gw_model_shard(t->p->model)->share.n_chunks;
}

/* A step without messages, then the update. */
static gw_err passes_step(passes *t, bool keep) {
    gw_pipeline_hooks hooks = {.ctx = t, .begin = passes_grads};
    gw_exec exec = {
        .ctx = t, .begin = passes_begin, .end = passes_end, .alone = true, .aside = true};
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
    for (int c = 0; c < passes_chunks(t); c++)
        for (int k = 0; k < KINDS; k++)
            t->run[c][k][t->n] = t->s[c][k] / p->c.parallel.microbatches;
    t->n++;
    return GW_OK;
}

static gw_err passes_run(passes *t, MPI_Comm comm) {
    double spent = 0, start = MPI_Wtime();
    gw_err e = GW_OK;
    for (int k = -WARMUP; t->n < MOST && (t->n < LEAST || spent < ENOUGH_S); k++) {
        GW_TRY(gw_barrier(comm));
        e = passes_step(t, k >= 0);
        spent = MPI_Wtime() - start;
        GW_TRY(gw_agree(comm, e));
        GW_TRY(gw_allreduce(MPI_IN_PLACE, &spent, 1, MPI_DOUBLE, MPI_MAX, comm));
    }
    return gw_agree(comm, gw_gemm_check());
}

static gw_err passes_open(passes *t, const gw_place_setup *s) {
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

gw_err gw_layout_time_passes(gw_placed *p, const gw_place_setup *s, gw_run_cost *run,
                             double *update_s) {
    passes *t = NULL;
    gw_err e = gw_alloc(&t, 1, sizeof *t);
    if (e == GW_OK) {
        t->p = p;
        e = passes_open(t, s);
    }
    e = gw_agree(s->comm, e);
    GW_THEN(e, passes_run(t, s->comm));
    if (e == GW_OK) {
        *update_s = gw_stats_typical(t->update, t->n);
        for (int c = 0; c < passes_chunks(t); c++) {
            run[c].act = (gw_act_cost){gw_stats_typical(t->run[c][FORWARD], t->n),
                                       gw_stats_typical(t->run[c][INPUT], t->n),
                                       gw_stats_typical(t->run[c][WEIGHTS], t->n)};
            run[c].early_s = gw_stats_typical(t->run[c][LOWEST], t->n);
        }
    }
    if (t) {
        gw_pipeline_close(t->own);
        gw_pipeline_free(t->own);
        free((uint32_t *)t->job.idx);
        free(t->job.labels);
    }
    free(t);
    return e;
}
