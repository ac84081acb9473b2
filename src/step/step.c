#include "step/step.h"

#include "base/nap.h"
#include "base/probe.h"
#include "nn/gemm.h"
#include "prof/clock.h"

#include <string.h>

/* Floats of an update between two polls: some tenths of a millisecond of memory traffic. */
enum { UPDATE_PIECE = 1 << 18 };

gw_session_setup gw_step_session(gw_model *m, gw_optimizer *o, const gw_train_config *c,
                                 const gw_products *p) {
    return (gw_session_setup){.n = gw_model_size(m),
                              .layers = gw_model_spans(m),
                              .n_layers = gw_model_layers(m),
                              .tensors = gw_model_tensors(m),
                              .n_tensors = gw_model_tensor_count(m),
                              .model_layers = gw_model_spec_layers(gw_model_get_spec(m)),
                              .by_layer = c->lazy,
                              .adds = true,
                              .lists = gw_optimizer_lists(o),
                              .params = gw_model_params(m),
                              .momentum = gw_optimizer_momentum(o),
                              .pace = gw_wire_pace(&p->wire, gw_products_gap_s(p)),
                              .correction = (float)c->momentum,
                              .seed = c->seed,
                              .undo = c->nan_skip};
}

gw_err gw_step_batch(const gw_train_config *c, int ranks, int *global) {
    int64_t batch = (int64_t)c->batch * (c->local_batch ? ranks : 1);
    if (batch > INT32_MAX)
        return gw_fail(GW_ERR_USAGE,
                       "local-batch=%d on %d ranks: the global batch must stay below 2^31",
                       c->batch, ranks);
    *global = (int)batch;
    return GW_OK;
}

static void step_poll(void *stepper) {
    gw_stepper *t = stepper;
    if (t->failed == GW_OK)
        t->failed = gw_session_progress(t->session);
}

static void step_count(gw_moved *m, size_t n) {
    bool shared = gw_optimizer_threads(n) > 1;
    *(shared ? &m->shared : &m->alone) += (double)n;
    m->forks += shared;
}

static void step_update_listed(gw_stepper *t, const gw_update *u, float lr) {
    gw_phase_enter(GW_PHASE_UPDATE);
    for (int i = 0; i < u->n_lists; i++) {
        const gw_elements *l = &u->lists[i];
        gw_optimizer_update_at(t->optimizer, gw_model_params(t->model), l->at, l->value, l->n, lr,
                               u->scale);
        step_count(&t->moved, l->n);
    }
    gw_phase_leave();
}

static gw_err step_update(gw_stepper *t, const gw_update *u, float lr) {
    if (u->lists)
        step_update_listed(t, u, lr);
    for (size_t done = 0; !u->lists && done < u->own.n; done += UPDATE_PIECE) {
        size_t left = u->own.n - done;
        gw_span piece = {u->own.off + done, left < UPDATE_PIECE ? left : UPDATE_PIECE};
        gw_phase_enter(GW_PHASE_UPDATE);
        gw_optimizer_update(t->optimizer, gw_model_params(t->model), u->grad, piece, lr, u->scale);
        gw_phase_leave();
        step_count(&t->moved, piece.n);
        if (left > UPDATE_PIECE)
            GW_TRY(gw_session_progress(t->session));
    }
    return GW_OK;
}

/* Is this step, or the pending one, to be updated by? */
static gw_err step_agree(gw_stepper *t) {
    if (!t->guard)
        return GW_OK;
    gw_phase_enter(GW_PHASE_MPI_WAIT);
    gw_err e = gw_guard_agree(t->guard);
    gw_phase_leave();
    t->session->env.skip = t->guard->out;
    return e;
}

static bool step_left_out(const gw_stepper *t) {
    bool late = t->session->strategy.ops->traits & GW_STRATEGY_LATE;
    return t->guard && t->guard->out && !late;
}

/* Do the ranks agree right after the backward pass? Lazy, the first update comes after the step;
 * and of a void step whose exchange has not begun nothing need be sent or taken back. Else they
 * meet when the exchange is done. */
