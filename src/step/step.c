/* A step, in the order of this file read backwards: gw_step walks forward and backward, the walk
 * announces each gradient (step_ready), then the exchange is waited for (step_finish) and
 * parameters are moved (step_update). Lazy, a layer is waited for when the next step reads it
 * (step_await). */
#include "step/step.h"

#include "base/probe.h"
#include "nn/gemm.h"

/* Floats of an update between two polls: some tenths of a millisecond of memory traffic. */
enum { UPDATE_PIECE = 1 << 18 };

/* Counts parameters that were moved; under a virtual clock their time passes. */
static void step_moved(gw_stepper *t, size_t n) {
    bool shared = gw_optimizer_threads(n) > 1;
    *(shared ? &t->moved.shared : &t->moved.alone) += (double)n;
    t->moved.forks += shared;
    if (t->exec)
        t->exec->spend(t->exec->ctx, GW_COMPUTED_UPDATE, 0, n);
}

static void step_update_listed(gw_stepper *t, const gw_update *u, float lr) {
    gw_phase_enter(GW_PHASE_UPDATE);
    for (int i = 0; i < u->n_lists; i++) {
        const gw_elements *l = &u->lists[i];
        gw_optimizer_update_at(t->optimizer, gw_model_params(t->model), l->at, l->value, l->n, lr,
                               u->scale);
        step_moved(t, l->n);
    }
    gw_phase_leave();
}

static gw_err step_update(gw_stepper *t, const gw_update *u, float lr) {
    if (u->lists)
        step_update_listed(t, u, lr);
    for (gw_span left = u->own; !u->lists && left.n > 0;) {
        gw_span piece = {left.off, gw_optimizer_piece(t->optimizer, left, UPDATE_PIECE)};
        gw_phase_enter(GW_PHASE_UPDATE);
        gw_optimizer_update(t->optimizer, gw_model_params(t->model), u->grad, piece, lr, u->scale);
        step_moved(t, piece.n);
        gw_phase_leave();
        left = (gw_span){gw_span_end(piece), left.n - piece.n};
        if (left.n > 0)
            GW_TRY(gradwire_poll(t->g));
    }
    return gw_gemm_check(); /* some rules multiply, too */
}

/* Is this step, or the pending one, to be updated by? */
static gw_err step_agree(gw_stepper *t) {
    if (!t->guard || t->guard->how == GW_ON_NAN_STOP) /* then the run ends soon */
        return GW_OK;
    t->guard->together = gw_inside_together(t->g);
    gw_phase_enter(GW_PHASE_MPI_WAIT);
    gw_err e = gw_guard_agree(t->guard);
    gw_phase_leave();
    gw_inside_leave_out(t->g, t->guard->out);
    return e;
}

/* Do the ranks agree right after the backward pass? Lazy, the first update comes after the step;
 * and of a void step whose exchange has not begun nothing need be sent or taken back. Else they
 * meet when the exchange is done. */
static bool step_agrees_first(const gw_stepper *t) {
    return t->lazy || !t->is.hooks.ready;
}

/* The exchange of a layer or all of them is waited for, parameters are moved and agreed on. */
static gw_err step_finish(gw_stepper *t, int group, float lr) {
    int owns = gradwire_finish(t->g, group);
    if (owns < 0)
        return owns;
    gw_update u = *gw_inside_update(t->g);
    gw_owned_add(&t->owned, u.own, gw_model_size(t->model));
    if (!step_agrees_first(t))
        GW_TRY(step_agree(t));
    if (!gw_inside_voids(t->g))
        GW_TRY(step_update(t, &u, lr));
    return gradwire_updated(t->g, group);
}

/* ---- what the walk over the model tells the exchange ---- */

/* Layer l's parameters are needed now. Where publishing goes on in the background, the next layer
 * is published before this one is waited for, so that it travels under this one's computation. */
static gw_err step_await(void *stepper, int l) {
    gw_stepper *t = stepper;
    if (!t->pending)
        return GW_OK;
    if (!t->is.hooks.await || l == 0)
        GW_TRY(step_finish(t, l, t->pending_lr));
    if (t->is.hooks.await && l + 1 < gw_model_layers(t->model))
        GW_TRY(step_finish(t, l + 1, t->pending_lr));
    return gradwire_await(t->g, l);
}

