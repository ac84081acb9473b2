/* The actions of a step, in the timetable's order, with the hops that they need. */
#include "mesh/pipeline_parts.h"

#include "base/hook.h"
#include "base/probe.h"
#include "nn/gemm.h"

/* The rows of microbatch `micro` among those of this rank's local batch. */
static gw_span pipeline_part(const gw_pipeline *p, int micro) {
    return gw_span_part((gw_span){0, (size_t)p->now.local}, micro, gw_pipeline_micros(p));
}

/* Outputs that go with a delta's place, but are not kept, have a place of their own. */
gw_micro gw_pipeline_at(const gw_pipeline *p, gw_act act) {
    const gw_model_room *r = &p->room;
    int own = r->keep && r->recompute, places = r->deltas - own;
    bool passing = own && act.kind == GW_ACT_FORWARD;
    return (gw_micro){.slot = act.micro % r->slots[act.chunk],
                      .delta = passing ? places : act.micro % places,
                      .n = p->now.testing ? p->now.local : (int)pipeline_part(p, act.micro).n};
}

void gw_pipeline_run_over(gw_pipeline *p, gw_pipeline_size size) {
    p->runner.hops = p->hops[size];
    p->runner.micros = gw_pipeline_micros(p);
}

static gw_err pipeline_poll(gw_pipeline *p, bool within) {
    gw_err e = GW_OK;
    if (p->runner.queue) {
        gw_phase_enter(GW_PHASE_MPI_POLL);
        e = gw_queue_poll(p->runner.queue);
        gw_phase_leave();
    }
    if (p->hooks.poll)
        GW_THEN(e, p->hooks.poll(p->hooks.ctx, within));
    return e;
}

gw_err gw_pipeline_poll(gw_pipeline *p) {
    return pipeline_poll(p, false);
}

/* ---- who executes it ---- */

void gw_pipeline_enter(const gw_pipeline *p, gw_phase phase) {
    gw_phase_enter(phase);
    if (p->now.exec.begin)
        p->now.exec.begin(p->now.exec.ctx);
}

void gw_pipeline_leave(const gw_pipeline *p, gw_computed what, int l, size_t n) {
    if (p->now.exec.spend)
        p->now.exec.spend(p->now.exec.ctx, what, l, n);
    gw_phase_leave();
}

void gw_pipeline_lend(gw_pipeline *p, gw_model *model) {
    p->model = model;
}

gw_err gw_pipeline_send(gw_pipeline *p, gw_act act) {
    gw_schedule *s = gw_runner_hop(&p->runner, act, false);
    if (!s)
        return GW_OK;
    return gw_runner_start(&p->runner, s, act.micro);
}

/* ---- actions ---- */

typedef struct pipeline_step {
    gw_pipeline *pipeline;
    const gw_pipeline_job *job;
    double loss;
    float *grads; /* NULL: no backward pass has begun */
    bool add;
    bool told; /* the loss was */
} pipeline_step;

static void pipeline_gather(gw_pipeline *p, const gw_pipeline_job *job, gw_act act) {
    gw_span part = pipeline_part(p, act.micro);
    gw_span to = gw_model_edge(p->model, 0, GW_EDGE_INPUT, gw_pipeline_at(p, act));
    if (!job->set)
        return;
    gw_pipeline_enter(p, GW_PHASE_DATA);
    gw_dataset_gather(job->set, job->idx + part.off, (int)part.n, gw_model_work(p->model) + to.off,
                      NULL);
    gw_pipeline_leave(p, GW_COMPUTED_DATA, 0, part.n);
}

static const gw_label *pipeline_labels(const pipeline_step *s, gw_act act) {
    size_t targets = (size_t)gw_model_spec_targets(gw_model_get_spec(s->pipeline->model));
    return s->job->labels + pipeline_part(s->pipeline, act.micro).off * targets;
}

static gw_err pipeline_forward(gw_pipeline *p, pipeline_step *s, gw_act act) {
    const gw_pipeline_job *job = s->job;
    if (gw_pipeline_is_bottom(p, act.chunk))
        pipeline_gather(p, job, act);
    GW_TRY(gw_pipeline_forward(p, act, act.micro == 0));
    if (!gw_pipeline_is_top(p, act.chunk))
        return gw_pipeline_send(p, act);
    return gw_pipeline_loss(p, act, pipeline_labels(s, act), 1.0f / (float)job->global, &s->loss,
                            NULL);
}

static gw_pipeline_onto pipeline_onto(const gw_pipeline *p, const pipeline_step *s, gw_act act) {
    return (gw_pipeline_onto){.grads = s->grads,
                              .add = s->add || act.micro > 0,
                              .last = act.micro + 1 == gw_pipeline_micros(p)};
}

/* A recomputed top has its logits again, which the loss must turn into deltas again. */
static gw_err pipeline_repeat_loss(gw_pipeline *p, const pipeline_step *s, gw_act act) {
    double sum = 0;
    return gw_pipeline_loss(p, act, pipeline_labels(s, act), 1.0f / (float)s->job->global, &sum,
                            NULL);
}

static gw_err pipeline_backward(gw_pipeline *p, const pipeline_step *s, gw_act act) {
    gw_pipeline_onto onto = pipeline_onto(p, s, act);
    if (p->room.recompute) {
        GW_TRY(gw_pipeline_forward(p, act, false));
        if (gw_pipeline_is_top(p, act.chunk))
            GW_TRY(pipeline_repeat_loss(p, s, act));
    }
    return gw_pipeline_backward(p, act, &onto);
}