static bool step_agrees_first(const gw_stepper *t) {
    return t->lazy || !t->session->strategy.ops->ready;
}

/* For the time that the update takes on a free core. It is done now if somebody else gets what it
 * computes; and as lists, which hold for this step and whose time by element is not known. */
static gw_err step_update_paced(gw_stepper *t, const gw_update *u, float lr) {
    double start_s = gw_nap_now();
    size_t n = u->own.n;
    if (u->lists)
        n = 0;
    for (int i = 0; i < u->n_lists; i++)
        n += u->lists[i].n;
    if (u->lists || t->session->strategy.ops->publish)
        GW_TRY(step_update(t, u, lr));
    else
        t->later = (gw_step_later){true, *u, lr};
    gw_phase_enter(GW_PHASE_UPDATE);
    gw_pacer_rest(t->pacer, start_s, gw_pacer_update_s(t->pacer, n));
    gw_phase_leave();
    return GW_OK;
}

gw_err gw_step_catch_up(gw_stepper *t) {
    bool due = t->later.due;
    t->later.due = false;
    if (due && t->naive)
        gw_naive_descend(t->naive, (double)t->later.lr);
    return due && !t->naive ? step_update(t, &t->later.update, t->later.lr) : GW_OK;
}

/* What starts when a paced step is over, and lasts into the next one, waits for the next clock. */
static gw_err step_publish(gw_stepper *t, gw_span span) {
    t->unpublished = t->scratch;
    return t->scratch ? GW_OK : gw_session_publish(t->session, span);
}

static gw_err step_publish_rest(gw_stepper *t) {
    bool due = t->unpublished;
    t->unpublished = false;
    return due ? gw_session_publish(t->session, (gw_span){0, gw_model_size(t->model)}) : GW_OK;
}

/* Exchange of `span` done, parameters moved and agreed on. */
static gw_err step_finish(gw_stepper *t, gw_span span, float lr) {
    gw_update u;
    uint64_t start = gw_clock_ticks();
    GW_TRY(gw_session_finish(t->session, span, &u));
    gw_owned_add(&t->owned, u.own, gw_model_size(t->model));
    if (!step_agrees_first(t))
        GW_TRY(step_agree(t));
    if (t->pacer)
        gw_pacer_waited(t->pacer, gw_clock_since(start));
    if (!step_left_out(t))
        GW_TRY(t->pacer ? step_update_paced(t, &u, lr) : step_update(t, &u, lr));
    return step_publish(t, span);
}

static gw_err step_finish_layer(gw_stepper *t, int l) {
    return step_finish(t, gw_model_span(t->model, l), t->pending_lr);
}

/* Layer l's parameters are needed now. Where publishing goes on in the background, the next layer
 * is published before this one is waited for, so that it travels under this one's computation. */
static gw_err step_await(gw_stepper *t, int l) {
    bool ahead = t->session->strategy.ops->await;
    if (!ahead || l == 0)
        GW_TRY(step_finish_layer(t, l));
    if (ahead && l + 1 < gw_model_layers(t->model))
        GW_TRY(step_finish_layer(t, l + 1));
    return gw_session_await(t->session, gw_model_span(t->model, l));
}

static gw_err step_forward(gw_stepper *t, int batch) {
    for (int l = 0; l < gw_model_layers(t->model); l++) {
        if (t->pending)
            GW_TRY(step_await(t, l));
        gw_phase_enter(GW_PHASE_FORWARD);
        gw_model_forward(t->model, l, batch);
        gw_phase_leave();
        if (t->pending)
            GW_TRY(gw_session_progress(t->session));
    }
    t->pending = false;
    return GW_OK;
}

