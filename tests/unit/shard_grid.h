/* One process plays all ranks of a mesh, pipe x tensor: it walks a step over their shards and does
 * what would be messages by copies. */
#ifndef GW_TEST_SHARD_GRID_H
#define GW_TEST_SHARD_GRID_H

#include "nn/model.h"

#include "base/mem.h"
#include "base/rng.h"

#include "unit.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_STAGES = 6, MAX_TENSOR = 4, MAX_MICRO = 4, MAX_PARTS = 12 };

/* A mesh and its way through a step. */
typedef struct grid_plan {
    int stages, chunks, tensor;
    gw_tensor_split split;
    int micro, rows[MAX_MICRO]; /* microbatches, and the rows of each */
    int runs;                   /* products are cut into so many runs of rows */
    bool recompute, keep;
} grid_plan;

typedef struct grid {
    gw_model_spec spec;
    grid_plan plan;
    gw_model *model[MAX_STAGES][MAX_TENSOR];
} grid;

static void grid_poison(float *x, size_t n) {
    for (size_t i = 0; i < n; i++)
        x[i] = NAN;
}

/* Layers as evenly as they go over all chunks. */
static gw_shard grid_shard(const gw_model_spec *spec, const grid_plan *p, int stage, int part) {
    int parts = p->stages * p->chunks, sizes[MAX_PARTS];
    gw_share share = {.tensor = p->tensor, .part = part, .split = p->split};
    gw_shard shard;
    for (int i = 0; i < parts; i++)
        sizes[i] = (int)gw_span_part((gw_span){0, (size_t)gw_model_spec_layers(spec)}, i, parts).n;
    gw_share_stage(&share, sizes, p->stages, p->chunks, stage);
    assert_int_equal(gw_shard_of(&shard, spec, &share), GW_OK);
    return shard;
}

/* Every float of the work and gradient arenas is NaN until a step writes it. */
static void grid_open(grid *g, const gw_model_spec *spec, const grid_plan *plan) {
    *g = (grid){.spec = *spec, .plan = *plan};
    gw_model_room room = {
        .deltas = plan->keep ? plan->micro : 2, .keep = plan->keep, .recompute = plan->recompute};
    for (int i = 0; i < plan->micro; i++)
        if (plan->rows[i] > room.rows)
            room.rows = plan->rows[i];
    for (int c = 0; c < plan->chunks; c++)
        room.slots[c] = plan->micro;
    for (int s = 0; s < plan->stages; s++)
        for (int t = 0; t < plan->tensor; t++) {
            gw_shard shard = grid_shard(spec, plan, s, t);
            gw_model *m = NULL;
            assert_int_equal(gw_model_open_shard(&m, &shard, &room), GW_OK);
            grid_poison(gw_model_work(m), gw_model_work_size(m));
            grid_poison(gw_model_grads(m), gw_model_size(m));
            g->model[s][t] = m;
        }
}

static void grid_close(grid *g) {
    for (int s = 0; s < g->plan.stages; s++)
        for (int t = 0; t < g->plan.tensor; t++)
            gw_model_close(g->model[s][t]);
}

/* Slots and places in orders of their own, that no code may rely on. */
static gw_micro grid_micro(const grid *g, int j) {
    return (gw_micro){.slot = g->plan.micro - 1 - j,
                      .delta = g->plan.keep ? (j + 1) % g->plan.micro : j % 2,
                      .n = g->plan.rows[j]};
}

/* ---- messages ---- */

static void grid_sum(gw_model *const m[], int ranks, gw_span over) {
    for (size_t i = over.off; i < gw_span_end(over); i++) {
        float sum = gw_model_work(m[0])[i];
        for (int t = 1; t < ranks; t++)
            sum += gw_model_work(m[t])[i];
        for (int t = 0; t < ranks; t++)
            gw_model_work(m[t])[i] = sum;
    }
}

/* What the others' parts were, nobody may read before they are there, or after they are summed. */
static void grid_join(gw_model *const m[], int ranks, int l, gw_moment moment, gw_micro at) {
    gw_join join = gw_model_join(m[0], l, moment, at);
    for (int t = 1; t < ranks; t++) {
        gw_join other = gw_model_join(m[t], l, moment, at);
        assert_true(other.kind == join.kind && other.over.n == join.over.n &&
                    other.over.off == join.over.off);
    }
    if (join.kind == GW_JOIN_NONE)
        return;
    assert_true(ranks > 1);
    if (join.kind != GW_JOIN_ALLGATHER)
        grid_sum(m, ranks, join.over);
    for (int t = 0; t < ranks && join.kind != GW_JOIN_ALLREDUCE; t++) {
        gw_span part = gw_span_part(join.over, t, ranks);
        for (int other = 0; other < ranks; other++)
            if (other != t && join.kind == GW_JOIN_ALLGATHER)
                memcpy(gw_model_work(m[other]) + part.off, gw_model_work(m[t]) + part.off,
                       part.n * sizeof(float));
            else if (other != t)
                grid_poison(gw_model_work(m[other]) + part.off, part.n);
    }
}

