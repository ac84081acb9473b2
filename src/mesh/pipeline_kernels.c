/* Layers of a chunk, and what tensor ranks exchange between the halves of each. With
 * --tensor-chunks a microbatch passes in runs of rows: what one sends travels while the next is
 * computed. */
#include "mesh/pipeline_parts.h"

#include "base/probe.h"

/* ---- joins ---- */

static gw_pipeline_way pipeline_way(const gw_pipeline *p, gw_moment moment) {
    bool exact = moment == GW_MOMENT_LOSS || moment == GW_MOMENT_PARAMETERS;
    return p->now.testing || exact     ? GW_PIPELINE_EXACT
           : moment == GW_MOMENT_DELTA ? GW_PIPELINE_DELTAS
                                       : GW_PIPELINE_ACTIVATIONS;
}

/* The schedule of a join; NULL: there is nothing to exchange. */
static gw_err pipeline_join(gw_pipeline *p, int l, gw_moment moment, gw_micro at,
                            gw_schedule **out) {
    *out = NULL;
    if (!p->join_lane[GW_PIPELINE_EXACT] || p->now.exec.alone)
        return GW_OK;
    gw_join join = gw_model_join(p->model, l, moment, at);
    if (join.kind == GW_JOIN_NONE)
        return GW_OK;
    return gw_collective_get(&p->join[pipeline_way(p, moment)][join.kind], join.over, out);
}

static gw_err pipeline_join_start(gw_pipeline *p, int l, gw_moment moment, gw_micro at, int micro) {
    gw_schedule *s;
    GW_TRY(pipeline_join(p, l, moment, at, &s));
    return s ? gw_runner_start(&p->runner, s, micro) : GW_OK;
}

static gw_err pipeline_join_wait(gw_pipeline *p, int l, gw_moment moment, gw_micro at) {
    gw_schedule *s;
    GW_TRY(pipeline_join(p, l, moment, at, &s));
    return s ? gw_runner_wait(&p->runner, s) : GW_OK;
}

static bool pipeline_joins(const gw_pipeline *p, int l, gw_moment moment, gw_micro at) {
    return p->join_lane[GW_PIPELINE_EXACT] &&
           gw_model_join(p->model, l, moment, at).kind != GW_JOIN_NONE;
}

/* ---- runs of rows ---- */

static int pipeline_runs(const gw_pipeline *p, bool exchanges, gw_micro at) {
    int most = at.n > 1 ? at.n : 1, k = exchanges ? p->options->tensor_chunks : 1;
    return k < most ? k : most;
}

static gw_micro pipeline_run(gw_micro at, int i, int runs) {
    gw_span part = gw_span_part((gw_span){(size_t)at.first, (size_t)at.n}, i, runs);
    at.first = (int)part.off;
    at.n = (int)part.n;
    return at;
}

static gw_err pipeline_between(gw_pipeline *p) {
    GW_TRY(p->failed);
    return gw_pipeline_poll(p);
}

/* ---- forward ---- */

/* What tensor ranks have parts of, and each reads whole: once a step, for it stays. */
static gw_err pipeline_layer_gather(gw_pipeline *p, int l, gw_micro at, int micro, gw_phase phase) {
    if (!pipeline_joins(p, l, GW_MOMENT_PARAMETERS, at))
        return GW_OK;
    gw_pipeline_enter(p, phase);
    gw_model_pack(p->model, l, GW_MOMENT_PARAMETERS, at);
    gw_pipeline_leave(p, GW_COMPUTED_FORWARD, l, 0);
    GW_TRY(pipeline_join_start(p, l, GW_MOMENT_PARAMETERS, at, micro));
    return pipeline_join_wait(p, l, GW_MOMENT_PARAMETERS, at);
}

