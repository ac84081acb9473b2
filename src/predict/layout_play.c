/* Playing the layouts of `plan --mesh`, with parts measured on these ranks. */
#include "predict/layout_play.h"

#include "base/mem.h"
#include "mpi/wait.h"
#include "play/options.h"
#include "predict/codec.h"
#include "predict/link.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { STEPS = 2, ADDED = 1 << 18 /* floats */ };

/* ---- the parts ---- */

gw_err gw_layouts_prepare(gw_layout_plays *s) {
    gw_sim_play *p = &s->play;
    const gw_strategy_ops *ops = s->session->strategy.ops;
    if (ops->traits & GW_STRATEGY_VARIES)
        return gw_fail(GW_ERR_UNSUPPORTED,
                       "plan: --mesh: steps of --comm %s differ, and meshes are compared by a few "
                       "of them: name a strategy that exchanges the same in every step",
                       ops->head.name);
    *p = (gw_sim_play){.strategy = s->session->strategy, .speed = 1, .steps = STEPS};
    GW_TRY(gw_codec_open(&p->exact, &gw_codec_exact));
    GW_TRY(gw_codec_open(&p->codec, &gw_codec_exact));
    GW_TRY(gw_sim_play_open_algo(p));
    return gw_sim_play_check(p);
}

void gw_layouts_release(gw_layout_plays *s) {
    if (s->play.algo.ops)
        gw_algo_close(&s->play.algo);
    gw_codec_close(&s->play.codec);
    gw_codec_close(&s->play.exact);
    gw_network_close(s->network);
}

static gw_err layouts_measure_adding(gw_layout_plays *s) {
    s->play.codec.price = s->play.exact.price = &s->price;
    return gw_codec_measure_price(&s->play.codec, false, NULL, ADDED, &s->price, s->place->comm);
}

/* A step of the layout's replica with as many samples as the largest has, as a profile. */
static gw_err layouts_profile(const gw_layout_plays *s, const gw_layout *l,
                              const gw_layer_times *times, int rows, gw_step_profile *out) {
    const gw_model_spec *spec = &s->place->spec;
    double backward_s[GW_MAX_LAYERS];
    for (int k = 0; k < GW_MAX_LAYERS; k++)
        backward_s[k] = gw_layer_backward_s(times, k);
    json_t *tensors = gw_step_profile_tensors(spec, l->split == GW_SPLIT_COLUMNS, times->forward_s,
                                              backward_s, NULL);
    GW_TRY(gw_step_profile_measured(out, tensors, rows));
    for (int k = 0, group = 0; k < gw_model_spec_layers(spec); k++) {
        gw_unit u = gw_model_spec_unit(spec, k);
        bool owns = gw_unit_params(&u) > 0;
        for (int i = 0; i < out->n_tensors; i++)
            if (owns && out->tensor[i].group == group && backward_s[k] > 0)
                out->tensor[i].input_extra = times->input_s[k] / backward_s[k] - 0.5;
        group += owns;
    }
    out->optimizer_s = times->update_s;
    out->shared = true;
    return GW_OK;
}

/* ---- one layout ---- */

typedef struct opened {
    gw_layer_times times;
    double activation_bytes;
    int rows;                        /* of the largest replica */
    char stages[GW_PIPELINE_STAGES]; /* how the layers are cut */
} opened;

/* The walk cuts between layers, and a profile between those that have parameters. */
static gw_err layouts_cut(const gw_pipeline *p, const gw_model_spec *spec, char *out) {
    char layers[GW_PIPELINE_STAGES], *at = layers;
    int l = 0, len = 0;
    gw_pipeline_stages(p, layers);
    while (*at) {
        int groups = 0;
        for (long n = strtol(at, &at, 10); n > 0; n--, l++) {
            gw_unit u = gw_model_spec_unit(spec, l);
            groups += gw_unit_params(&u) > 0;
        }
        len += sprintf(out + len, "%s%d", len ? "," : "", groups);
        at += *at == ',';
        if (groups == 0)
            return gw_fail(GW_ERR_UNSUPPORTED,
                           "plan: --mesh: a stage of %s has no parameters: name fewer stages",
                           layers);
    }
    return GW_OK;
}

/* Layers that are shared and cut alike take the same time, whatever the timetable. */
static const gw_layer_times *layouts_known(const gw_layout *all, int nth, const opened *known) {
    for (int i = 0; i < nth; i++)
        if (memcmp(&all[i].shape, &all[nth].shape, sizeof all->shape) == 0 &&
            all[i].split == all[nth].split && all[i].micro == all[nth].micro)
            return &known[i].times;
    return NULL;
}

