#include "nn/model.h"

#include "base/mem.h"
#include "nn/model_parts.h"

#include <stdlib.h>

/* Where each layer and tensor lies in the arena. */
static void model_lay_out(gw_model *m) {
    for (int l = 0; l < m->shard.n_layers; l++) {
        const gw_shard_layer *held = gw_model_held(m, l);
        gw_unit u = gw_shard_unit(&m->shard, held);
        m->spans[l] = held->layer.span;
        size_t off = held->layer.span.off, n;
        for (int i = 0; i < u.n_tensors; i++, off += n) {
            gw_region r = gw_unit_region(&u, i, held->part, held->parts);
            int rows = (int)r.rows.n, cols = (int)r.cols.n;
            n = (size_t)rows * (size_t)cols;
            if (n > 0)
                m->tensors[m->n_tensors++] =
                    (gw_tensor){{off, n}, held->number, rows, cols, u.tensor[i].tracks};
        }
    }
}

static gw_err model_allocate(gw_model *m) {
    size_t widest = 0,
           targets = (size_t)gw_model_spec_targets(&m->shard.spec) * (size_t)m->room.rows;
    for (int l = 0; l < m->shard.n_layers; l++) {
        const gw_shard_layer *held = gw_model_held(m, l);
        if ((held->layer.partial || held->cut == GW_CUT_BOTH) && held->out.n > widest)
            widest = held->out.n;
    }
    GW_TRY(gw_alloc(&m->params, m->shard.size, sizeof(float)));
    GW_TRY(gw_alloc(&m->grads, m->shard.size, sizeof(float)));
    GW_TRY(gw_alloc(&m->work, m->work_size, sizeof(float)));
    GW_TRY(gw_alloc(&m->zeros, widest, sizeof(float)));
    GW_TRY(gw_alloc(&m->losses, targets, sizeof *m->losses));
    return gw_alloc(&m->best, targets, sizeof *m->best);
}

static gw_err model_build(gw_model **out, const gw_shard *shard, const gw_model_room *room) {
    bool sound = room->rows >= 0 && room->deltas >= 1;
    for (int c = 0; c < shard->share.n_chunks; c++)
        sound = sound && room->slots[c] >= 1;
    if (!sound)
        return gw_fail(GW_ERR_INTERNAL, "a model for %d rows, %d deltas", room->rows, room->deltas);
    gw_model *m = NULL;
    GW_TRY(gw_alloc(&m, 1, sizeof *m));
    m->shard = *shard;
    m->room = *room;
    model_lay_out(m);
    gw_model_lay_out_work(m);
    gw_err e = model_allocate(m);
    GW_OPENED(e, out, m, gw_model_close);
}

gw_err gw_model_build(gw_model **out, const gw_model_spec *spec, int max_batch) {
    gw_share share = gw_share_whole(spec);
    gw_model_room room = {.rows = max_batch, .slots = {1}, .deltas = 1};
    gw_shard shard;
    GW_TRY(gw_shard_of(&shard, spec, &share));
    return model_build(out, &shard, &room);
}

static void model_initialise(gw_model *m) {
    const gw_model_spec *spec = &m->shard.spec;
    for (int l = 0; l < m->shard.n_layers; l++)
        gw_model_ops_of(spec)->initialise(spec, gw_model_held(m, l), m->params + m->spans[l].off);
}

gw_err gw_model_open(gw_model **out, const gw_model_spec *spec, int max_batch) {
    GW_TRY(gw_model_build(out, spec, max_batch));
    model_initialise(*out);
    return GW_OK;
}

gw_err gw_model_open_shard(gw_model **out, const gw_shard *shard, const gw_model_room *room) {
    GW_TRY(model_build(out, shard, room));
    model_initialise(*out);
    return GW_OK;
}

static void model_free_arenas(gw_model *m) {
    if (m->lent)
        return;
    free(m->params);
    free(m->grads);
}

void gw_model_close(gw_model *m) {
    if (!m)
        return;
    model_free_arenas(m);
    free(m->work);
    free(m->zeros);
    free(m->losses);
    free(m->best);
    free(m);
}

const gw_model_spec *gw_model_get_spec(const gw_model *m) {
    return &m->shard.spec;
}

const gw_shard *gw_model_shard(const gw_model *m) {
    return &m->shard;
}

int gw_model_layers(const gw_model *m) {
    return m->shard.n_layers;
}

gw_span gw_model_span(const gw_model *m, int l) {
    return m->spans[l];
}

const gw_span *gw_model_spans(const gw_model *m) {
    return m->spans;
}

const gw_tensor *gw_model_tensors(const gw_model *m) {
    return m->tensors;
}

int gw_model_tensor_count(const gw_model *m) {
    return m->n_tensors;
}

size_t gw_model_size(const gw_model *m) {
    return m->shard.size;
}

void gw_model_lend(gw_model *m, float *params, float *grads) {
    model_free_arenas(m);
    m->params = params;
    m->grads = grads;
    m->lent = true;
}

float *gw_model_params(gw_model *m) {
    return m->params;
}

float *gw_model_grads(gw_model *m) {
    return m->grads;
}

size_t gw_model_work_size(const gw_model *m) {
    return m->work_size;
}

float *gw_model_work(gw_model *m) {
    return m->work;
}

const gw_label *gw_model_predictions(const gw_model *m) {
    return m->best;
}