static gw_err step_backward(gw_stepper *t, int batch, double share) {
    gw_session_begin(t->session, share);
    float *sums = gw_session_sums(t->session);
    for (int l = gw_model_layers(t->model) - 1; l >= 0; l--) {
        gw_phase_enter(GW_PHASE_BACKWARD);
        if (sums)
            gw_model_backward_onto(t->model, l, batch, sums);
        else
            gw_model_backward(t->model, l, batch);
        if (t->guard)
            gw_guard_layer(t->guard, sums ? sums : gw_model_grads(t->model), l);
        gw_phase_leave();
        if (!t->apart)
            GW_TRY(gw_session_ready(t->session, gw_model_span(t->model, l)));
        GW_TRY(gw_session_progress(t->session));
        gw_phase_enter(GW_PHASE_BACKWARD);
        gw_model_descend(t->model, l, batch); /* while layer l's gradient is on its way */
        gw_phase_leave();
    }
    for (int l = gw_model_layers(t->model) - 1; l >= 0 && t->apart; l--)
        GW_TRY(gw_session_ready(t->session, gw_model_span(t->model, l)));
    return GW_OK;
}

/* The exchange, whose end a lazy step leaves to the next one. Nothing of a void step stays. */
static gw_err step_exchange(gw_stepper *t, float lr) {
    gw_span all = {0, gw_model_size(t->model)};
    if (step_agrees_first(t))
        GW_TRY(step_agree(t));
    bool none = gw_session_leaves_out(t->session);
    t->pending = t->lazy;
    t->pending_lr = lr;
    if (none && !t->session->strategy.ops->ready) {
        t->pending = false;
    } else if (!t->lazy) {
        GW_TRY(step_finish(t, all, lr));
        GW_TRY(gw_session_await(t->session, all));
    } else if (none) {
        GW_TRY(gw_step_settle(t));
    }
    if (t->guard && t->guard->out)
        gw_session_undo(t->session);
    return GW_OK;
}

/* ---- over a mesh ---- */

static gw_err step_pipeline_await(void *stepper, int l) {
    gw_stepper *t = stepper;
    return t->pending ? step_await(t, l) : GW_OK;
}

/* All layers' parameters have been awaited: before each backward pass comes a forward pass. */
static void step_pipeline_begin(void *stepper, float **grads, bool *add) {
    gw_stepper *t = stepper;
    t->pending = false;
    gw_session_begin(t->session, t->share);
    float *sums = gw_session_sums(t->session);
    *grads = t->grads = sums ? sums : gw_model_grads(t->model);
    *add = sums;
}

static void step_pipeline_loss(void *stepper, double sum) {
    gw_stepper *t = stepper;
    if (t->guard)
        gw_guard_loss(t->guard, sum);
}

static gw_err step_pipeline_ready(void *stepper, int l) {
    gw_stepper *t = stepper;
    if (t->guard) {
        gw_phase_enter(GW_PHASE_BACKWARD);
        gw_guard_layer(t->guard, t->grads, l);
        gw_phase_leave();
    }
    return t->apart ? GW_OK : gw_session_ready(t->session, gw_model_span(t->model, l));
}

static gw_err step_pipeline_poll(void *stepper) {
    gw_stepper *t = stepper;
    return gw_session_progress(t->session);
}

gw_pipeline_hooks gw_step_hooks(gw_stepper *t) {
    return (gw_pipeline_hooks){.ctx = t,
                               .await = step_pipeline_await,
                               .begin = step_pipeline_begin,
                               .ready = step_pipeline_ready,
                               .loss = step_pipeline_loss,
                               .poll = step_pipeline_poll};
}

static gw_err step_pipeline(gw_stepper *t, const gw_batch *batch, float lr, double *loss_sum) {
    gw_pipeline_job job = {.set = t->set,
                           .idx = batch->idx,
                           .local = batch->local,
                           .global = batch->global,
                           .step = t->guard ? (uint64_t)t->guard->step : 0};
    t->share = (double)batch->local / batch->global;
    GW_TRY(gw_pipeline_step(t->pipeline, &job, loss_sum));
    for (int l = gw_model_layers(t->model) - 1; l >= 0 && t->apart; l--)
        GW_TRY(gw_session_ready(t->session, gw_model_span(t->model, l)));
    GW_TRY(gw_gemm_check());
    return step_exchange(t, lr);
}

/* ---- */

