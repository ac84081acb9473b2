/* A step's computation, by the parts that exchanges come between. */
#include "base/probe.h"
#include "nn/loss.h"
#include "nn/model_parts.h"

static float *model_step_rows(gw_model *m, const gw_area *area, gw_micro at) {
    return m->work + gw_model_rows(area, at).off;
}

static gw_unit_rows model_step_at(gw_model *m, int l, gw_micro at) {
    const gw_model_areas *a = &m->areas[l];
    return (gw_unit_rows){
        .n = at.n,
        .x = model_step_rows(m, &a->x, at),
        .y = model_step_rows(m, &a->y, at),
        .dy = model_step_rows(m, &a->dy, at),
        .dx = gw_model_held(m, l)->number > 0 ? model_step_rows(m, &a->dx, at) : NULL,
        .kept = model_step_rows(m, &a->kept, (gw_micro){at.slot, at.delta, 0, at.n}),
        .first = at.first,
        .room = m->room.rows,
        .zeros = m->zeros,
        .gathered = a->gathered.n > 0 ? m->work + a->gathered.off : NULL,
        .share = m->global > 0 ? (float)at.n / (float)m->global : 0,
    };
}

void gw_model_count(gw_model *m, int samples) {
    m->global = samples;
}

void gw_model_product(gw_model *m, int l, gw_micro at) {
    const gw_model_spec *spec = &m->shard.spec;
    gw_unit_rows rows = model_step_at(m, l, at);
    gw_model_ops_of(spec)->product(spec, gw_model_held(m, l), m->params + m->spans[l].off, &rows);
}

void gw_model_transfer(gw_model *m, int l, gw_micro at) {
    const gw_model_spec *spec = &m->shard.spec;
    gw_unit_rows rows = model_step_at(m, l, at);
    if (gw_model_ops_of(spec)->transfer)
        gw_model_ops_of(spec)->transfer(spec, gw_model_held(m, l), m->params + m->spans[l].off,
                                        &rows);
}

static gw_loss_cut model_step_cut(const gw_model *m) {
    return (gw_loss_cut){m->shard.spec.output, gw_model_held(m, m->shard.n_layers - 1)->out,
                         m->shard.share.part, m->shard.share.tensor};
}

static bool model_step_splits_loss(const gw_model *m) {
    return gw_model_held(m, m->shard.n_layers - 1)->cut == GW_CUT_COLUMNS;
}

void gw_model_loss_tell(gw_model *m, const gw_label *labels, gw_micro at) {
    int last = m->shard.n_layers - 1, targets = gw_model_spec_targets(&m->shard.spec);
    if (!model_step_splits_loss(m))
        return;
    gw_loss_cut cut = model_step_cut(m);
    gw_span told = gw_model_join(m, last, GW_MOMENT_LOSS, at).over;
    gw_part_begin(GW_PART_LOSS);
    gw_loss_tell(model_step_rows(m, &m->areas[last].y, at), labels, at.n * targets, cut,
                 m->work + gw_span_part(told, cut.part, cut.parts).off);
    gw_part_end(GW_PART_LOSS);
}

double gw_model_loss_join(gw_model *m, const gw_label *labels, gw_micro at, float grad_scale,
                          int *correct) {
    const gw_model_spec *spec = &m->shard.spec;
    int last = m->shard.n_layers - 1, targets = gw_model_spec_targets(spec), n = at.n * targets;
    float *z = model_step_rows(m, &m->areas[last].y, at);
    float scale = grad_scale / (float)targets;
    gw_part_begin(GW_PART_LOSS);
    if (model_step_splits_loss(m))
        gw_loss_join(z, labels, n, model_step_cut(m),
                     m->work + gw_model_join(m, last, GW_MOMENT_LOSS, at).over.off, scale,
                     m->losses, m->best);
    else if (gw_model_ops_of(spec)->loss)
        gw_model_ops_of(spec)->loss(spec, z, labels, n, scale, m->losses, m->best);
    else
        gw_loss_whole(spec->output, z, labels, n, spec->classes, scale, m->losses, m->best);
    double sum = 0.0;
    int hits = 0;
    for (int i = 0; i < n; i++) {
        sum += m->losses[i];
        hits += m->best[i] == labels[i];
    }
    gw_part_end(GW_PART_LOSS);
    if (correct)
        *correct = hits;
    return sum / targets;
}

void gw_model_enter(gw_model *m, int l, gw_micro at, float *grads, bool add) {
    const gw_model_spec *spec = &m->shard.spec;
    gw_unit_rows rows = model_step_at(m, l, at);
    size_t off = m->spans[l].off;
    gw_model_ops_of(spec)->enter(spec, gw_model_held(m, l), m->params + off, grads + off, add,
                                 &rows);
}

void gw_model_weights(gw_model *m, int l, gw_micro at, float *grads, bool add) {
    const gw_model_spec *spec = &m->shard.spec;
    gw_unit_rows rows = model_step_at(m, l, at);
    gw_model_ops_of(spec)->weights(spec, gw_model_held(m, l), grads + m->spans[l].off, add, &rows);
}

void gw_model_descend_rows(gw_model *m, int l, gw_micro at) {
    const gw_model_spec *spec = &m->shard.spec;
    gw_unit_rows rows = model_step_at(m, l, at);
    if (rows.dx)
        gw_model_ops_of(spec)->descend(spec, gw_model_held(m, l), m->params + m->spans[l].off,
                                       &rows);
}

bool gw_model_arrives(const gw_model *m, int l) {
    return gw_model_held(m, l)->cut != GW_CUT_NONE && gw_model_ops_of(&m->shard.spec)->arrive;
}

void gw_model_arrive(gw_model *m, int l, gw_micro at, float *grads) {
    const gw_model_spec *spec = &m->shard.spec;
    gw_unit_rows rows = model_step_at(m, l, at);
    if (rows.dx && gw_model_arrives(m, l))
        gw_model_ops_of(spec)->arrive(spec, gw_model_held(m, l), grads + m->spans[l].off, &rows);
}
