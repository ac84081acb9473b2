/* The walk through a step: its actions, and the layers of each. The order of a layer's backward
 * pass is Megatron-LM's (Shoeybi et al., 2019): what is summed travels under the gradient of the
 * weights. */
#include "mesh/walk.h"

/* A layer of an action. */
typedef struct walk_layer {
    gw_walk *w;
    int l;
    gw_act act;
    gw_micro at;
} walk_layer;

bool gw_walk_is_bottom(const gw_walk *w, int chunk) {
    return w->runner.stage == 0 && chunk == 0;
}

bool gw_walk_is_top(const gw_walk *w, int chunk) {
    const gw_timetable *t = w->runner.timetable;
    return w->runner.stage == gw_timetable_stages(t) - 1 && chunk == gw_timetable_chunks(t) - 1;
}

/* ---- messages ---- */

static void walk_tell(const gw_walk *w, gw_act act, gw_dim d, bool begins) {
    if (w->ops->message)
        w->ops->message(w->of, act, d, begins);
}

gw_err gw_walk_send(gw_walk *w, gw_act act) {
    if (!gw_runner_hop(&w->runner, act, false))
        return GW_OK;
    walk_tell(w, act, GW_DIM_PIPE, true);
    gw_err e = gw_runner_send(&w->runner, act);
    walk_tell(w, act, GW_DIM_PIPE, false);
    return e;
}

/* Starts the exchange of some rows, or waits for it. */
static gw_err walk_join(const walk_layer *x, gw_moment moment, gw_micro rows, bool starts) {
    gw_walk *w = x->w;
    gw_schedule *s;
    GW_TRY(w->ops->join(w->of, x->l, moment, rows, starts, &s));
    if (!s)
        return GW_OK;
    walk_tell(w, x->act, GW_DIM_TENSOR, true);
    gw_err e =
        starts ? gw_runner_start(&w->runner, s, x->act.micro) : gw_runner_wait(&w->runner, s);
    walk_tell(w, x->act, GW_DIM_TENSOR, false);
    return e;
}

gw_err gw_walk_join(gw_walk *w, int l, gw_act act, gw_moment moment, gw_micro at) {
    walk_layer x = {w, l, act, at};
    GW_TRY(walk_join(&x, moment, at, true));
    return walk_join(&x, moment, at, false);
}

static bool walk_joins(const walk_layer *x, gw_moment moment) {
    return x->w->ops->joins(x->w->of, x->l, moment, x->at);
}

/* ---- layers ---- */

static gw_err walk_poll(const gw_walk *w) {
    return w->ops->poll ? w->ops->poll(w->of) : GW_OK;
}

static gw_err walk_compute(const walk_layer *x, gw_kernel_kind kind, gw_micro rows, bool alone) {
    gw_kernel k = {kind, x->l, x->act, rows, alone};
    return x->w->ops->compute(x->w->of, &k);
}

static int walk_pieces(const walk_layer *x, bool exchanges) {
    int most = x->at.n > 1 ? x->at.n : 1, k = exchanges ? x->w->pieces : 1;
    return k < most ? k : most;
}

static gw_micro walk_piece(gw_micro at, int i, int pieces) {
    gw_span part = gw_span_part((gw_span){(size_t)at.first, (size_t)at.n}, i, pieces);
    at.first = (int)part.off;
    at.n = (int)part.n;
    return at;
}

/* Tensor ranks have parts of some parameters that each reads whole: they gather these once per
 * step. */
static gw_err walk_layer_gather(const walk_layer *x) {
    if (!walk_joins(x, GW_MOMENT_PARAMETERS))
        return GW_OK;
    GW_TRY(walk_compute(x, GW_KERNEL_PARAMETERS, x->at, false));
    return gw_walk_join(x->w, x->l, x->act, GW_MOMENT_PARAMETERS, x->at);
}

gw_err gw_walk_forward(gw_walk *w, gw_act act, bool first) {
    walk_layer x = {w, 0, act, w->ops->at(w->of, act)};
    int end;
    for (w->ops->layers(w->of, act.chunk, &x.l, &end); x.l < end; x.l++) {
        if (first) {
            GW_TRY(w->ops->await(w->of, x.l));
            GW_TRY(walk_layer_gather(&x));
        }
        bool gathers = walk_joins(&x, GW_MOMENT_INPUT);
        bool exchanges = gathers || walk_joins(&x, GW_MOMENT_PRODUCT);
        int pieces = walk_pieces(&x, exchanges);
        for (int i = 0; gathers && i < pieces; i++) {
            gw_micro rows = walk_piece(x.at, i, pieces);
            GW_TRY(walk_compute(&x, GW_KERNEL_INPUT, rows, false));
            GW_TRY(walk_join(&x, GW_MOMENT_INPUT, rows, true));
        }
        for (int i = 0; i < pieces; i++) {
            gw_micro rows = walk_piece(x.at, i, pieces);
            GW_TRY(walk_join(&x, GW_MOMENT_INPUT, rows, false));
            GW_TRY(walk_compute(&x, GW_KERNEL_PRODUCT, rows, !exchanges));
            GW_TRY(walk_join(&x, GW_MOMENT_PRODUCT, rows, true));
        }
        for (int i = 0; exchanges && i < pieces; i++) {
            gw_micro rows = walk_piece(x.at, i, pieces);
            GW_TRY(walk_join(&x, GW_MOMENT_PRODUCT, rows, false));
            GW_TRY(walk_compute(&x, GW_KERNEL_TRANSFER, rows, false));
        }
        GW_TRY(walk_poll(w));
    }
    return GW_OK;
}

