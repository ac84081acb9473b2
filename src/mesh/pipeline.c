/* A step of a model: its samples, its gradients, and polls of what else is under way. */
#include "mesh/pipeline_parts.h"

#include "base/hook.h"
#include "base/probe.h"
#include "nn/gemm.h"

gw_span gw_pipeline_part(const gw_pipeline *p, int micro) {
    return gw_span_part((gw_span){0, (size_t)p->now.local}, micro, gw_pipeline_micros(p));
}

/* Outputs that go with a delta's place, but are not kept, have a place of their own. */
gw_micro gw_pipeline_at(const gw_pipeline *p, gw_act act) {
    const gw_model_room *r = &p->room;
    int own = r->keep && r->recompute, places = r->deltas - own;
    bool passing = own && act.kind == GW_ACT_FORWARD;
    return (gw_micro){.slot = act.micro % r->slots[act.chunk],
                      .delta = passing ? places : act.micro % places,
                      .n = p->now.testing ? p->now.local : (int)gw_pipeline_part(p, act.micro).n};
}

void gw_pipeline_run_over(gw_pipeline *p, gw_pipeline_size size) {
    p->walk.runner.hops = p->hops[size];
    p->walk.runner.micros = gw_pipeline_micros(p);
}

gw_err gw_pipeline_poll(gw_pipeline *p, bool within) {
    gw_err e = GW_OK;
    if (p->walk.runner.queue) {
        gw_phase_enter(GW_PHASE_MPI_POLL);
        e = gw_queue_poll(p->walk.runner.queue);
        gw_phase_leave();
    }
    if (p->hooks.poll)
        GW_THEN(e, p->hooks.poll(p->hooks.ctx, within));
    return e;
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

/* ---- actions ---- */

gw_err gw_pipeline_next(void *pipeline, gw_act act) {
    static const char *const words[] = {[GW_ACT_FORWARD] = "forward pass",
                                        [GW_ACT_BACKWARD] = "backward pass",
                                        [GW_ACT_INPUT] = "gradient of the input",
                                        [GW_ACT_WEIGHTS] = "gradient of the weights"};
    gw_pipeline *p = pipeline;
    gw_pipeline_now *now = &p->now;
    if (!gw_pipeline_is_whole(p))
        gw_hook_act(words[act.kind], p->at.stage, act.chunk, act.micro);
    if (act.kind == GW_ACT_FORWARD)
        return GW_OK;
    if (!now->grads) {
        now->grads = gw_model_grads(p->model);
        if (p->hooks.begin)
            GW_TRY(p->hooks.begin(p->hooks.ctx, &now->grads, &now->add));
    }
    /* The last microbatch's backward pass hands out gradients: the whole loss is known by then. */
    if (!now->told && act.micro + 1 == gw_pipeline_micros(p)) {
        if (p->hooks.loss)
            p->hooks.loss(p->hooks.ctx, now->loss);
        now->told = true;
    }
    return GW_OK;
}

static void pipeline_tell(const gw_pipeline *p, gw_act act, int begins) {
    gw_action told = {gw_act_letter(act.kind), act.chunk, act.micro};
    if (p->mesh && !p->now.exec.aside)
        gw_action_tell(&told, begins);
}

static void pipeline_gather(gw_pipeline *p, gw_act act) {
    const gw_pipeline_job *job = p->now.job;
    gw_span part = gw_pipeline_part(p, act.micro);
    gw_span to = gw_model_edge(p->model, 0, GW_EDGE_INPUT, gw_pipeline_at(p, act));
    gw_pipeline_enter(p, GW_PHASE_DATA);
    gw_dataset_gather(job->set, job->idx + part.off, (int)part.n, gw_model_work(p->model) + to.off,
                      NULL);
    gw_pipeline_leave(p, GW_COMPUTED_DATA, 0, part.n);
}

gw_err gw_pipeline_begin(void *pipeline, gw_act act) {
    gw_pipeline *p = pipeline;
    pipeline_tell(p, act, 1);
    if (act.kind == GW_ACT_FORWARD && gw_walk_is_bottom(&p->walk, act.chunk) && p->now.job->set)
        pipeline_gather(p, act);
    return GW_OK;
}

void gw_pipeline_end(void *pipeline, gw_act act) {
    pipeline_tell(pipeline, act, 0);
}

static void pipeline_poll_within(void *pipeline) {
    gw_pipeline *p = pipeline;
    GW_THEN(p->failed, gw_pipeline_poll(p, true));
}

static void pipeline_between(const gw_pipeline *p, void (*poll)(void *of), void *of) {
    if (p->now.exec.between)
        p->now.exec.between(p->now.exec.ctx, poll, of);
    else
        gw_gemm_between(poll, of);
}

gw_err gw_pipeline_step(gw_pipeline *p, const gw_pipeline_job *job, double *loss_sum) {
    gw_pipeline_hooks hooks = p->hooks;
    p->now = (gw_pipeline_now){.local = job->local, .job = job};
    p->failed = GW_OK;
    gw_model_count(p->model, job->global);
    gw_pipeline_run_over(p, job->local == p->rows.full ? GW_PIPELINE_FULL : GW_PIPELINE_LAST);
    p->walk.runner.step = job->step;
    if (job->exec)
        p->now.exec = *job->exec;
    if (p->now.exec.alone) {
        p->walk.runner.hops = NULL;
        p->hooks = (gw_pipeline_hooks){0};
    }
    if (job->set) {
        gw_phase_enter(GW_PHASE_DATA);
        gw_dataset_labels(job->set, job->idx, job->local, job->labels);
        gw_phase_leave();
    }
    if (job->pieces) /* of products, or of the time that they take */
        pipeline_between(p, pipeline_poll_within, p);
    gw_err e = gw_walk_step(&p->walk);
    if (job->pieces)
        pipeline_between(p, NULL, NULL);
    gw_hook_act(NULL, 0, 0, 0);
    *loss_sum = gw_pipeline_counts(p) ? p->now.loss : 0;
    p->now.exec = (gw_exec){0};
    p->hooks = hooks;
    return e == GW_OK ? p->failed : e;
}

bool gw_pipeline_is_whole(const gw_pipeline *p) {
    return !p->mesh;
}

bool gw_pipeline_counts(const gw_pipeline *p) {
    return !p->mesh || (p->at.stage == p->at.stages - 1 && p->mesh->at[GW_DIM_TENSOR] == 0);
}
