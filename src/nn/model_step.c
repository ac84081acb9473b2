/* A step's computation, by the parts that exchanges come between. */
#include "base/probe.h"
#include "nn/loss.h"
#include "nn/model_parts.h"

static float *model_step_rows(gw_model *m, const gw_area *area, gw_micro at) {
    return m->work + gw_model_rows(area, at).off;
}

void gw_model_product(gw_model *m, int l, gw_micro at) {
    const gw_layer *layer = &gw_model_held(m, l)->layer;
    gw_layer_product(layer, m->params + layer->span.off, model_step_rows(m, &m->areas[l].x, at),
                     model_step_rows(m, &m->areas[l].y, at), at.n);
}

void gw_model_transfer(gw_model *m, int l, gw_micro at) {
    const gw_layer *layer = &gw_model_held(m, l)->layer;
    const float *biases = m->params + layer->span.off + (size_t)layer->in * (size_t)layer->out;
    gw_layer_transfer(layer, layer->partial ? m->zeros : biases,
                      model_step_rows(m, &m->areas[l].y, at), at.n);
}

static gw_loss_cut model_step_cut(const gw_model *m) {
    return (gw_loss_cut){m->shard.spec.output, gw_model_held(m, m->shard.n_layers - 1)->out,
                         m->shard.share.part, m->shard.share.tensor};
}

static bool model_step_splits_loss(const gw_model *m) {
    return gw_model_held(m, m->shard.n_layers - 1)->cut == GW_CUT_COLUMNS;
}

void gw_model_loss_tell(gw_model *m, const uint8_t *labels, gw_micro at) {
    int last = m->shard.n_layers - 1;
    if (!model_step_splits_loss(m))
        return;
    gw_loss_cut cut = model_step_cut(m);
    gw_span told = gw_model_join(m, last, GW_MOMENT_LOSS, at).over;
    gw_part_begin(GW_PART_LOSS);
    gw_loss_tell(model_step_rows(m, &m->areas[last].y, at), labels, at.n, cut,
                 m->work + gw_span_part(told, cut.part, cut.parts).off);
    gw_part_end(GW_PART_LOSS);
}

double gw_model_loss_join(gw_model *m, const uint8_t *labels, gw_micro at, float grad_scale,
                          int *correct) {
    const gw_model_spec *spec = &m->shard.spec;
    int last = m->shard.n_layers - 1;
    float *z = model_step_rows(m, &m->areas[last].y, at);
    gw_part_begin(GW_PART_LOSS);
    if (model_step_splits_loss(m))
        gw_loss_join(z, labels, at.n, model_step_cut(m),
                     m->work + gw_model_join(m, last, GW_MOMENT_LOSS, at).over.off, grad_scale,
                     m->losses, m->best);
    else
        (spec->output == GW_OUTPUT_SIGMOID ? gw_loss_sigmoid : gw_loss_softmax)(
            z, labels, at.n, spec->classes, grad_scale, m->losses, m->best);
    double sum = 0.0;
    int hits = 0;
    for (int i = 0; i < at.n; i++) {
        sum += m->losses[i];
        hits += m->best[i] == labels[i];
    }
    gw_part_end(GW_PART_LOSS);
    if (correct)
        *correct = hits;
    return sum;
}

void gw_model_enter(gw_model *m, int l, gw_micro at, float *grads, bool add) {
    const gw_layer *layer = &gw_model_held(m, l)->layer;
    gw_layer_enter(layer, grads + layer->span.off, add, model_step_rows(m, &m->areas[l].y, at),
                   model_step_rows(m, &m->areas[l].dy, at), at.n);
}

void gw_model_weights(gw_model *m, int l, gw_micro at, float *grads, bool add) {
    const gw_layer *layer = &gw_model_held(m, l)->layer;
    gw_layer_weights(layer, grads + layer->span.off, add, model_step_rows(m, &m->areas[l].x, at),
                     model_step_rows(m, &m->areas[l].dy, at), at.n);
}

void gw_model_descend_rows(gw_model *m, int l, gw_micro at) {
    const gw_layer *layer = &gw_model_held(m, l)->layer;
    if (gw_model_held(m, l)->number > 0)
        gw_layer_descend(layer, m->params + layer->span.off,
                         model_step_rows(m, &m->areas[l].dy, at),
                         model_step_rows(m, &m->areas[l].dx, at), at.n);
}
