/* A model, for the walk: its kernels, each in its phase of the ledger, and what its tensor ranks
 * exchange. */
#include "mesh/pipeline_parts.h"

#include "base/probe.h"

/* ---- joins ---- */

static gw_pipeline_way pipeline_way(const gw_pipeline *p, gw_moment moment) {
    bool exact = moment == GW_MOMENT_LOSS || moment == GW_MOMENT_PARAMETERS;
    return p->now.testing || exact     ? GW_PIPELINE_EXACT
           : moment == GW_MOMENT_DELTA ? GW_PIPELINE_DELTAS
                                       : GW_PIPELINE_ACTIVATIONS;
}

static bool kernels_joins(const void *pipeline, int l, gw_moment moment, gw_micro at) {
    const gw_pipeline *p = pipeline;
    return p->join_lane[GW_PIPELINE_EXACT] &&
           gw_model_join(p->model, l, moment, at).kind != GW_JOIN_NONE;
}

static gw_err kernels_join(void *pipeline, int l, gw_moment moment, gw_micro at, bool starts,
                           gw_schedule **out) {
    gw_pipeline *p = pipeline;
    (void)starts;
    *out = NULL;
    if (p->now.exec.alone || !kernels_joins(p, l, moment, at))
        return GW_OK;
    gw_join join = gw_model_join(p->model, l, moment, at);
    return gw_collective_get(&p->join[pipeline_way(p, moment)][join.kind], join.over, out);
}

static bool kernels_arrives(const void *pipeline, int l) {
    return gw_model_arrives(((const gw_pipeline *)pipeline)->model, l);
}

/* ---- kernels ---- */

/* A forward pass, or one that is repeated within another action. */
static gw_phase kernels_pass(gw_act act) {
    return act.kind == GW_ACT_FORWARD ? GW_PHASE_FORWARD : GW_PHASE_RECOMPUTE;
}

static gw_err kernels_compute(void *pipeline, const gw_kernel *k) {
    gw_pipeline *p = pipeline;
    gw_model *m = p->model;
    float *grads = p->now.grads;
    bool add = p->now.add || k->act.micro > 0, forward = k->kind < GW_KERNEL_ENTER, counts = false;
    gw_computed what = forward ? GW_COMPUTED_FORWARD : GW_COMPUTED_INPUT;
    gw_pipeline_enter(p, forward ? kernels_pass(k->act) : GW_PHASE_BACKWARD);
    switch (k->kind) {
    case GW_KERNEL_PARAMETERS: gw_model_pack(m, k->l, GW_MOMENT_PARAMETERS, k->at); break;
    case GW_KERNEL_INPUT: gw_model_pack(m, k->l, GW_MOMENT_INPUT, k->at); break;
    case GW_KERNEL_PRODUCT:
        gw_model_unpack(m, k->l, GW_MOMENT_INPUT, k->at);
        gw_model_product(m, k->l, k->at);
        if (k->alone)
            gw_model_transfer(m, k->l, k->at);
        counts = true;
        break;
    case GW_KERNEL_TRANSFER: gw_model_transfer(m, k->l, k->at); break;
    case GW_KERNEL_ENTER: gw_model_enter(m, k->l, k->at, grads, add); break;
    case GW_KERNEL_DESCEND:
        gw_model_descend_rows(m, k->l, k->at);
        gw_model_pack(m, k->l, GW_MOMENT_DELTA, k->at);
        counts = true;
        break;
    case GW_KERNEL_WEIGHTS:
        if (k->alone)
            gw_model_enter(m, k->l, k->at, grads, add);
        gw_model_weights(m, k->l, k->at, grads, add);
        what = GW_COMPUTED_WEIGHTS;
        counts = true;
        break;
    case GW_KERNEL_ARRIVE:
        gw_model_unpack(m, k->l, GW_MOMENT_DELTA, k->at);
        gw_model_arrive(m, k->l, k->at, grads);
    }
    gw_pipeline_leave(p, what, k->l, counts ? (size_t)k->at.n : 0);
    return GW_OK;
}

/* ---- the loss ---- */

gw_err gw_pipeline_loss(gw_pipeline *p, gw_act act, const gw_label *labels, float scale,
                        double *sum, int *correct) {
    gw_micro at = gw_pipeline_at(p, act);
    int top = p->shard.n_layers - 1;
    gw_phase phase = kernels_pass(act);
    if (kernels_joins(p, top, GW_MOMENT_LOSS, at)) {
        gw_pipeline_enter(p, phase);
        gw_model_loss_tell(p->model, labels, at);
        gw_pipeline_leave(p, GW_COMPUTED_LOSS, top, 0);
    }
    GW_TRY(gw_walk_join(&p->walk, top, act, GW_MOMENT_LOSS, at));
    gw_pipeline_enter(p, phase);
    *sum += gw_model_loss_join(p->model, labels, at, scale, correct);
    gw_pipeline_leave(p, GW_COMPUTED_LOSS, top, (size_t)at.n);
    return GW_OK;
}

/* Labels that are recomputed for have been counted already. */
static gw_err kernels_loss(void *pipeline, gw_act act) {
    gw_pipeline *p = pipeline;
    const gw_pipeline_job *job = p->now.job;
    size_t targets = (size_t)gw_model_spec_targets(gw_model_get_spec(p->model));
    const gw_label *labels = job->labels + gw_pipeline_part(p, act.micro).off * targets;
    double again = 0, *sum = act.kind == GW_ACT_FORWARD ? &p->now.loss : &again;
    return gw_pipeline_loss(p, act, labels, 1.0f / (float)job->global, sum, NULL);
}

/* ---- the rest of what the walk asks for ---- */

/* Held layers of a chunk: [*first, *end). */
static void kernels_layers(const void *pipeline, int chunk, int *first, int *end) {
    const gw_shard *s = &((const gw_pipeline *)pipeline)->shard;
    *first = 0;
    while (s->layers[*first].chunk < chunk)
        ++*first;
    *end = *first;
    while (*end < s->n_layers && s->layers[*end].chunk == chunk)
        ++*end;
}

static gw_micro kernels_at(const void *pipeline, gw_act act) {
    return gw_pipeline_at(pipeline, act);
}

/* An evaluation has no exchange of gradients that parameters would come from. */
static gw_err kernels_await(void *pipeline, int l) {
    const gw_pipeline *p = pipeline;
    return p->now.testing || !p->hooks.await ? GW_OK : p->hooks.await(p->hooks.ctx, l);
}

static gw_err kernels_ready(void *pipeline, int l) {
    const gw_pipeline *p = pipeline;
    return p->hooks.ready ? p->hooks.ready(p->hooks.ctx, l, p->now.grads) : GW_OK;
}

static gw_err kernels_poll(void *pipeline) {
    gw_pipeline *p = pipeline;
    GW_TRY(p->failed);
    return gw_pipeline_poll(p, false);
}

const gw_walk_ops gw_pipeline_kernels = {.layers = kernels_layers,
                                         .at = kernels_at,
                                         .joins = kernels_joins,
                                         .join = kernels_join,
                                         .arrives = kernels_arrives,
                                         .compute = kernels_compute,
                                         .loss = kernels_loss,
                                         .next = gw_pipeline_next,
                                         .begin = gw_pipeline_begin,
                                         .end = gw_pipeline_end,
                                         .await = kernels_await,
                                         .ready = kernels_ready,
                                         .poll = kernels_poll};