static gw_err step(gw_stepper *t, int local, int global, float lr, double *loss_sum) {
    GW_TRY(step_forward(t, local));
    gw_phase_enter(GW_PHASE_FORWARD);
    *loss_sum = gw_model_loss(t->model, t->labels, local, 1.0f / (float)global, NULL);
    gw_phase_leave();
    if (t->guard)
        gw_guard_loss(t->guard, *loss_sum);
    GW_TRY(step_backward(t, local, (double)local / global));
    GW_TRY(gw_gemm_check());
    return step_exchange(t, lr);
}

/* ---- paced ---- */

static void step_rest(gw_stepper *t, gw_phase phase) {
    gw_phase_enter(phase);
    gw_pacer_segment(t->pacer);
    gw_phase_leave();
}

static void step_rest_backward(gw_stepper *t, gw_span span) {
    double start_s = gw_nap_now();
    gw_phase_enter(GW_PHASE_BACKWARD);
    if (t->scratch)
        memcpy(t->session->env.grad + span.off, t->scratch + span.off, span.n * sizeof(float));
    gw_pacer_spent(t->pacer, gw_nap_now() - start_s);
    gw_pacer_segment(t->pacer);
    gw_phase_leave();
}

/* The same with what gw_paced_prepare has computed: only the exchange is for real. */
static gw_err step_paced(gw_stepper *t, int local, int global, float lr, double *loss_sum) {
    int layers = gw_model_layers(t->model);
    for (int l = 0; l <= layers; l++) /* the last is the loss */
        step_rest(t, GW_PHASE_FORWARD);
    *loss_sum = t->computed_loss;
    if (!gw_session_sums(t->session)) /* else it has begun already */
        gw_session_begin(t->session, (double)local / global);
    for (int l = layers - 1; l >= 0; l--) {
        gw_span span = gw_model_span(t->model, l);
        step_rest_backward(t, span);
        GW_TRY(gw_session_ready(t->session, span));
        GW_TRY(gw_session_progress(t->session));
        step_rest(t, GW_PHASE_BACKWARD); /* the descent */
    }
    return step_exchange(t, lr);
}

/* Samples gathered, and a straggler's delay. The naive backend's one segment holds all. */
static void step_paced_data(gw_stepper *t) {
    gw_phase_enter(GW_PHASE_DATA);
    if (!t->naive)
        gw_pacer_segment(t->pacer);
    if (t->skew_s > 0)
        gw_pacer_rest(t->pacer, gw_nap_now(), t->skew_s);
    gw_phase_leave();
}

/* ---- */

/* All layers' exchanges, then all updates, then what publishes them: nothing is computed while
 * messages are under way, and none are when it is over. */
static gw_err step_finish_apart(gw_stepper *t) {
    gw_update u[GW_MAX_LAYERS];
    int layers = t->pending ? gw_model_layers(t->model) : 0;
    for (int l = 0; l < layers; l++)
        GW_TRY(gw_session_finish(t->session, gw_model_span(t->model, l), &u[l]));
    for (int l = 0; l < layers && !step_left_out(t); l++)
        GW_TRY(step_update(t, &u[l], t->pending_lr));
    for (int l = 0; l < layers; l++)
        GW_TRY(gw_session_publish(t->session, gw_model_span(t->model, l)));
    for (int l = 0; l < layers; l++)
        GW_TRY(gw_session_await(t->session, gw_model_span(t->model, l)));
    t->pending = false;
    return gw_session_settle(t->session);
}

static gw_err step_whole(gw_stepper *t, const gw_batch *batch, float lr, double *loss_sum) {
    bool polls = gw_session_progresses(t->session) && !t->apart;
    if (t->pacer) {
        gw_pacer_between(t->pacer, polls ? step_poll : NULL, t);
        return step_paced(t, batch->local, batch->global, lr, loss_sum);
    }
    if (polls)
        gw_gemm_between(step_poll, t);
    gw_err e = step(t, batch->local, batch->global, lr, loss_sum);
    if (polls)
        gw_gemm_between(NULL, NULL);
    return e;
}

