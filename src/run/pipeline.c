/* The actions of a step, in the timetable's order, with the hops that they need. */
#include "run/pipeline_parts.h"

#include "base/probe.h"
#include "comm/lane_parts.h"
#include "nn/gemm.h"

#include <string.h>

gw_span gw_pipeline_part(const gw_pipeline *w, int micro) {
    return gw_span_part((gw_span){0, (size_t)w->local}, micro, gw_pipeline_micros(w));
}

/* Outputs that go with a delta's place, but are not kept, have a place of their own. */
gw_micro gw_pipeline_at(const gw_pipeline *w, gw_act act) {
    const gw_model_room *r = &w->room;
    int own = r->keep && r->recompute, places = r->deltas - own;
    bool passing = own && act.kind == GW_ACT_FORWARD;
    return (gw_micro){.slot = act.micro % r->slots[act.chunk],
                      .delta = passing ? places : act.micro % places,
                      .n = w->forward ? w->local : (int)gw_pipeline_part(w, act.micro).n};
}

/* Random numbers depend on step and microbatch, whatever the timetable. */
gw_err gw_pipeline_start(gw_pipeline *w, gw_schedule *s, int micro) {
    gw_lane *lane = gw_schedule_lane(s);
    lane->ticket = w->step * (uint64_t)w->options->microbatches + (uint64_t)micro;
    gw_phase_enter(GW_PHASE_MPI_POST);
    gw_err e = gw_queue_start(w->queue, s);
    gw_phase_leave();
    return e;
}

gw_err gw_pipeline_wait(gw_pipeline *w, gw_schedule *s) {
    gw_phase_enter(GW_PHASE_MPI_WAIT);
    gw_err e = gw_queue_wait(w->queue, s);
    gw_phase_leave();
    return e;
}

gw_err gw_pipeline_poll(gw_pipeline *w) {
    gw_phase_enter(GW_PHASE_MPI_POLL);
    gw_err e = gw_queue_poll(w->queue);
    gw_phase_leave();
    GW_TRY(e);
    return w->hooks.poll(w->hooks.ctx);
}

/* ---- hops ---- */

static gw_edge pipeline_edge(gw_act act, bool receives) {
    if (act.kind == GW_ACT_FORWARD)
        return receives ? GW_EDGE_INPUT : GW_EDGE_OUTPUT;
    return receives ? GW_EDGE_OUTPUT_DELTA : GW_EDGE_INPUT_DELTA;
}

gw_schedule *gw_pipeline_hop(const gw_pipeline *w, gw_act act, bool receives) {
    const gw_timetable *t = w->timetable;
    if (act.kind == GW_ACT_WEIGHTS || !w->hops[w->size])
        return NULL;
    gw_place peer =
        receives ? gw_timetable_source(t, w->stage, act) : gw_timetable_target(t, w->stage, act);
    if (peer.stage < 0)
        return NULL;
    int mine = act.chunk * w->stages + w->stage, other = peer.chunk * w->stages + peer.stage;
    gw_hop hop = {act.kind == GW_ACT_FORWARD ? GW_HOP_ACTIVATION : GW_HOP_DELTA,
                  mine < other ? mine : other, act.micro};
    return gw_hops_end(w->hops[w->size], hop);
}

gw_err gw_pipeline_vacate(gw_pipeline *w, gw_act act) {
    const gw_model_room *room = &w->room;
    bool forward = act.kind == GW_ACT_FORWARD;
    int span = forward ? room->slots[act.chunk] : room->deltas;
    gw_edge edge = pipeline_edge(act, false);
    gw_span mine = gw_model_edge(w->model, act.chunk, edge, gw_pipeline_at(w, act));
    for (int j = act.micro - span > 0 ? act.micro - span : 0; j < act.micro + span; j++) {
        gw_act other = {act.kind, act.chunk, j};
        if (j >= gw_pipeline_micros(w))
            continue;
        gw_schedule *s = gw_pipeline_hop(w, other, false);
        gw_span theirs = gw_model_edge(w->model, act.chunk, edge, gw_pipeline_at(w, other));
        if (s && gw_span_overlap(mine, theirs))
            GW_TRY(gw_pipeline_wait(w, s));
    }
    return GW_OK;
}

gw_err gw_pipeline_send(gw_pipeline *w, gw_act act) {
    gw_schedule *s = gw_pipeline_hop(w, act, false);
    return s ? gw_pipeline_start(w, s, act.micro) : GW_OK;
}

static bool pipeline_takes_activation(gw_act act) {
    return act.kind == GW_ACT_FORWARD;
}

/* Post the receive of the first action from `at` on that takes what this one takes: one ahead. */
static gw_err pipeline_post(gw_pipeline *w, int at, bool activation) {
    for (; at < w->n_acts; at++) {
        gw_schedule *s = pipeline_takes_activation(w->acts[at]) == activation
                             ? gw_pipeline_hop(w, w->acts[at], true)
                             : NULL;
        if (s)
            return gw_pipeline_start(w, s, w->acts[at].micro);
    }
    return GW_OK;
}

static gw_err pipeline_take(gw_pipeline *w, int at) {
    gw_schedule *s = gw_pipeline_hop(w, w->acts[at], true);
    if (!s)
        return GW_OK;
    GW_TRY(gw_pipeline_wait(w, s));
    return pipeline_post(w, at + 1, pipeline_takes_activation(w->acts[at]));
}

/* ---- actions ---- */

typedef struct pipeline_step {
    const gw_pipeline_job *job;
    double loss;
    float *grads; /* NULL: no backward pass has begun */
    bool add;
    bool told; /* the loss was */
} pipeline_step;

