/* The curves of groups of ranks, and what each layout's step is made of. */
#include "select/layout_survey.h"

#include "machine/links.h"
#include "mpi/wait.h"
#include "select/chooser.h"

#include <math.h>
#include <string.h>

gw_err gw_layouts_know(const gw_session *session) {
    const gw_strategy *s = &session->strategy;
    if (gw_chooser_knows(s->ops))
        return GW_OK;
    return gw_fail(GW_ERR_UNSUPPORTED, "plan: the cost model does not know the strategy %s",
                   s->ops->head.name);
}

/* ---- groups ---- */

static int survey_stride(const gw_layout *l, gw_dim dim) {
    int stride = 1;
    for (int i = GW_DIMS - 1; l->shape.order[i] != dim; i--)
        stride *= l->shape.size[l->shape.order[i]];
    return stride;
}

static gw_group_curve *survey_group(gw_layout_survey *s, const gw_layout *l, gw_dim dim) {
    int size = l->shape.size[dim], stride = survey_stride(l, dim), i = 0;
    while (i < s->n_curves && (s->curve[i].size != size || s->curve[i].stride != stride))
        i++;
    if (i == s->n_curves && i < GW_GROUP_CURVES)
        s->curve[s->n_curves++] = (gw_group_curve){.size = size, .stride = stride};
    return i < GW_GROUP_CURVES ? &s->curve[i] : NULL;
}

/* Which of them the layouts need. A hop is timed where it is one of a pipe, sums elsewhere. */
typedef struct need {
    bool sums[2], hop;
} need;

static gw_err survey_find_groups(gw_layout_survey *s, const gw_layout *layout, int n, need *needs) {
    for (int i = 0; i < n; i++)
        for (int d = 0; d < GW_DIMS; d++) {
            if (layout[i].shape.size[d] == 1)
                continue;
            gw_group_curve *g = survey_group(s, &layout[i], (gw_dim)d);
            if (!g)
                return gw_fail(GW_ERR_UNSUPPORTED,
                               "plan: more than %d kinds of groups: name a "
                               "--mesh",
                               GW_GROUP_CURVES);
            need *w = &needs[g - s->curve];
            w->sums[0] |= d == GW_DIM_TENSOR;
            w->sums[1] |= d == GW_DIM_DATA;
            w->hop |= d == GW_DIM_PIPE;
        }
    return GW_OK;
}

/* The longest span that is summed: gradients, or the outputs of a layer. */
static size_t survey_longest(const gw_place_setup *p) {
    size_t params = 0, widest = 1;
    for (int l = 0; l < gw_model_spec_layers(p->spec); l++) {
        gw_unit u = gw_model_spec_unit(p->spec, l);
        params += gw_unit_params(&u);
        widest = (size_t)u.out > widest ? (size_t)u.out : widest;
    }
    size_t rows = p->set->n * widest, most = rows > params ? rows : params;
    return most < GW_SURVEYED ? most : GW_SURVEYED;
}

/* The slowest group's, at the sizes that all of them had time for. */
static gw_err survey_slowest(gw_curve *c, MPI_Comm comm) {
    GW_TRY(gw_allreduce(MPI_IN_PLACE, &c->n, 1, MPI_INT, MPI_MIN, comm));
    return gw_allreduce(MPI_IN_PLACE, c->time_s, GW_CURVE_POINTS, MPI_DOUBLE, MPI_MAX, comm);
}

static gw_spec survey_algorithm(const gw_layout_survey *s, bool gradients) {
    const gw_spec *named = gw_args_spec(s->session->strategy.args, "algo");
    return gradients && named ? *named : GW_SPEC_NAMED("native");
}

static gw_err survey_sums(gw_layout_survey *s, gw_group_curve *g, const need *w, double budget_s,
                          MPI_Comm group) {
    gw_algo_survey algo[2] = {0};
    gw_survey_place place = {.comm = group,
                             .n = survey_longest(s->place),
                             .seed = s->place->c->run.seed,
                             .yield = s->yield,
                             .exact = true,
                             .budget_s = budget_s};
    int of[2], n = 0;
    for (int k = 0; k < 2; k++)
        if (w->sums[k]) {
            of[n] = k;
            algo[n++].spec = survey_algorithm(s, k == 1);
        }
    GW_TRY(gw_agree(s->place->comm, n > 0 ? gw_survey_algos(&place, algo, n) : GW_OK));
    for (int i = 0; i < n; i++) {
        gw_curve *c = &g->sums[of[i]];
        *c = algo[i].exact;
        g->sent[of[i]] = algo[i].exact_sent;
        GW_TRY(survey_slowest(c, s->place->comm));
        if (c->n == 0)
            return gw_fail(GW_ERR_UNSUPPORTED, "plan: %s cannot be measured on groups of %d ranks",
                           algo[i].spec.text, g->size);
    }
    return GW_OK;
}