/* What a rank gives is all there, with what fills its blocks up. */
static void grid_pack(gw_model *m, int ranks, int t, int l, gw_moment moment, gw_micro at) {
    gw_model_pack(m, l, moment, at);
    gw_join join = gw_model_join(m, l, moment, at);
    gw_span given = join.kind == GW_JOIN_ALLGATHER ? gw_span_part(join.over, t, ranks) : join.over;
    for (size_t i = given.off; i < gw_span_end(given); i++)
        assert_true(isfinite(gw_model_work(m)[i]));
}

static void grid_exchange(gw_model *const m[], int ranks, int l, gw_moment moment, gw_micro at) {
    for (int t = 0; t < ranks; t++)
        grid_pack(m[t], ranks, t, l, moment, at);
    grid_join(m, ranks, l, moment, at);
    for (int t = 0; t < ranks; t++)
        gw_model_unpack(m[t], l, moment, at);
}

/* A hop between the ranks of equal tensor coordinate; both ends agree on its size. */
static void grid_hop(const grid *g, int from, gw_edge out, int to, gw_edge in, gw_micro at) {
    int p = g->plan.stages;
    for (int t = 0; t < g->plan.tensor; t++) {
        gw_model *a = g->model[from % p][t], *b = g->model[to % p][t];
        gw_span source = gw_model_edge(a, from / p, out, at);
        gw_span target = gw_model_edge(b, to / p, in, at);
        assert_int_equal(source.n, target.n);
        memcpy(gw_model_work(b) + target.off, gw_model_work(a) + source.off,
               source.n * sizeof(float));
    }
}

/* ---- the walk ---- */

/* Run `i` of the runs of a microbatch's rows. */
static gw_micro grid_run(const grid *g, gw_micro at, int i) {
    gw_span rows = gw_span_part((gw_span){0, (size_t)at.n}, i, g->plan.runs);
    at.first = (int)rows.off;
    at.n = (int)rows.n;
    return at;
}

static void grid_forward(const grid *g, int chunk, gw_micro at) {
    gw_model *const *m = g->model[chunk % g->plan.stages];
    int ranks = g->plan.tensor;
    for (int l = 0; l < gw_model_layers(m[0]); l++) {
        if (gw_model_shard(m[0])->layers[l].chunk != chunk / g->plan.stages)
            continue;
        grid_exchange(m, ranks, l, GW_MOMENT_PARAMETERS, at);
        grid_exchange(m, ranks, l, GW_MOMENT_INPUT, at);
        for (int i = 0; i < g->plan.runs; i++) {
            for (int t = 0; t < ranks; t++)
                gw_model_product(m[t], l, grid_run(g, at, i));
            grid_join(m, ranks, l, GW_MOMENT_PRODUCT, grid_run(g, at, i));
            for (int t = 0; t < ranks; t++)
                gw_model_transfer(m[t], l, grid_run(g, at, i));
        }
    }
}

static void grid_weights(const grid *g, int chunk, int l, gw_micro at, bool add) {
    gw_model *const *m = g->model[chunk % g->plan.stages];
    for (int t = 0; t < g->plan.tensor; t++)
        gw_model_weights(m[t], l, at, gw_model_grads(m[t]), add);
}

static void grid_backward(const grid *g, int chunk, gw_micro at, bool add) {
    gw_model *const *m = g->model[chunk % g->plan.stages];
    int ranks = g->plan.tensor;
    for (int l = gw_model_layers(m[0]) - 1; l >= 0; l--) {
        if (gw_model_shard(m[0])->layers[l].chunk != chunk / g->plan.stages)
            continue;
        for (int t = 0; t < ranks; t++)
            gw_model_enter(m[t], l, at, gw_model_grads(m[t]), add);
        for (int i = 0; i < g->plan.runs; i++) {
            for (int t = 0; t < ranks; t++)
                gw_model_descend_rows(m[t], l, grid_run(g, at, i));
            grid_exchange(m, ranks, l, GW_MOMENT_DELTA, grid_run(g, at, i));
            for (int t = 0; t < ranks; t++)
                gw_model_arrive(m[t], l, grid_run(g, at, i), gw_model_grads(m[t]));
        }
        if (!g->plan.keep)
            grid_weights(g, chunk, l, at, add);
    }
}

