/* The actions of a step, in the timetable's order, with the hops that they need. */
#include "run/pipeline_parts.h"

#include "base/probe.h"
#include "comm/lane_parts.h"
#include "nn/gemm.h"
#include "run/hook.h"

gw_span gw_pipeline_part(const gw_pipeline *p, int micro) {
    return gw_span_part((gw_span){0, (size_t)p->local}, micro, gw_pipeline_micros(p));
}

/* Outputs that go with a delta's place, but are not kept, have a place of their own. */
gw_micro gw_pipeline_at(const gw_pipeline *p, gw_act act) {
    const gw_model_room *r = &p->room;
    int own = r->keep && r->recompute, places = r->deltas - own;
    bool passing = own && act.kind == GW_ACT_FORWARD;
    return (gw_micro){.slot = act.micro % r->slots[act.chunk],
                      .delta = passing ? places : act.micro % places,
                      .n = p->testing ? p->local : (int)gw_pipeline_part(p, act.micro).n};
}

/* Random numbers depend on step and microbatch, whatever the timetable. */
gw_err gw_pipeline_start(gw_pipeline *p, gw_schedule *s, int micro) {
    gw_lane *lane = gw_schedule_lane(s);
    while (lane->parent) /* an algorithm may have split it */
        lane = lane->parent;
    lane->ticket = p->step * (uint64_t)p->options->microbatches + (uint64_t)micro;
    gw_phase_enter(GW_PHASE_MPI_POST);
    gw_err e = gw_queue_start(p->queue, s);
    gw_phase_leave();
    return e;
}

gw_err gw_pipeline_wait(gw_pipeline *p, gw_schedule *s) {
    gw_phase_enter(GW_PHASE_MPI_WAIT);
    gw_err e = gw_queue_wait(p->queue, s);
    gw_phase_leave();
    return e;
}

gw_err gw_pipeline_poll(gw_pipeline *p) {
    gw_phase_enter(GW_PHASE_MPI_POLL);
    gw_err e = gw_queue_poll(p->queue);
    gw_phase_leave();
    GW_TRY(e);
    return p->hooks.poll(p->hooks.ctx);
}

/* ---- hops ---- */

static gw_edge pipeline_edge(gw_act act, bool receives) {
    if (act.kind == GW_ACT_FORWARD)
        return receives ? GW_EDGE_INPUT : GW_EDGE_OUTPUT;
    return receives ? GW_EDGE_OUTPUT_DELTA : GW_EDGE_INPUT_DELTA;
}

gw_schedule *gw_pipeline_hop(const gw_pipeline *p, gw_act act, bool receives) {
    const gw_timetable *t = p->timetable;
    if (act.kind == GW_ACT_WEIGHTS || !p->hops[p->size])
        return NULL;
    gw_place peer =
        receives ? gw_timetable_source(t, p->stage, act) : gw_timetable_target(t, p->stage, act);
    if (peer.stage < 0)
        return NULL;
    int mine = act.chunk * p->stages + p->stage, other = peer.chunk * p->stages + peer.stage;
    gw_hop hop = {act.kind == GW_ACT_FORWARD ? GW_HOP_ACTIVATION : GW_HOP_DELTA,
                  mine < other ? mine : other, act.micro};
    return gw_hops_end(p->hops[p->size], hop);
}

gw_err gw_pipeline_vacate(gw_pipeline *p, gw_act act) {
    const gw_model_room *room = &p->room;
    bool forward = act.kind == GW_ACT_FORWARD;
    int span = forward ? room->slots[act.chunk] : room->deltas;
    gw_edge edge = pipeline_edge(act, false);
    gw_span mine = gw_model_edge(p->model, act.chunk, edge, gw_pipeline_at(p, act));
    for (int j = act.micro - span > 0 ? act.micro - span : 0; j < act.micro + span; j++) {
        gw_act other = {act.kind, act.chunk, j};
        if (j >= gw_pipeline_micros(p))
            continue;
        gw_schedule *s = gw_pipeline_hop(p, other, false);
        gw_span theirs = gw_model_edge(p->model, act.chunk, edge, gw_pipeline_at(p, other));
        if (s && gw_span_overlap(mine, theirs))
            GW_TRY(gw_pipeline_wait(p, s));
    }
    return GW_OK;
}