/* What an action writes over has left; so have the outputs that it computes again. */
static gw_err pipeline_make_way(const gw_pipeline *p, gw_act act) {
    GW_TRY(gw_runner_vacate(&p->runner, act));
    if (p->room.recompute && (act.kind == GW_ACT_BACKWARD || act.kind == GW_ACT_INPUT))
        return gw_runner_vacate(&p->runner, (gw_act){GW_ACT_FORWARD, act.chunk, act.micro});
    return GW_OK;
}

/* The last microbatch's backward pass hands out gradients: the whole loss is known by then. */
static void pipeline_tell(gw_pipeline *p, pipeline_step *s, gw_act act) {
    if (act.kind == GW_ACT_FORWARD)
        return;
    if (!s->grads)
        p->hooks.begin(p->hooks.ctx, &s->grads, &s->add);
    if (!s->told && act.micro + 1 == gw_pipeline_micros(p)) {
        if (p->hooks.loss)
            p->hooks.loss(p->hooks.ctx, s->loss);
        s->told = true;
    }
}

static void pipeline_next(void *step, gw_act act) {
    static const char *const words[] = {[GW_ACT_FORWARD] = "forward pass",
                                        [GW_ACT_BACKWARD] = "backward pass",
                                        [GW_ACT_INPUT] = "gradient of the input",
                                        [GW_ACT_WEIGHTS] = "gradient of the weights"};
    pipeline_step *s = step;
    if (!gw_pipeline_is_whole(s->pipeline))
        gw_hook_act(words[act.kind], s->pipeline->at.stage, act.chunk, act.micro);
    pipeline_tell(s->pipeline, s, act);
}

static gw_err pipeline_do(gw_pipeline *p, pipeline_step *s, gw_act act) {
    switch (act.kind) {
    case GW_ACT_FORWARD: return pipeline_forward(p, s, act);
    case GW_ACT_WEIGHTS: {
        gw_pipeline_onto onto = pipeline_onto(p, s, act);
        return gw_pipeline_weights(p, act, &onto);
    }
    default: return pipeline_backward(p, s, act);
    }
}

static gw_err pipeline_act(void *step, gw_act act) {
    pipeline_step *s = step;
    gw_pipeline *p = s->pipeline;
    gw_action told = {gw_act_letter(act.kind), act.chunk, act.micro};
    bool tells = p->mesh && !p->now.exec.aside;
    GW_TRY(pipeline_make_way(p, act));
    if (tells)
        gw_action_tell(&told, 1);
    GW_TRY(pipeline_do(p, s, act));
    if (tells)
        gw_action_tell(&told, 0);
    return GW_OK;
}

static void pipeline_poll_within(void *pipeline) {
    gw_pipeline *p = pipeline;
    GW_THEN(p->failed, pipeline_poll(p, true));
}

static void pipeline_between(const gw_pipeline *p, void (*poll)(void *of), void *of) {
    if (p->now.exec.between)
        p->now.exec.between(p->now.exec.ctx, poll, of);
    else
        gw_gemm_between(poll, of);
}

/* All actions, with polls between the pieces of products, or of the time that they take. */
static gw_err pipeline_run(gw_pipeline *p, bool pieces) {
    if (p->now.exec.alone)
        p->runner.hops = NULL;
    if (pieces)
        pipeline_between(p, pipeline_poll_within, p);
    gw_err e = gw_runner_step(&p->runner);
    if (pieces)
        pipeline_between(p, NULL, NULL);
    return e;
}

gw_err gw_pipeline_step(gw_pipeline *p, const gw_pipeline_job *job, double *loss_sum) {
    pipeline_step s = {.pipeline = p, .job = job};
    p->now.local = job->local;
    gw_model_count(p->model, job->global);
    gw_pipeline_run_over(p, job->local == p->rows.full ? GW_PIPELINE_FULL : GW_PIPELINE_LAST);
    p->runner.step = job->step;
    p->runner.next = pipeline_next;
    p->runner.act = pipeline_act;
    p->runner.ctx = &s;
    p->failed = GW_OK;
    if (job->set) {
        gw_phase_enter(GW_PHASE_DATA);
        gw_dataset_labels(job->set, job->idx, job->local, job->labels);
        gw_phase_leave();
    }
    gw_err e = pipeline_run(p, job->pieces);
    gw_hook_act(NULL, 0, 0, 0);
    *loss_sum = gw_pipeline_counts(p) ? s.loss : 0;
    return e == GW_OK ? p->failed : e;
}

gw_err gw_pipeline_step_by(gw_pipeline *p, const gw_pipeline_job *job, const gw_exec *exec,
                           const gw_pipeline_hooks *hooks, double *loss_sum) {
    gw_pipeline_hooks own = p->hooks;
    p->now.exec = *exec;
    if (hooks)
        p->hooks = *hooks;
    gw_err e = gw_pipeline_step(p, job, loss_sum);
    p->now.exec = (gw_exec){0};
    p->hooks = own;
    return e;
}

bool gw_pipeline_is_whole(const gw_pipeline *p) {
    return !p->mesh;
}

bool gw_pipeline_counts(const gw_pipeline *p) {
    return !p->mesh || (p->at.stage == p->at.stages - 1 && p->mesh->at[GW_DIM_TENSOR] == 0);
}