static gw_err pipeline_layer_forward(gw_pipeline *p, int l, gw_micro at, int micro,
                                     gw_phase phase) {
    bool gathers = pipeline_joins(p, l, GW_MOMENT_INPUT, at);
    bool exchanges = gathers || pipeline_joins(p, l, GW_MOMENT_PRODUCT, at);
    int runs = pipeline_runs(p, exchanges, at);
    for (int i = 0; gathers && i < runs; i++) {
        gw_micro rows = pipeline_run(at, i, runs);
        gw_pipeline_enter(p, phase);
        gw_model_pack(p->model, l, GW_MOMENT_INPUT, rows);
        gw_pipeline_leave(p, GW_COMPUTED_FORWARD, l, 0);
        GW_TRY(pipeline_join_start(p, l, GW_MOMENT_INPUT, rows, micro));
    }
    for (int i = 0; i < runs; i++) {
        gw_micro rows = pipeline_run(at, i, runs);
        GW_TRY(pipeline_join_wait(p, l, GW_MOMENT_INPUT, rows));
        gw_pipeline_enter(p, phase);
        gw_model_unpack(p->model, l, GW_MOMENT_INPUT, rows);
        gw_model_product(p->model, l, rows);
        if (!exchanges)
            gw_model_transfer(p->model, l, rows);
        gw_pipeline_leave(p, GW_COMPUTED_FORWARD, l, (size_t)rows.n);
        GW_TRY(pipeline_join_start(p, l, GW_MOMENT_PRODUCT, rows, micro));
    }
    for (int i = 0; exchanges && i < runs; i++) {
        gw_micro rows = pipeline_run(at, i, runs);
        GW_TRY(pipeline_join_wait(p, l, GW_MOMENT_PRODUCT, rows));
        gw_pipeline_enter(p, phase);
        gw_model_transfer(p->model, l, rows);
        gw_pipeline_leave(p, GW_COMPUTED_FORWARD, l, 0);
    }
    return pipeline_between(p);
}

/* A forward pass, or one that is repeated within another action. */
static gw_phase pipeline_pass(gw_act act) {
    return act.kind == GW_ACT_FORWARD ? GW_PHASE_FORWARD : GW_PHASE_RECOMPUTE;
}

gw_err gw_pipeline_forward(gw_pipeline *p, gw_act act, bool first) {
    int l, end;
    gw_micro at = gw_pipeline_at(p, act);
    gw_phase phase = pipeline_pass(act);
    for (gw_pipeline_layers(p, act.chunk, &l, &end); l < end; l++) {
        if (first && p->hooks.await)
            GW_TRY(p->hooks.await(p->hooks.ctx, l));
        if (first || p->now.testing)
            GW_TRY(pipeline_layer_gather(p, l, at, act.micro, phase));
        GW_TRY(pipeline_layer_forward(p, l, at, act.micro, phase));
    }
    return GW_OK;
}

gw_err gw_pipeline_loss(gw_pipeline *p, gw_act act, const gw_label *labels, float scale,
                        double *sum, int *correct) {
    gw_micro at = gw_pipeline_at(p, act);
    int top = p->shard.n_layers - 1;
    gw_phase phase = pipeline_pass(act);
    if (pipeline_joins(p, top, GW_MOMENT_LOSS, at)) {
        gw_pipeline_enter(p, phase);
        gw_model_loss_tell(p->model, labels, at);
        gw_pipeline_leave(p, GW_COMPUTED_LOSS, top, 0);
    }
    GW_TRY(pipeline_join_start(p, top, GW_MOMENT_LOSS, at, act.micro));
    GW_TRY(pipeline_join_wait(p, top, GW_MOMENT_LOSS, at));
    gw_pipeline_enter(p, phase);
    *sum += gw_model_loss_join(p->model, labels, at, scale, correct);
    gw_pipeline_leave(p, GW_COMPUTED_LOSS, top, (size_t)at.n);
    return GW_OK;
}

/* ---- backward ---- */

static gw_err pipeline_ready(gw_pipeline *p, int l, const gw_pipeline_onto *onto) {
    if (onto->last && p->hooks.ready)
        GW_TRY(p->hooks.ready(p->hooks.ctx, l));
    return pipeline_between(p);
}

/* `enters`: through the transfer first. */
static void pipeline_layer_weights(const gw_pipeline *p, int l, gw_micro at, bool enters,
                                   const gw_pipeline_onto *onto) {
    gw_pipeline_enter(p, GW_PHASE_BACKWARD);
    if (enters)
        gw_model_enter(p->model, l, at, onto->grads, onto->add);
    gw_model_weights(p->model, l, at, onto->grads, onto->add);
    gw_pipeline_leave(p, GW_COMPUTED_WEIGHTS, l, (size_t)at.n);
}