gw_err gw_pipeline_send(gw_pipeline *p, gw_act act) {
    gw_schedule *s = gw_pipeline_hop(p, act, false);
    return s ? gw_pipeline_start(p, s, act.micro) : GW_OK;
}

static bool pipeline_takes_activation(gw_act act) {
    return act.kind == GW_ACT_FORWARD;
}

/* Post one receive ahead: of the first action, from `at` on, that takes an activation (or else a
 * delta) from another stage. */
static gw_err pipeline_post(gw_pipeline *p, int at, bool activation) {
    for (; at < p->n_acts; at++) {
        gw_schedule *s = pipeline_takes_activation(p->acts[at]) == activation
                             ? gw_pipeline_hop(p, p->acts[at], true)
                             : NULL;
        if (s)
            return gw_pipeline_start(p, s, p->acts[at].micro);
    }
    return GW_OK;
}

/* Have what an action takes, and post the receive of the next that takes such. */
static gw_err pipeline_take(gw_pipeline *p, int at) {
    gw_schedule *s = gw_pipeline_hop(p, p->acts[at], true);
    if (!s)
        return GW_OK;
    GW_TRY(gw_pipeline_wait(p, s));
    return pipeline_post(p, at + 1, pipeline_takes_activation(p->acts[at]));
}

/* ---- actions ---- */

typedef struct pipeline_step {
    const gw_pipeline_job *job;
    double loss;
    float *grads; /* NULL: no backward pass has begun */
    bool add;
    bool told; /* the loss was */
} pipeline_step;

static void pipeline_gather(gw_pipeline *p, const gw_pipeline_job *job, gw_act act) {
    gw_span part = gw_pipeline_part(p, act.micro);
    gw_span to = gw_model_edge(p->model, 0, GW_EDGE_INPUT, gw_pipeline_at(p, act));
    gw_phase_enter(GW_PHASE_DATA);
    gw_dataset_gather(job->set, job->idx + part.off, (int)part.n, gw_model_work(p->model) + to.off,
                      NULL);
    gw_phase_leave();
}

static gw_err pipeline_forward(gw_pipeline *p, pipeline_step *s, gw_act act) {
    const gw_pipeline_job *job = s->job;
    GW_TRY(gw_pipeline_vacate(p, act));
    if (gw_pipeline_is_bottom(p, act.chunk))
        pipeline_gather(p, job, act);
    GW_TRY(gw_pipeline_forward(p, act, act.micro == 0));
    if (!gw_pipeline_is_top(p, act.chunk))
        return gw_pipeline_send(p, act);
    const uint8_t *labels = p->labels + gw_pipeline_part(p, act.micro).off;
    return gw_pipeline_loss(p, act, labels, 1.0f / (float)job->global, &s->loss, NULL);
}

static gw_pipeline_onto pipeline_onto(const gw_pipeline *p, const pipeline_step *s, gw_act act) {
    return (gw_pipeline_onto){.grads = s->grads,
                              .add = s->add || act.micro > 0,
                              .last = act.micro + 1 == gw_pipeline_micros(p)};
}

/* A recomputed top has its logits again, which the loss must turn into deltas again. */
static gw_err pipeline_repeat_loss(gw_pipeline *p, const pipeline_step *s, gw_act act) {
    double sum = 0;
    const uint8_t *labels = p->labels + gw_pipeline_part(p, act.micro).off;
    return gw_pipeline_loss(p, act, labels, 1.0f / (float)s->job->global, &sum, NULL);
}

