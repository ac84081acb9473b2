#include "nn/model.h"

#include "base/mem.h"
#include "base/probe.h"
#include "base/rng.h"
#include "nn/loss.h"
#include "nn/model_parts.h"

#include <math.h>
#include <stdlib.h>

#define INIT_STREAM 0x696e6974u /* the seed's stream for initial weights */

static void model_lay_out(gw_model *m) {
    m->n_layers = gw_model_spec_layers(&m->spec);
    for (int l = 0; l < m->n_layers; l++) {
        gw_layer *layer = &m->layers[l];
        layer->in = gw_model_spec_width(&m->spec, l - 1);
        layer->out = gw_model_spec_width(&m->spec, l);
        layer->transfer =
            l + 1 < m->n_layers ? (gw_transfer)m->spec.activation : GW_TRANSFER_LINEAR;
        layer->span = (gw_span){m->size, ((size_t)layer->in + 1) * (size_t)layer->out};
        layer->own = (gw_span){0, (size_t)layer->out};
        size_t weights = layer->span.n - (size_t)layer->out;
        m->spans[l] = layer->span;
        m->tensors[2 * l] = (gw_tensor){{m->size, weights}, l, layer->in, layer->out};
        m->tensors[2 * l + 1] =
            (gw_tensor){{m->size + weights, (size_t)layer->out}, l, 1, layer->out};
        m->size += layer->span.n;
    }
}

static gw_err model_allocate(gw_model *m) {
    size_t rows = (size_t)m->max_batch, widest[2] = {0, 0};
    GW_TRY(gw_alloc(&m->params, m->size, sizeof(float)));
    GW_TRY(gw_alloc(&m->grads, m->size, sizeof(float)));
    GW_TRY(gw_alloc(&m->input, rows * (size_t)m->spec.inputs, sizeof(float)));
    for (int l = 0; l < m->n_layers; l++) {
        size_t out = (size_t)m->layers[l].out;
        GW_TRY(gw_alloc(&m->outputs[l], rows * out, sizeof(float)));
        if (l + 1 < m->n_layers && out > widest[l % 2])
            widest[l % 2] = out;
    }
    for (int i = 0; i < 2; i++)
        GW_TRY(gw_alloc(&m->deltas[i], rows * widest[i], sizeof(float)));
    GW_TRY(gw_alloc(&m->losses, rows, sizeof *m->losses));
    return gw_alloc(&m->best, rows, sizeof *m->best);
}

gw_err gw_model_build(gw_model **out, const gw_model_spec *spec, int max_batch) {
    if (max_batch < 0)
        return gw_fail(GW_ERR_INTERNAL, "a model for batches of %d", max_batch);
    gw_model *m = NULL;
    GW_TRY(gw_alloc(&m, 1, sizeof *m));
    m->spec = *spec;
    m->max_batch = max_batch;
    model_lay_out(m);
    gw_err e = model_allocate(m);
    if (e != GW_OK) {
        gw_model_close(m);
        return e;
    }
    *out = m;
    return GW_OK;
}

static void model_initialise(gw_model *m) {
    uint64_t stream = gw_rng_key(m->spec.seed, INIT_STREAM);
    for (int l = 0; l < m->n_layers; l++) {
        const gw_layer *layer = &m->layers[l];
        uint64_t key = gw_rng_key(stream, (uint64_t)l);
        float *w = m->params + layer->span.off;
        int64_t n = (int64_t)layer->in * layer->out;
        int fan = m->spec.init == GW_INIT_HE ? layer->in : layer->in + layer->out;
        double sigma = sqrt(2.0 / fan);
#pragma omp parallel for schedule(static)
        for (int64_t i = 0; i < n; i++)
            w[i] = (float)(sigma * gw_rng_normal(key, (uint64_t)i));
    }
}

gw_err gw_model_open(gw_model **out, const gw_model_spec *spec, int max_batch) {
    size_t params;
    GW_TRY(gw_model_spec_check(spec, GW_ERR_USAGE, "", &params));
    GW_TRY(gw_model_build(out, spec, max_batch));
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
    free(m->input);
    for (int l = 0; l < m->n_layers; l++)
        free(m->outputs[l]);
    free(m->deltas[0]);
    free(m->deltas[1]);
    free(m->losses);
    free(m->best);
    free(m);
}

const gw_model_spec *gw_model_get_spec(const gw_model *m) {
    return &m->spec;
}

int gw_model_layers(const gw_model *m) {
    return m->n_layers;
}

gw_span gw_model_span(const gw_model *m, int l) {
    return m->layers[l].span;
}

const gw_span *gw_model_spans(const gw_model *m) {
    return m->spans;
}

const gw_tensor *gw_model_tensors(const gw_model *m) {
    return m->tensors;
}

int gw_model_tensor_count(const gw_model *m) {
    return 2 * m->n_layers;
}

size_t gw_model_size(const gw_model *m) {
    return m->size;
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

float *gw_model_input(gw_model *m) {
    return m->input;
}

const float *gw_model_logits(const gw_model *m) {
    return m->outputs[m->n_layers - 1];
}

/* What layer l reads. */
static const float *model_below(const gw_model *m, int l) {
    return l == 0 ? m->input : m->outputs[l - 1];
}

void gw_model_forward(gw_model *m, int l, int batch) {
    const gw_layer *layer = &m->layers[l];
    const float *params = m->params + layer->span.off;
    gw_layer_product(layer, params, model_below(m, l), m->outputs[l], batch);
    gw_layer_transfer(layer, params + (size_t)layer->in * (size_t)layer->out, m->outputs[l], batch);
}

double gw_model_loss(gw_model *m, const uint8_t *labels, int batch, float grad_scale,
                     int *correct) {
    gw_part_begin(GW_PART_LOSS);
    gw_loss_softmax(m->outputs[m->n_layers - 1], labels, batch, m->spec.classes, grad_scale,
                    m->losses, m->best);
    double sum = 0.0;
    int hits = 0;
    for (int i = 0; i < batch; i++) {
        sum += m->losses[i];
        hits += m->best[i] == labels[i];
    }
    gw_part_end(GW_PART_LOSS);
    if (correct)
        *correct = hits;
    return sum;
}

const uint8_t *gw_model_predictions(const gw_model *m) {
    return m->best;
}

/* d(loss)/d(output) of layer l, which the backward pass turns into d(loss)/d(pre-activation). */
static float *model_delta(gw_model *m, int l) {
    return l + 1 < m->n_layers ? m->deltas[l % 2] : m->outputs[l];
}

static void model_backward(gw_model *m, int l, int batch, float *grads, bool add) {
    const gw_layer *layer = &m->layers[l];
    float *own = grads + layer->span.off, *delta = model_delta(m, l);
    gw_layer_enter(layer, own, add, m->outputs[l], delta, batch);
    gw_layer_weights(layer, own, add, model_below(m, l), delta, batch);
}

void gw_model_backward(gw_model *m, int l, int batch) {
    model_backward(m, l, batch, m->grads, false);
}

void gw_model_backward_onto(gw_model *m, int l, int batch, float *sums) {
    model_backward(m, l, batch, sums, true);
}

void gw_model_descend(gw_model *m, int l, int batch) {
    const gw_layer *layer = &m->layers[l];
    if (l > 0)
        gw_layer_descend(layer, m->params + layer->span.off, model_delta(m, l),
                         model_delta(m, l - 1), batch);
}

double gw_model_flops(const gw_model *m, int batch) {
    double flops = 0.0;
    for (int l = 0; l < m->n_layers; l++)
        flops += batch * gw_model_spec_flops(&m->spec, l);
    return flops;
}