static void pipeline_gather(gw_pipeline *w, const gw_pipeline_job *job, gw_act act) {
    gw_span part = gw_pipeline_part(w, act.micro);
    gw_span to = gw_model_edge(w->model, 0, GW_EDGE_INPUT, gw_pipeline_at(w, act));
    gw_phase_enter(GW_PHASE_DATA);
    gw_dataset_gather(job->set, job->idx + part.off, (int)part.n, gw_model_work(w->model) + to.off,
                      NULL);
    gw_phase_leave();
}

static gw_err pipeline_forward(gw_pipeline *w, pipeline_step *s, gw_act act) {
    const gw_pipeline_job *job = s->job;
    GW_TRY(gw_pipeline_vacate(w, act));
    if (gw_pipeline_is_bottom(w, act.chunk))
        pipeline_gather(w, job, act);
    GW_TRY(gw_pipeline_forward(w, act, act.micro == 0));
    if (!gw_pipeline_is_top(w, act.chunk))
        return gw_pipeline_send(w, act);
    const uint8_t *labels = w->labels + gw_pipeline_part(w, act.micro).off;
    return gw_pipeline_loss(w, act, labels, 1.0f / (float)job->global, &s->loss, NULL);
}

static gw_pipeline_onto pipeline_onto(const gw_pipeline *w, const pipeline_step *s, gw_act act) {
    return (gw_pipeline_onto){.grads = s->grads,
                              .add = s->add || act.micro > 0,
                              .last = act.micro + 1 == gw_pipeline_micros(w)};
}

/* A recomputed top has its logits again, which the loss must turn into deltas again. */
static gw_err pipeline_repeat_loss(gw_pipeline *w, const pipeline_step *s, gw_act act) {
    double sum = 0;
    const uint8_t *labels = w->labels + gw_pipeline_part(w, act.micro).off;
    return gw_pipeline_loss(w, act, labels, 1.0f / (float)s->job->global, &sum, NULL);
}

static gw_err pipeline_backward(gw_pipeline *w, const pipeline_step *s, gw_act act) {
    gw_pipeline_onto onto = pipeline_onto(w, s, act);
    GW_TRY(gw_pipeline_vacate(w, act));
    if (w->room.recompute) { /* over outputs that may still be on their way */
        GW_TRY(gw_pipeline_vacate(w, (gw_act){GW_ACT_FORWARD, act.chunk, act.micro}));
        GW_TRY(gw_pipeline_forward(w, act, false));
        if (gw_pipeline_is_top(w, act.chunk))
            GW_TRY(pipeline_repeat_loss(w, s, act));
    }
    return gw_pipeline_backward(w, act, &onto);
}

static gw_err pipeline_act(gw_pipeline *w, pipeline_step *s, int at) {
    gw_act act = w->acts[at];
    GW_TRY(pipeline_take(w, at));
    switch (act.kind) {
    case GW_ACT_FORWARD: return pipeline_forward(w, s, act);
    case GW_ACT_WEIGHTS: {
        gw_pipeline_onto onto = pipeline_onto(w, s, act);
        return gw_pipeline_weights(w, act, &onto);
    }
    default: return pipeline_backward(w, s, act);
    }
}

/* The last microbatch's backward pass hands out gradients: the whole loss is known by then. */
static void pipeline_tell(gw_pipeline *w, pipeline_step *s, gw_act act) {
    if (act.kind == GW_ACT_FORWARD)
        return;
    if (!s->grads)
        w->hooks.begin(w->hooks.ctx, &s->grads, &s->add);
    if (!s->told && act.micro + 1 == gw_pipeline_micros(w)) {
        w->hooks.loss(w->hooks.ctx, s->loss);
        s->told = true;
    }
}

static void pipeline_poll(void *pipeline) {
    gw_pipeline *w = pipeline;
    if (w->failed == GW_OK)
        w->failed = gw_pipeline_poll(w);
}

/* Everything sent has left: the next step writes there. */
static gw_err pipeline_drain(gw_pipeline *w) {
    for (int i = 0; i < w->n_acts; i++) {
        gw_schedule *s = gw_pipeline_hop(w, w->acts[i], false);
        if (s)
            GW_TRY(gw_pipeline_wait(w, s));
    }
    return GW_OK;
}

static gw_err pipeline_acts(gw_pipeline *w, pipeline_step *s) {
    GW_TRY(pipeline_post(w, 0, true));
    GW_TRY(pipeline_post(w, 0, false));
    for (int i = 0; i < w->n_acts; i++) {
        pipeline_tell(w, s, w->acts[i]);
        GW_TRY(pipeline_act(w, s, i));
    }
    return pipeline_drain(w);
}

gw_err gw_pipeline_step(gw_pipeline *w, const gw_pipeline_job *job, double *loss_sum) {
    pipeline_step s = {.job = job};
    w->local = job->local;
    w->size = job->local == w->rows.full ? GW_PIPELINE_FULL : GW_PIPELINE_LAST;
    w->step = job->step;
    w->failed = GW_OK;
    gw_phase_enter(GW_PHASE_DATA);
    gw_dataset_labels(job->set, job->idx, job->local, w->labels);
    gw_phase_leave();
    gw_gemm_between(pipeline_poll, w);
    gw_err e = pipeline_acts(w, &s);
    gw_gemm_between(NULL, NULL);
    *loss_sum = gw_pipeline_counts(w) ? s.loss : 0;
    return e == GW_OK ? w->failed : e;
}

bool gw_pipeline_counts(const gw_pipeline *w) {
    return w->stage == w->stages - 1 && w->mesh->at[GW_DIM_TENSOR] == 0;
}