static gw_err pipeline_backward(gw_pipeline *p, const pipeline_step *s, gw_act act) {
    gw_pipeline_onto onto = pipeline_onto(p, s, act);
    GW_TRY(gw_pipeline_vacate(p, act));
    if (p->room.recompute) { /* over outputs that may still be on their way */
        GW_TRY(gw_pipeline_vacate(p, (gw_act){GW_ACT_FORWARD, act.chunk, act.micro}));
        GW_TRY(gw_pipeline_forward(p, act, false));
        if (gw_pipeline_is_top(p, act.chunk))
            GW_TRY(pipeline_repeat_loss(p, s, act));
    }
    return gw_pipeline_backward(p, act, &onto);
}

static gw_err pipeline_act(gw_pipeline *p, pipeline_step *s, int at) {
    static const char *const words[] = {[GW_ACT_FORWARD] = "forward pass",
                                        [GW_ACT_BACKWARD] = "backward pass",
                                        [GW_ACT_INPUT] = "gradient of the input",
                                        [GW_ACT_WEIGHTS] = "gradient of the weights"};
    gw_act act = p->acts[at];
    gw_hook_act(words[act.kind], p->stage, act.chunk, act.micro);
    GW_TRY(pipeline_take(p, at));
    switch (act.kind) {
    case GW_ACT_FORWARD: return pipeline_forward(p, s, act);
    case GW_ACT_WEIGHTS: {
        gw_pipeline_onto onto = pipeline_onto(p, s, act);
        return gw_pipeline_weights(p, act, &onto);
    }
    default: return pipeline_backward(p, s, act);
    }
}

/* The last microbatch's backward pass hands out gradients: the whole loss is known by then. */
static void pipeline_tell(gw_pipeline *p, pipeline_step *s, gw_act act) {
    if (act.kind == GW_ACT_FORWARD)
        return;
    if (!s->grads)
        p->hooks.begin(p->hooks.ctx, &s->grads, &s->add);
    if (!s->told && act.micro + 1 == gw_pipeline_micros(p)) {
        p->hooks.loss(p->hooks.ctx, s->loss);
        s->told = true;
    }
}

static void pipeline_poll(void *pipeline) {
    gw_pipeline *p = pipeline;
    if (p->failed == GW_OK)
        p->failed = gw_pipeline_poll(p);
}

/* Everything sent has left: the next step writes there. */
static gw_err pipeline_drain(gw_pipeline *p) {
    for (int i = 0; i < p->n_acts; i++) {
        gw_schedule *s = gw_pipeline_hop(p, p->acts[i], false);
        if (s)
            GW_TRY(gw_pipeline_wait(p, s));
    }
    return GW_OK;
}

static gw_err pipeline_acts(gw_pipeline *p, pipeline_step *s) {
    GW_TRY(pipeline_post(p, 0, true));
    GW_TRY(pipeline_post(p, 0, false));
    for (int i = 0; i < p->n_acts; i++) {
        pipeline_tell(p, s, p->acts[i]);
        GW_TRY(pipeline_act(p, s, i));
    }
    return pipeline_drain(p);
}

gw_err gw_pipeline_step(gw_pipeline *p, const gw_pipeline_job *job, double *loss_sum) {
    pipeline_step s = {.job = job};
    p->local = job->local;
    p->size = job->local == p->rows.full ? GW_PIPELINE_FULL : GW_PIPELINE_LAST;
    p->step = job->step;
    p->failed = GW_OK;
    gw_phase_enter(GW_PHASE_DATA);
    gw_dataset_labels(job->set, job->idx, job->local, p->labels);
    gw_phase_leave();
    gw_gemm_between(pipeline_poll, p);
    gw_err e = pipeline_acts(p, &s);
    gw_gemm_between(NULL, NULL);
    gw_hook_act(NULL, 0, 0, 0);
    *loss_sum = gw_pipeline_counts(p) ? s.loss : 0;
    return e == GW_OK ? p->failed : e;
}

bool gw_pipeline_counts(const gw_pipeline *p) {
    return p->stage == p->stages - 1 && p->mesh->at[GW_DIM_TENSOR] == 0;
}