static gw_err pipeline_layer_descend(gw_pipeline *p, int l, gw_act act, gw_micro at, int runs) {
    for (int i = 0; i < runs; i++) {
        gw_micro rows = pipeline_run(at, i, runs);
        gw_pipeline_enter(p, GW_PHASE_BACKWARD);
        gw_model_descend_rows(p->model, l, rows);
        gw_model_pack(p->model, l, GW_MOMENT_DELTA, rows);
        gw_pipeline_leave(p, GW_COMPUTED_INPUT, l, (size_t)rows.n);
        GW_TRY(pipeline_join_start(p, l, GW_MOMENT_DELTA, rows, act.micro));
    }
    return GW_OK;
}

/* The gradient of the weights comes first where nobody waits for the delta of the inputs: it is on
 * its way while that is computed. Else the delta leaves as early as can be: before the weights'
 * gradients, or, where it must be summed first, with the sum under way meanwhile. */
static gw_err pipeline_layer_backward(gw_pipeline *p, int l, gw_act act, gw_micro at, bool bottom,
                                      const gw_pipeline_onto *onto) {
    bool exchanges = pipeline_joins(p, l, GW_MOMENT_DELTA, at);
    bool leaves =
        exchanges || (bottom && gw_timetable_target(p->timetable, p->at.stage, act).stage >= 0);
    bool weighs = act.kind == GW_ACT_BACKWARD, first = weighs && !leaves;
    bool arrives = exchanges && gw_model_arrives(p->model, l); /* with a part of the gradient */
    int runs = pipeline_runs(p, exchanges, at);
    if (first) {
        pipeline_layer_weights(p, l, at, true, onto);
        GW_TRY(pipeline_ready(p, l, onto));
    } else {
        gw_pipeline_enter(p, GW_PHASE_BACKWARD);
        gw_model_enter(p->model, l, at, onto->grads, onto->add);
        gw_pipeline_leave(p, GW_COMPUTED_INPUT, l, 0);
    }
    GW_TRY(pipeline_layer_descend(p, l, act, at, runs));
    if (!exchanges && bottom)
        GW_TRY(gw_pipeline_send(p, act));
    if (weighs && leaves)
        pipeline_layer_weights(p, l, at, false, onto);
    if (weighs && leaves && !arrives)
        GW_TRY(pipeline_ready(p, l, onto));
    for (int i = 0; exchanges && i < runs; i++) {
        gw_micro rows = pipeline_run(at, i, runs);
        GW_TRY(pipeline_join_wait(p, l, GW_MOMENT_DELTA, rows));
        gw_pipeline_enter(p, GW_PHASE_BACKWARD);
        gw_model_unpack(p->model, l, GW_MOMENT_DELTA, rows);
        gw_model_arrive(p->model, l, rows, onto->grads);
        gw_pipeline_leave(p, GW_COMPUTED_INPUT, l, 0);
    }
    if (weighs && arrives)
        GW_TRY(pipeline_ready(p, l, onto));
    return exchanges && bottom ? gw_pipeline_send(p, act) : pipeline_between(p);
}

gw_err gw_pipeline_backward(gw_pipeline *p, gw_act act, const gw_pipeline_onto *onto) {
    int first, end;
    gw_micro at = gw_pipeline_at(p, act);
    gw_pipeline_layers(p, act.chunk, &first, &end);
    for (int l = end - 1; l >= first; l--)
        GW_TRY(pipeline_layer_backward(p, l, act, at, l == first, onto));
    return GW_OK;
}

gw_err gw_pipeline_weights(gw_pipeline *p, gw_act act, const gw_pipeline_onto *onto) {
    int first, end;
    gw_micro at = gw_pipeline_at(p, act);
    gw_pipeline_layers(p, act.chunk, &first, &end);
    for (int l = end - 1; l >= first; l--) {
        pipeline_layer_weights(p, l, at, false, onto);
        GW_TRY(pipeline_ready(p, l, onto));
    }
    return GW_OK;
}