double gw_step_naive_compute(gw_stepper *t, const gw_batch *batch) {
    gw_naive_job job = {t->set, batch->idx, batch->local, batch->global};
    double loss = gw_naive_compute(t->naive, &job);
    if (t->guard)
        gw_guard_loss(t->guard, loss);
    return loss;
}

/* As step_update_paced: others may get what it computes. */
static void step_naive_descend_paced(gw_stepper *t, float lr) {
    double start_s = gw_nap_now();
    if (gw_naive_publishes(t->naive))
        gw_naive_descend(t->naive, (double)lr);
    else
        t->later = (gw_step_later){.due = true, .lr = lr};
    gw_phase_enter(GW_PHASE_UPDATE);
    gw_pacer_rest(t->pacer, start_s, gw_pacer_update_s(t->pacer, gw_model_size(t->model)));
    gw_phase_leave();
}

/* The same with what gw_paced_prepare has computed. */
static gw_err step_naive_paced(gw_stepper *t, float lr, double *loss_sum) {
    step_rest(t, GW_PHASE_BACKWARD);
    *loss_sum = t->computed_loss;
    t->session->logical_bytes += gw_naive_bytes(t->naive);
    uint64_t start = gw_clock_ticks();
    GW_TRY(gw_naive_reduce(t->naive));
    gw_pacer_waited(t->pacer, gw_clock_since(start));
    if (gw_naive_descends(t->naive))
        step_naive_descend_paced(t, lr);
    return gw_naive_publish(t->naive);
}

/* Only the loss tells the guard of what is not finite: a gradient that is not makes the next one
 * so, or else the parameters, which are looked at when replicas are compared. */
static gw_err step_naive(gw_stepper *t, const gw_batch *batch, float lr, double *loss_sum) {
    if (t->pacer)
        return step_naive_paced(t, lr, loss_sum);
    *loss_sum = gw_step_naive_compute(t, batch);
    t->session->logical_bytes += gw_naive_bytes(t->naive);
    GW_TRY(gw_naive_reduce(t->naive));
    if (gw_naive_descends(t->naive))
        gw_naive_descend(t->naive, (double)lr);
    return gw_naive_publish(t->naive);
}

static gw_err step_taken(gw_stepper *t, const gw_batch *batch, float lr, double *loss_sum) {
    if (t->naive)
        return step_naive(t, batch, lr, loss_sum);
    GW_TRY(t->pipeline ? step_pipeline(t, batch, lr, loss_sum)
                       : step_whole(t, batch, lr, loss_sum));
    if (t->apart)
        GW_TRY(step_finish_apart(t));
    return t->failed;
}

gw_err gw_step_loaded(gw_stepper *t, int local, int global, float lr, double *loss_sum) {
    return step_taken(t, &(gw_batch){.local = local, .global = global}, lr, loss_sum);
}

/* Busy, as a rank is that has more to do than the others. */
static void step_hold_up(double seconds) {
    uint64_t start = gw_clock_ticks();
    while (gw_clock_seconds(gw_clock_ticks() - start) < seconds)
        ;
}

gw_err gw_step(gw_stepper *t, gw_batch batch, float lr, double *loss_sum) {
    if (t->pacer) {
        GW_TRY(step_publish_rest(t));
        step_paced_data(t);
        return step_taken(t, &batch, lr, loss_sum);
    }
    gw_phase_enter(GW_PHASE_DATA);
    if (!t->pipeline && !t->naive)
        gw_dataset_gather(t->set, batch.idx, batch.local, gw_model_input(t->model), t->labels);
    if (t->skew_s > 0)
        step_hold_up(t->skew_s);
    gw_phase_leave();
    return step_taken(t, &batch, lr, loss_sum);
}

gw_err gw_step_settle(gw_stepper *t) {
    GW_TRY(step_publish_rest(t));
    if (t->naive) {
        GW_TRY(gw_step_catch_up(t));
        gw_naive_tell(t->naive);
    }
    if (!t->pending)
        return GW_OK;
    for (int l = 0; l < gw_model_layers(t->model); l++)
        GW_TRY(step_await(t, l));
    t->pending = false;
    return GW_OK;
}