/* Neighbours in pairs, all pairs at once, then with the neighbour on the other side: any may be on
 * another host. Of an odd number one rank is left in each turn; of an even one the last and the
 * first are neighbours, too. */
static gw_err survey_hop(gw_layout_survey *s, gw_group_curve *g, int at, MPI_Comm group) {
    gw_err e = GW_OK;
    g->hop = (gw_curve){.n = GW_CURVE_POINTS};
    for (int turn = 0; turn < 2 && e == GW_OK; turn++) {
        gw_curve c;
        int peer = (at + turn) % 2 ? at - 1 : at + 1;
        if (g->size % 2 == 0)
            peer = (peer + g->size) % g->size;
        if (peer < 0 || peer >= g->size)
            continue;
        e = gw_link_time(&c, peer, at < peer, group);
        for (int i = 0; i < c.n; i++)
            c.time_s[i] = fmax(c.time_s[i], g->hop.time_s[i]);
        g->hop = c;
    }
    GW_TRY(gw_agree(s->place->comm, e));
    GW_TRY(gw_allreduce(MPI_IN_PLACE, g->hop.bytes, GW_CURVE_POINTS, MPI_DOUBLE, MPI_MAX,
                        s->place->comm));
    return survey_slowest(&g->hop, s->place->comm);
}

static gw_err survey_crosses(gw_group_curve *g, MPI_Comm group, MPI_Comm comm) {
    MPI_Comm host;
    int here = g->size, crosses;
    GW_MPI(MPI_Comm_split_type(group, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &host));
    gw_err e = gw_mpi_check(MPI_Comm_size(host, &here), "MPI_Comm_size");
    MPI_Comm_free(&host);
    crosses = here < g->size;
    GW_THEN(e, gw_allreduce(MPI_IN_PLACE, &crosses, 1, MPI_INT, MPI_MAX, comm));
    g->link = crosses;
    return e;
}

static gw_err survey_one_group(gw_layout_survey *s, gw_group_curve *g, const need *w,
                               double budget_s) {
    MPI_Comm group, comm = s->place->comm;
    int rank;
    GW_MPI(MPI_Comm_rank(comm, &rank));
    int at = rank / g->stride % g->size;
    GW_MPI(MPI_Comm_split(comm, rank - at * g->stride, at, &group));
    MPI_Comm_set_errhandler(group, MPI_ERRORS_RETURN);
    gw_err e = survey_crosses(g, group, comm);
    GW_THEN(e, survey_sums(s, g, w, budget_s, group));
    if (e == GW_OK && w->hop)
        e = survey_hop(s, g, at, group);
    MPI_Comm_free(&group);
    return e;
}

static gw_err survey_groups(gw_layout_survey *s, const gw_layout *layout, int n) {
    need needs[GW_GROUP_CURVES] = {0};
    s->n_curves = 0;
    GW_TRY(survey_find_groups(s, layout, n, needs));
    for (int i = 0; i < s->n_curves; i++)
        GW_TRY(survey_one_group(s, &s->curve[i], &needs[i], s->budget_s / s->n_curves));
    return GW_OK;
}

/* ---- a layout ---- */

typedef struct opened {
    gw_layout_survey *s;
    const gw_layout *all, *layout; /* the nth of all */
    const gw_layout_price *price;  /* of those before it */
    int nth;
    gw_placed *placed;
    const gw_group_curve *group[GW_DIMS]; /* NULL: of one rank */
    int stages, stage, chunks;
} opened;

/* Seconds of a join, and the bytes that this rank sends in it. What is gathered, or summed and
 * scattered, is half of what an allreduce does. */