/* Sum of the losses; the tensor ranks must agree on all that it says. */
static double grid_loss(const grid *g, const gw_label *labels, gw_micro at, float scale,
                        int *correct, gw_label *predictions) {
    gw_model *const *m = g->model[g->plan.stages - 1];
    int ranks = g->plan.tensor, hits[MAX_TENSOR];
    size_t targets = (size_t)(at.n * gw_model_spec_targets(&g->spec));
    double loss[MAX_TENSOR];
    for (int t = 0; t < ranks; t++)
        gw_model_loss_tell(m[t], labels, at);
    grid_join(m, ranks, gw_model_layers(m[0]) - 1, GW_MOMENT_LOSS, at);
    for (int t = 0; t < ranks; t++) {
        loss[t] = gw_model_loss_join(m[t], labels, at, scale, &hits[t]);
        assert_memory_equal(&loss[t], &loss[0], sizeof *loss);
        assert_int_equal(hits[t], hits[0]);
        assert_memory_equal(gw_model_predictions(m[t]), gw_model_predictions(m[0]),
                            targets * sizeof(gw_label));
    }
    memcpy(predictions, gw_model_predictions(m[0]), targets * sizeof(gw_label));
    *correct += hits[0];
    return loss[0];
}

static void grid_put_data(const grid *g, const float *x, gw_micro at) {
    for (int t = 0; t < g->plan.tensor; t++) {
        gw_span input = gw_model_edge(g->model[0][t], 0, GW_EDGE_INPUT, at);
        assert_int_equal(input.n, at.n * g->spec.inputs);
        memcpy(gw_model_work(g->model[0][t]) + input.off, x, input.n * sizeof *x);
    }
}

/* All forward passes, then the backward passes in ascending order, then, where deltas are kept, the
 * weights. Of x (rows, inputs) and labels; predictions (rows). */
static double grid_step(const grid *g, const float *x, const gw_label *labels, float scale,
                        int *correct, gw_label *predictions) {
    const grid_plan *p = &g->plan;
    int parts = p->stages * p->chunks, row = 0, targets = gw_model_spec_targets(&g->spec);
    double loss = 0;
    *correct = 0;
    for (int j = 0; j < p->micro; row += p->rows[j++]) {
        grid_put_data(g, x + row * g->spec.inputs, grid_micro(g, j));
        for (int c = 0; c < parts; c++) {
            grid_forward(g, c, grid_micro(g, j));
            if (c + 1 < parts)
                grid_hop(g, c, GW_EDGE_OUTPUT, c + 1, GW_EDGE_INPUT, grid_micro(g, j));
        }
    }
    row = 0;
    for (int j = 0; j < p->micro; row += p->rows[j++])
        for (int c = parts - 1; c >= 0; c--) {
            if (p->recompute)
                grid_forward(g, c, grid_micro(g, j));
            if (c + 1 == parts)
                loss += grid_loss(g, labels + row * targets, grid_micro(g, j), scale, correct,
                                  predictions + row * targets);
            grid_backward(g, c, grid_micro(g, j), j > 0);
            if (c > 0)
                grid_hop(g, c, GW_EDGE_INPUT_DELTA, c - 1, GW_EDGE_OUTPUT_DELTA, grid_micro(g, j));
        }
    for (int j = 0; j < p->micro && p->keep; j++)
        for (int c = 0; c < parts; c++)
            for (int l = 0; l < gw_model_layers(g->model[c % p->stages][0]); l++)
                if (gw_model_shard(g->model[c % p->stages][0])->layers[l].chunk == c / p->stages)
                    grid_weights(g, c, l, grid_micro(g, j), j > 0);
    return loss;
}

/* whole = the ranks' arenas, each float from its owner; NaN where nobody owns it. */
static void grid_collect(const grid *g, float *(*arena)(gw_model *m), float *whole) {
    grid_poison(whole, gw_model_shard(g->model[0][0])->whole);
    for (int s = 0; s < g->plan.stages; s++)
        for (int t = 0; t < g->plan.tensor; t++)
            gw_shard_scatter(gw_model_shard(g->model[s][t]), arena(g->model[s][t]), whole);
}

static void grid_deal(const grid *g, const float *whole) {
    for (int s = 0; s < g->plan.stages; s++)
        for (int t = 0; t < g->plan.tensor; t++)
            gw_shard_gather(gw_model_shard(g->model[s][t]), whole, gw_model_params(g->model[s][t]));
}

#endif