/* All layers' parameters have been awaited: before each backward pass comes a forward pass. */
static gw_err step_backward(void *stepper, float **grads, bool *add) {
    gw_stepper *t = stepper;
    float *sums = NULL;
    t->pending = false;
    GW_TRY(gw_inside_sums(t->g, &sums));
    if (sums)
        *grads = sums;
    *add = sums;
    return GW_OK;
}

static void step_loss(void *stepper, double sum) {
    gw_stepper *t = stepper;
    if (t->guard)
        gw_guard_loss(t->guard, sum);
}

/* The gradients of layer l's tensors are announced, the last first, as a backward pass ends with
 * them. */
static gw_err step_ready(void *stepper, int l, float *grads) {
    gw_stepper *t = stepper;
    const gw_tensor *tensor = gw_model_tensors(t->model);
    gw_span layer = gw_model_spans(t->model)[l];
    if (t->guard) {
        gw_phase_enter(GW_PHASE_BACKWARD);
        gw_guard_layer(t->guard, grads, l);
        gw_phase_leave();
    }
    for (int i = gw_model_tensor_count(t->model) - 1; i >= 0; i--)
        if (layer.off <= tensor[i].span.off && tensor[i].span.off < gw_span_end(layer))
            GW_TRY(gradwire_ready(t->g, 1, &i, NULL));
    return GW_OK;
}

/* Of a whole model nothing else is under way, unless the last step's exchange is. */
static gw_err step_poll(void *stepper, bool within) {
    gw_stepper *t = stepper;
    bool idle = gw_pipeline_is_whole(t->pipeline) && !within && !t->pending;
    return idle ? GW_OK : gradwire_poll(t->g);
}

gw_pipeline_hooks gw_step_hooks(gw_stepper *t) {
    return (gw_pipeline_hooks){.ctx = t,
                               .await = step_await,
                               .begin = step_backward,
                               .ready = step_ready,
                               .loss = step_loss,
                               .poll = step_poll};
}

/* ---- the step ---- */

gw_pipeline_job gw_step_job(const gw_stepper *t, const gw_batch *batch) {
    bool whole = gw_pipeline_is_whole(t->pipeline);
    return (gw_pipeline_job){.set = batch->idx ? t->set : NULL,
                             .idx = batch->idx,
                             .labels = t->labels,
                             .local = batch->local,
                             .global = batch->global,
                             .pieces = !whole || t->is.plan.polls,
                             .step = t->guard ? (uint64_t)t->guard->step : 0,
                             .exec = t->exec};
}

gw_err gw_step(gw_stepper *t, gw_batch batch, float lr, double *loss_sum) {
    gw_pipeline_job job = gw_step_job(t, &batch);
    GW_TRY(gradwire_begin(t->g, batch.local, batch.global));
    GW_TRY(gw_pipeline_step(t->pipeline, &job, loss_sum)); /* forward and backward */
    GW_TRY(gw_gemm_check());
    if (step_agrees_first(t))
        GW_TRY(step_agree(t));
    bool none = gw_inside_leaves_out(t->g);
    gw_optimizer_begin(t->optimizer);
    if (none && !t->is.hooks.ready) {
        gw_inside_abandon(t->g);
    } else if (!t->lazy) {
        GW_TRY(step_finish(t, GRADWIRE_ALL, lr));
    } else { /* the next step finishes it, but nothing of a void one stays */
        t->pending = true;
        t->pending_lr = lr;
        if (none)
            GW_TRY(gw_step_settle(t));
    }
    if (t->guard && t->guard->out)
        gw_inside_undo(t->g);
    return gradwire_end(t->g, batch.local > 0 ? *loss_sum / batch.local : 0);
}

gw_err gw_step_settle(gw_stepper *t) {
    for (int l = 0; t->pending && l < gw_model_layers(t->model); l++)
        GW_TRY(step_await(t, l));
    t->pending = false;
    return GW_OK;
}