static double survey_join(const opened *o, gw_join join, double *sent) {
    const gw_group_curve *g = o->group[GW_DIM_TENSOR];
    double bytes = (double)join.over.n * sizeof(float);
    double part = join.kind == GW_JOIN_ALLREDUCE ? 1 : 0.5;
    if (join.kind == GW_JOIN_NONE || !g)
        return 0;
    *sent += part * bytes * g->sent[0];
    return part * gw_curve_at(&g->sums[0], bytes);
}

static void survey_joins(const opened *o, gw_micro at, gw_run_cost *run, double *sent) {
    const gw_model *m = o->placed->model;
    double micro = o->layout->micro, once = 0;
    for (int l = 0; l < gw_model_layers(m); l++) {
        gw_run_cost *r = &run[gw_model_shard(m)->layers[l].chunk];
        gw_join gathered = gw_model_join(m, l, GW_MOMENT_PARAMETERS, at);
        r->tensor_forward_s += survey_join(o, gathered, &once) / micro +
                               survey_join(o, gw_model_join(m, l, GW_MOMENT_INPUT, at), sent) +
                               survey_join(o, gw_model_join(m, l, GW_MOMENT_PRODUCT, at), sent) +
                               survey_join(o, gw_model_join(m, l, GW_MOMENT_LOSS, at), sent);
        gw_join delta = gw_model_join(m, l, GW_MOMENT_DELTA, at);
        r->tensor_backward_s += survey_join(o, delta, sent);
        bool lowest =
            l == 0 || gw_model_shard(m)->layers[l - 1].chunk != gw_model_shard(m)->layers[l].chunk;
        if (lowest && delta.kind != GW_JOIN_NONE) /* it leaves when it is summed */
            r->early_s = 0;
    }
    *sent += once / micro;
}

static double survey_hop_time(const opened *o, int chunk, gw_edge edge, gw_micro at, double *sent) {
    double bytes = sizeof(float) * (double)gw_model_edge(o->placed->model, chunk, edge, at).n;
    *sent += bytes;
    return gw_curve_at(&o->group[GW_DIM_PIPE]->hop, bytes);
}

static void survey_hops(const opened *o, gw_micro at, gw_run_cost *run, double *sent) {
    for (int c = 0; c < o->chunks; c++) {
        int number = c * o->stages + o->stage;
        if (number + 1 < o->stages * o->chunks)
            run[c].activation_s = survey_hop_time(o, c, GW_EDGE_OUTPUT, at, sent);
        if (number > 0)
            run[c].delta_s = survey_hop_time(o, c, GW_EDGE_INPUT_DELTA, at, sent);
    }
}

/* Behind the last microbatch's backward pass, which hides some of it perhaps. */
static gw_err survey_exchange(const opened *o, double backward_s, double *exchange_s,
                              double *sent) {
    const gw_model *m = o->placed->model;
    const gw_group_curve *g = o->group[GW_DIM_DATA];
    if (!g)
        return GW_OK;
    gw_shape shape = {.walk = {.local = {.backward_s = backward_s},
                               .layers = gw_model_spans(m),
                               .n_layers = gw_model_layers(m)},
                      .link = g->link};
    gw_way way = {
        .messages = g->sums[1], .exact = g->sums[1], .bytes = sizeof(float), .sent = g->sent[1]};
    GW_TRY(gw_chooser_shape(&o->s->session->strategy, &shape));
    gw_forecast f = gw_forecast_step(&shape, &way);
    *exchange_s = f.step_s - f.local_s;
    *sent += f.sent;
    return GW_OK;
}

/* All ranks' figures: of a run or a stage the slowest rank's, sums of bytes. */
static gw_err survey_share(const opened *o, const gw_run_cost *own, gw_layout_stage stage,
                           double memory, gw_layout_price *out) {
    enum { RUN = sizeof *own / sizeof(double), STAGE = sizeof stage / sizeof(double) };
    MPI_Comm comm = o->s->place->comm;
    for (int c = 0; c < o->chunks; c++)
        out->run[c * o->stages + o->stage] = own[c];
    out->stage[o->stage] = stage;
    out->activation_bytes = memory;
    GW_TRY(gw_allreduce(MPI_IN_PLACE, out->run, GW_MAX_LAYERS * RUN, MPI_DOUBLE, MPI_MAX, comm));
    GW_TRY(
        gw_allreduce(MPI_IN_PLACE, out->stage, GW_MAX_LAYERS * STAGE, MPI_DOUBLE, MPI_MAX, comm));
    GW_TRY(gw_allreduce(MPI_IN_PLACE, &out->activation_bytes, 1, MPI_DOUBLE, MPI_MAX, comm));
    return gw_allreduce(MPI_IN_PLACE, out->sent, GW_DIMS, MPI_DOUBLE, MPI_SUM, comm);
}

