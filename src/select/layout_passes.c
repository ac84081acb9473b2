#include "select/layout_passes.h"

#include "base/mem.h"
#include "base/stats.h"
#include "mpi/wait.h"
#include "prof/clock.h"

#include <stdlib.h>
#include <string.h>

enum {
    WARMUP = 1,
    LEAST = 3,
    MOST = 25,
    MICROS = 4 /* of a step, at most: more would be like these */
};
#define ENOUGH_S 0.15
#define RATE     1e-9f /* parameters stay what they are, nearly */

enum { FORWARD, INPUT, WEIGHTS, LOWEST, KINDS }; /* LOWEST: of the weights, the lowest layer's */

typedef struct passes {
    gw_placed *p;
    gw_model *model;
    const gw_model_room *room; /* NULL: of whole layers, and all rows at once */
    const gw_dataset *set;
    uint32_t *idx; /* of this replica's samples */
    uint8_t *labels;
    float *grads;
    double run[GW_MAX_LAYERS][KINDS][MOST], update[MOST];
    int n; /* steps so far */
} passes;

static int passes_chunks(const passes *t) {
    return gw_model_shard(t->model)->share.n_chunks;
}

/* Held layers of a chunk: [*first, end). */
static int passes_layers(const passes *t, int chunk, int *first) {
    const gw_shard *s = gw_model_shard(t->model);
    int end = 0;
    while (s->layers[end].chunk < chunk)
        end++;
    *first = end;
    while (end < s->n_layers && s->layers[end].chunk == chunk)
        end++;
    return end;
}

static gw_micro passes_at(const passes *t, int chunk, int micro) {
    gw_load load = gw_placed_load(t->p);
    gw_micro at = {.n = gw_load_rows(&load)};
    if (t->room) {
        at.slot = micro % t->room->slots[chunk];
        at.delta = micro % t->room->deltas;
    }
    return at;
}

static void passes_forward(passes *t, int chunk, gw_micro at) {
    gw_model *m = t->model;
    const gw_shard *s = gw_model_shard(m);
    int l, end = passes_layers(t, chunk, &l);
    if (s->layers[l].number == 0)
        gw_dataset_gather(t->set, t->idx, at.n,
                          gw_model_work(m) + gw_model_edge(m, chunk, GW_EDGE_INPUT, at).off, NULL);
    for (; l < end; l++) {
        gw_model_pack(m, l, GW_MOMENT_INPUT, at);
        gw_model_unpack(m, l, GW_MOMENT_INPUT, at);
        gw_model_product(m, l, at);
        gw_model_transfer(m, l, at);
    }
    if (s->layers[end - 1].number + 1 < gw_model_spec_layers(&s->spec))
        return;
    gw_model_loss_tell(m, t->labels, at);
    gw_model_loss_join(m, t->labels, at, 1.0f / (float)t->set->n, NULL);
}

static void passes_backward(passes *t, int chunk, gw_micro at, bool add, double *s) {
    gw_model *m = t->model;
    int first, l = passes_layers(t, chunk, &first);
    uint64_t start = gw_clock_ticks();
    double weights = 0, lowest = 0;
    while (--l >= first) {
        gw_model_enter(m, l, at, t->grads, add);
        gw_model_descend_rows(m, l, at);
        gw_model_pack(m, l, GW_MOMENT_DELTA, at);
        gw_model_unpack(m, l, GW_MOMENT_DELTA, at);
        uint64_t between = gw_clock_ticks();
        gw_model_weights(m, l, at, t->grads, add);
        weights += lowest = gw_clock_since(between);
    }
    s[LOWEST] += lowest;
    s[WEIGHTS] += weights;
    s[INPUT] += gw_clock_since(start) - weights;
}

/* Some microbatches, each forward and backward, then the update. */
static void passes_step(passes *t, bool keep) {
    double s[GW_MAX_LAYERS][KINDS] = {{0}};
    int micro = t->p->c.parallel.microbatches, n = micro < MICROS ? micro : MICROS;
    int chunks = passes_chunks(t);
    for (int j = 0; j < n; j++) {
        for (int c = 0; c < chunks; c++) {
            uint64_t start = gw_clock_ticks();
            passes_forward(t, c, passes_at(t, c, j));
            s[c][FORWARD] += gw_clock_since(start);
        }
        for (int c = chunks - 1; c >= 0; c--)
            passes_backward(t, c, passes_at(t, c, j), j > 0, s[c]);
    }
    uint64_t start = gw_clock_ticks();
    gw_span all = {0, gw_model_size(t->model)};
    gw_optimizer_update(t->p->optimizer, gw_model_params(t->model), t->grads, all, RATE, 1);
    if (!keep)
        return;
    t->update[t->n] = gw_clock_since(start);
    for (int c = 0; c < chunks; c++)
        for (int k = 0; k < KINDS; k++)
            t->run[c][k][t->n] = s[c][k] / n;
    t->n++;
}

static gw_err passes_run(passes *t, MPI_Comm comm) {
    double spent = 0, start = MPI_Wtime();
    for (int k = -WARMUP; t->n < MOST && (t->n < LEAST || spent < ENOUGH_S); k++) {
        GW_TRY(gw_barrier(comm));
        passes_step(t, k >= 0);
        spent = MPI_Wtime() - start;
        GW_TRY(gw_allreduce(MPI_IN_PLACE, &spent, 1, MPI_DOUBLE, MPI_MAX, comm));
    }
    return gw_agree(comm, gw_gemm_check());
}

static gw_err passes_open(passes *t, const gw_place_setup *s) {
    gw_placed *p = t->p;
    t->model = p->model;
    t->room = p->pipeline ? gw_pipeline_room(p->pipeline) : NULL;
    t->set = s->set;
    t->grads = gw_model_grads(p->model);
    GW_TRY(gw_alloc(&t->idx, p->rows.n, sizeof *t->idx));
    GW_TRY(gw_alloc(&t->labels, p->rows.n, 1));
    for (size_t i = 0; i < p->rows.n; i++)
        t->idx[i] = (uint32_t)(p->rows.off + i);
    gw_dataset_labels(t->set, t->idx, (int)p->rows.n, t->labels);
    return GW_OK;
}

gw_err gw_layout_time_passes(gw_placed *p, const gw_place_setup *s, gw_layout_run *run,
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
        free(t->idx);
        free(t->labels);
    }
    free(t);
    return e;
}
