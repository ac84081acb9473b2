#include "train/step.h"

#include "base/probe.h"
#include "nn/gemm.h"

/* Exchange of `span` done, parameters moved and agreed on. */
static gw_err finish(gw_stepper *t, gw_span span, float lr) {
    gw_update u;
    GW_TRY(gw_session_finish(t->session, span, &u));
    gw_phase_enter(GW_PHASE_UPDATE);
    gw_optimizer_update(t->optimizer, gw_model_params(t->model), u.grad, u.own, lr, u.scale);
    gw_phase_leave();
    return gw_session_publish(t->session, span);
}

static gw_err forward(gw_stepper *t, int batch) {
    for (int l = 0; l < gw_model_layers(t->model); l++) {
        if (t->pending)
            GW_TRY(finish(t, gw_model_span(t->model, l), t->pending_lr));
        gw_phase_enter(GW_PHASE_FORWARD);
        gw_model_forward(t->model, l, batch);
        gw_phase_leave();
        if (t->pending)
            GW_TRY(gw_session_progress(t->session));
    }
    t->pending = false;
    return GW_OK;
}

static gw_err backward(gw_stepper *t, int batch) {
    gw_session_begin(t->session);
    for (int l = gw_model_layers(t->model) - 1; l >= 0; l--) {
        gw_phase_enter(GW_PHASE_BACKWARD);
        gw_model_backward(t->model, l, batch);
        gw_phase_leave();
        GW_TRY(gw_session_ready(t->session, gw_model_span(t->model, l)));
        GW_TRY(gw_session_progress(t->session));
    }
    return GW_OK;
}

gw_err gw_step(gw_stepper *t, gw_batch batch, float lr, double *loss_sum) {
    gw_phase_enter(GW_PHASE_DATA);
    gw_dataset_gather(t->set, batch.idx, batch.local, gw_model_input(t->model), t->labels);
    gw_phase_leave();
    GW_TRY(forward(t, batch.local));
    gw_phase_enter(GW_PHASE_FORWARD);
    *loss_sum = gw_model_loss(t->model, t->labels, batch.local, 1.0f / (float)batch.global, NULL);
    gw_phase_leave();
    GW_TRY(backward(t, batch.local));
    GW_TRY(gw_gemm_check());
    if (t->lazy) {
        t->pending = true;
        t->pending_lr = lr;
        return GW_OK;
    }
    return finish(t, (gw_span){0, gw_model_size(t->model)}, lr);
}

gw_err gw_step_settle(gw_stepper *t) {
    if (!t->pending)
        return GW_OK;
    for (int l = 0; l < gw_model_layers(t->model); l++)
        GW_TRY(finish(t, gw_model_span(t->model, l), t->pending_lr));
    t->pending = false;
    return GW_OK;
}