/* Do backward passes leave the weights' gradients for later, on any rank? */
static gw_err survey_cuts(const opened *o, bool *out) {
    const gw_pipeline *p = o->placed->pipeline;
    int cuts = p && gw_pipeline_room(p)->keep;
    GW_TRY(gw_allreduce(MPI_IN_PLACE, &cuts, 1, MPI_INT, MPI_MAX, o->s->place->comm));
    *out = cuts;
    return GW_OK;
}

/* Passes of the same chunks, cut alike, take the same time, whatever the timetable. */
static gw_err survey_passes(const opened *o, bool cuts, gw_run_cost *run, double *update_s) {
    for (int i = 0; i < o->nth; i++) {
        const gw_layout *a = &o->all[i], *b = o->layout;
        const gw_layout_price *known = &o->price[i];
        if (memcmp(&a->shape, &b->shape, sizeof a->shape) != 0 || a->split != b->split ||
            a->micro != b->micro || known->chunks != o->chunks || known->cuts != cuts)
            continue;
        *update_s = known->stage[o->stage].update_s;
        for (int c = 0; c < o->chunks; c++) {
            const gw_run_cost *of = &known->run[c * o->stages + o->stage];
            run[c] = (gw_run_cost){.act = of->act, .early_s = of->early_s};
        }
        return GW_OK;
    }
    return gw_placed_time(o->placed, o->s->place, run, update_s);
}

static gw_err survey_price(const opened *o, gw_layout_price *out) {
    gw_run_cost run[GW_MAX_LAYERS] = {0};
    gw_layout_stage stage = {0};
    gw_placed *p = o->placed;
    double backward_s = 0, micro = o->layout->micro;
    gw_load load = gw_placed_load(p);
    gw_micro at = {.n = gw_load_rows(&load)};
    const gw_group_curve *tensor = o->group[GW_DIM_TENSOR];
    *out = (gw_layout_price){.chunks = o->chunks, .link = tensor && tensor->link};
    GW_TRY(survey_cuts(o, &out->cuts));
    GW_TRY(survey_passes(o, out->cuts, run, &stage.update_s));
    survey_joins(o, at, run, &out->sent[GW_DIM_TENSOR]);
    if (o->stages > 1)
        survey_hops(o, at, run, &out->sent[GW_DIM_PIPE]);
    out->sent[GW_DIM_TENSOR] *= micro;
    out->sent[GW_DIM_PIPE] *= micro;
    for (int c = 0; c < o->chunks; c++)
        backward_s += run[c].act.input_s + run[c].act.weights_s;
    GW_TRY(gw_agree(o->s->place->comm,
                    survey_exchange(o, backward_s, &stage.exchange_s, &out->sent[GW_DIM_DATA])));
    return survey_share(o, run, stage, (double)gw_model_work_size(p->model) * sizeof(float), out);
}

static gw_err survey_layout(gw_layout_survey *s, const gw_layout *all, int nth,
                            gw_layout_price *price) {
    const gw_layout *l = &all[nth];
    gw_placed p = {0};
    opened o = {.s = s, .all = all, .layout = l, .price = price, .nth = nth, .placed = &p};
    for (int d = 0; d < GW_DIMS; d++)
        if (l->shape.size[d] > 1)
            o.group[d] = survey_group(s, l, (gw_dim)d);
    gw_err e = gw_placed_open(&p, s->place, l, s->session);
    if (e == GW_OK) {
        o.stages = l->shape.size[GW_DIM_PIPE];
        o.stage = p.mesh.at[GW_DIM_PIPE];
        o.chunks = gw_model_shard(p.model)->share.n_chunks;
        e = survey_price(&o, &price[nth]);
    }
    gw_placed_close(&p);
    return e;
}

gw_err gw_layouts_survey(gw_layout_survey *s, const gw_layout *layout, int n,
                         gw_layout_price *price) {
    GW_TRY(gw_layouts_know(s->session));
    GW_TRY(survey_groups(s, layout, n));
    for (int i = 0; i < n; i++)
        GW_TRY(survey_layout(s, layout, i, price));
    return GW_OK;
}