/* Gradients are handed out behind the last microbatch. */
static gw_err walk_ready(const walk_layer *x) {
    gw_walk *w = x->w;
    if (w->ops->ready && x->act.micro + 1 == w->runner.micros)
        GW_TRY(w->ops->ready(w->of, x->l));
    return walk_poll(w);
}

/* The gradient of the weights comes first where nobody waits for the delta of the inputs: it is on
 * its way while that is computed. Else the delta leaves as early as can be: before the weights'
 * gradients, or, where it must be summed first, with the sum under way meanwhile. `lowest`: of the
 * chunk's layers. */
static gw_err walk_layer_backward(const walk_layer *x, bool lowest) {
    gw_walk *w = x->w;
    bool exchanges = walk_joins(x, GW_MOMENT_DELTA);
    bool leaves =
        exchanges ||
        (lowest && gw_timetable_target(w->runner.timetable, w->runner.stage, x->act).stage >= 0);
    bool weighs = x->act.kind == GW_ACT_BACKWARD, first = weighs && !leaves;
    bool arrives = exchanges && w->ops->arrives && w->ops->arrives(w->of, x->l);
    int pieces = walk_pieces(x, exchanges);
    GW_TRY(walk_compute(x, first ? GW_KERNEL_WEIGHTS : GW_KERNEL_ENTER, x->at, first));
    if (first)
        GW_TRY(walk_ready(x));
    for (int i = 0; i < pieces; i++) {
        gw_micro rows = walk_piece(x->at, i, pieces);
        GW_TRY(walk_compute(x, GW_KERNEL_DESCEND, rows, first));
        GW_TRY(walk_join(x, GW_MOMENT_DELTA, rows, true));
    }
    if (!exchanges && lowest)
        GW_TRY(gw_walk_send(w, x->act));
    if (weighs && leaves)
        GW_TRY(walk_compute(x, GW_KERNEL_WEIGHTS, x->at, false));
    if (weighs && leaves && !arrives)
        GW_TRY(walk_ready(x));
    for (int i = 0; exchanges && i < pieces; i++) {
        gw_micro rows = walk_piece(x->at, i, pieces);
        GW_TRY(walk_join(x, GW_MOMENT_DELTA, rows, false));
        GW_TRY(walk_compute(x, GW_KERNEL_ARRIVE, rows, false));
    }
    if (weighs && arrives)
        GW_TRY(walk_ready(x));
    return exchanges && lowest ? gw_walk_send(w, x->act) : walk_poll(w);
}

/* GW_ACT_INPUT leaves the weights' gradients to a later GW_ACT_WEIGHTS. */
static gw_err walk_backward(gw_walk *w, gw_act act) {
    walk_layer x = {w, 0, act, w->ops->at(w->of, act)};
    int first, end;
    w->ops->layers(w->of, act.chunk, &first, &end);
    for (x.l = end - 1; x.l >= first; x.l--) {
        if (act.kind != GW_ACT_WEIGHTS) {
            GW_TRY(walk_layer_backward(&x, x.l == first));
        } else {
            GW_TRY(walk_compute(&x, GW_KERNEL_WEIGHTS, x.at, false));
            GW_TRY(walk_ready(&x));
        }
    }
    return GW_OK;
}

/* ---- actions ---- */

gw_err gw_walk_step(gw_walk *w) {
    int n;
    const gw_act *acts = gw_timetable_acts(w->runner.timetable, w->runner.stage, &n);
    GW_TRY(gw_runner_begin(&w->runner));
    for (int i = 0; i < n; i++) {
        gw_act act = acts[i];
        bool forward = act.kind == GW_ACT_FORWARD, top = gw_walk_is_top(w, act.chunk);
        bool again = w->recompute && !forward && act.kind != GW_ACT_WEIGHTS;
        if (w->ops->next)
            GW_TRY(w->ops->next(w->of, act));
        GW_TRY(gw_runner_take(&w->runner, i));
        /* Earlier messages must have left where the action writes, or computes again. */
        GW_TRY(gw_runner_vacate(&w->runner, act));
        if (again)
            GW_TRY(gw_runner_vacate(&w->runner, (gw_act){GW_ACT_FORWARD, act.chunk, act.micro}));
        GW_TRY(w->ops->begin(w->of, act));
        if (forward || again)
            GW_TRY(gw_walk_forward(w, act, forward && act.micro == 0));
        if (top && (forward || again)) /* recomputed logits must be turned into deltas again */
            GW_TRY(w->ops->loss(w->of, act));
        if (!forward)
            GW_TRY(walk_backward(w, act));
        else if (!top)
            GW_TRY(gw_walk_send(w, act));
        w->ops->end(w->of, act);
    }
    return gw_runner_end(&w->runner);
}