static gw_err layouts_open(const gw_layout_plays *s, const gw_layout *all, int nth, opened *of) {
    gw_placed p = {0};
    opened *o = &of[nth];
    const gw_layer_times *known = layouts_known(all, nth, of);
    MPI_Comm comm = s->place->comm;
    gw_err e = gw_placed_open(&p, s->place, &all[nth], s->session);
    if (e == GW_OK) {
        o->activation_bytes = (double)gw_model_work_size(p.model) * sizeof(float);
        o->rows = (int)p.rows.n;
        strcpy(o->stages, "flops");
        GW_THEN(e, gw_allreduce(MPI_IN_PLACE, &o->activation_bytes, 1, MPI_DOUBLE, MPI_MAX, comm));
        GW_THEN(e, gw_allreduce(MPI_IN_PLACE, &o->rows, 1, MPI_INT, MPI_MAX, comm));
    }
    if (e == GW_OK && all[nth].shape.size[GW_DIM_PIPE] > 1)
        e = layouts_cut(p.pipeline, &s->place->spec, o->stages);
    if (known)
        o->times = *known;
    else
        GW_THEN(e, gw_placed_time(&p, &o->times));
    gw_placed_close(&p);
    return e;
}

/* Means over the ranks and the steps that count. */
static void layouts_divide(const gw_sim_play *p, gw_layout_forecast *out) {
    int skipped = p->steps - p->counted, ranks = p->world.ranks;
    double each = 1.0 / (p->counted * ranks), spent[GW_DIMS] = {0};
    for (int i = skipped * ranks; i < p->steps * ranks; i++)
        for (int d = 0; d < GW_DIMS; d++) {
            spent[d] += each * p->log[i].cost.dim[d].comm_s;
            out->sent[d] += (double)p->log[i].cost.dim[d].bytes / p->counted;
        }
    out->step_s = p->step_s;
    out->bubble_s = fmax(0, spent[GW_DIM_PIPE]);
    out->tensor_s = fmax(0, spent[GW_DIM_TENSOR]);
    out->exchange_s = fmax(0, spent[GW_DIM_DATA]);
    out->compute_s = out->step_s - out->bubble_s - out->tensor_s - out->exchange_s;
}

static gw_err layouts_play(const gw_layout_plays *s, const gw_layout *l, const opened *o,
                           gw_layout_forecast *out) {
    gw_sim_play p = s->play;
    gw_parallel options = gw_layout_options(l);
    gw_step_profile profile = {0};
    gw_sim_mesh mesh = {0};
    options.stages = o->stages;
    p.profile = &profile;
    p.mesh = &mesh;
    *out = (gw_layout_forecast){.activation_bytes = o->activation_bytes, .measured_s = NAN};
    gw_err e = layouts_profile(s, l, &o->times, o->rows, &profile);
    GW_THEN(e, gw_sim_mesh_open(&mesh, &options, &profile, p.world.ranks));
    GW_THEN(e, gw_alloc(&p.log, (size_t)(p.steps * p.world.ranks), sizeof *p.log));
    GW_THEN(e, gw_sim_play_run(&p));
    if (e == GW_OK)
        layouts_divide(&p, out);
    free(p.log);
    gw_sim_mesh_close(&mesh);
    gw_step_profile_free(&profile);
    return e;
}

/* ---- all of them ---- */

gw_err gw_layouts_predict(gw_layout_plays *s, const gw_layout *layout, int n,
                          gw_layout_forecast *out) {
    MPI_Comm comm = s->place->comm;
    opened *of = NULL;
    int rank;
    gw_err e = gw_alloc(&of, (size_t)n, sizeof *of);
    GW_THEN(e, gw_comm_place(comm, &rank, NULL));
    e = gw_agree(comm, e);
    GW_THEN(e, gw_predict_links(&s->play.world, &s->network, 0, s->oversubscribed, comm));
    GW_THEN(e, layouts_measure_adding(s));
    for (int i = 0; i < n; i++)
        GW_THEN(e, layouts_open(s, layout, i, of));
    bool plays = e == GW_OK && rank == 0;
    for (int i = 0; i < n && plays; i++)
        GW_THEN(e, layouts_play(s, &layout[i], &of[i], &out[i]));
    e = gw_agree(comm, e);
    GW_THEN(e, gw_bcast(out, n * (int)sizeof *out, MPI_BYTE, 0, comm));
    for (int i = 0; i < n; i++)
        out[i].of = &layout[i]; /* in this rank's memory */
    free(of);
    return e;
}
