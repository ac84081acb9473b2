#include "predict/layout.h"

#include "base/mem.h"
#include "mpi/wait.h"
#include "play/options.h"
#include "predict/codec.h"
#include "predict/link.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STEPS = 2, ADDED = 1 << 18 /* floats */ };

/* ---- which there are ---- */

/* Some layer of each chunk, and some neuron of each layer, on every rank. */
static bool layout_divides(const gw_layout_space *s, const gw_parallel *l, int chunks) {
    gw_share share = gw_share_whole(s->spec);
    gw_shard shard;
    share.tensor = l->shape.size[GW_DIM_TENSOR];
    share.split = l->columns ? GW_SPLIT_COLUMNS : GW_SPLIT_PAIRS;
    return l->shape.size[GW_DIM_PIPE] * chunks <= gw_model_spec_layers(s->spec) &&
           !(s->whole && share.tensor > 1) && gw_shard_of(&shard, s->spec, &share) == GW_OK;
}

/* Add it if it fits. */
static gw_err layout_try(const gw_layout_space *s, const gw_parallel *l, gw_parallel *out, int *n) {
    gw_timetable *t = NULL;
    int stages = l->shape.size[GW_DIM_PIPE], data = l->shape.size[GW_DIM_DATA];
    if (l->microbatches > (s->batch + data - 1) / data)
        return GW_OK;
    gw_err e = gw_timetable_open(&t, l->timetable, stages, l->microbatches);
    if (e == GW_OK && layout_divides(s, l, gw_timetable_chunks(t))) {
        if (*n < GW_LAYOUTS)
            out[(*n)++] = *l;
        else
            e = gw_fail(GW_ERR_USAGE,
                        "plan: --mesh: more than %d ways: name one, or fewer --timetables or "
                        "--microbatches",
                        GW_LAYOUTS);
    }
    gw_timetable_close(t);
    return e == GW_ERR_UNSUPPORTED ? GW_OK : e;
}

static gw_err layout_try_orders(const gw_layout_space *s, gw_parallel *l, gw_parallel *out,
                                int *n) {
    l->timetable = NULL;
    l->microbatches = s->micros[0];
    for (int i = 1; i < s->n_micros; i++) /* the fewest */
        l->microbatches = s->micros[i] < l->microbatches ? s->micros[i] : l->microbatches;
    if (l->shape.size[GW_DIM_PIPE] == 1)
        return layout_try(s, l, out, n);
    for (l->timetable = s->timetables; l->timetable; l->timetable = l->timetable->next)
        for (int i = 0; i < s->n_micros; i++) {
            l->microbatches = s->micros[i];
            GW_TRY(layout_try(s, l, out, n));
        }
    return GW_OK;
}

gw_err gw_layouts_list(const gw_layout_space *s, gw_parallel *out, int *n) {
    *n = 0;
    for (int pipe = 1; pipe <= s->ranks; pipe++)
        for (int tensor = 1; tensor * pipe <= s->ranks; tensor++) {
            int data = s->ranks / (pipe * tensor);
            gw_parallel l = gw_parallel_plain;
            l.shape = (gw_mesh_shape){.size = {data, pipe, tensor},
                                      .order = {GW_DIM_PIPE, GW_DIM_DATA, GW_DIM_TENSOR}};
            if (data * pipe * tensor != s->ranks || data > s->batch)
                continue;
            if (s->shape) {
                const int *size = s->shape->size;
                if (size[GW_DIM_PIPE] != pipe || size[GW_DIM_TENSOR] != tensor ||
                    (size[GW_DIM_DATA] != 0 && size[GW_DIM_DATA] != data))
                    continue;
                memcpy(l.shape.order, s->shape->order, sizeof l.shape.order);
            }
            GW_TRY(layout_try_orders(s, &l, out, n));
            l.columns = true;
            if (tensor > 1)
                GW_TRY(layout_try_orders(s, &l, out, n));
        }
    return GW_OK;
}

bool gw_layout_plain(const gw_parallel *l) {
    return !gw_mesh_divides(&l->shape) && l->microbatches == 1;
}

void gw_layout_mesh(const gw_parallel *l, char out[GW_LAYOUT_TEXT]) {
    gw_mesh_text(&l->shape, out, GW_LAYOUT_TEXT);
    if (!*out)
        snprintf(out, GW_LAYOUT_TEXT, "data=1");
}

/* ---- the parts ---- */

gw_err gw_layouts_prepare(gw_layout_plays *s, const gw_spec *comm) {
    s->play = (gw_sim_play){.script.speed = 1, .steps = STEPS};
    GW_TRY(gw_sim_play_open(&s->play, comm, &gw_codec_exact));
    if (s->play.strategy.ops->traits & GW_STRATEGY_VARIES)
        return gw_fail(GW_ERR_UNSUPPORTED,
                       "plan: --mesh: steps of --comm %s differ, and meshes are compared by a few "
                       "of them: name a strategy that exchanges the same in every step",
                       s->play.strategy.ops->head.name);
    return gw_sim_play_check(&s->play);
}

/* A step of the layout's replica with as many samples as the largest has, as a profile. */
static gw_err layouts_profile(const gw_layout_plays *s, const gw_parallel *l,
                              const gw_layer_times *times, int rows, gw_step_profile *out) {
    const gw_model_spec *spec = &s->place->spec;
    gw_layers_about about = {
        .spec = spec, .name = "the model", .threads = 1, .batch = rows, .columns = l->columns};
    gw_layer_times passes = *times;
    passes.data_s = 0;
    GW_TRY(gw_layers_profile(&about, &passes, out));
    for (int k = 0, group = 0; k < gw_model_spec_layers(spec); k++) {
        gw_unit u = gw_model_spec_unit(spec, k);
        bool owns = gw_unit_params(&u) > 0;
        double backward_s = gw_layer_backward_s(times, k);
        for (int i = 0; i < out->n_tensors; i++)
            if (owns && out->tensor[i].group == group && backward_s > 0)
                out->tensor[i].input_extra = times->input_s[k] / backward_s - 0.5;
        group += owns;
    }
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

static gw_err layouts_open(const gw_layout_plays *s, const gw_parallel *all, int nth, opened *of) {
    gw_placed p = {0};
    opened *o = &of[nth];
    const gw_layer_times *known = NULL;
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
    /* Layers that are shared and cut alike take the same time, whatever the timetable. */
    for (int i = 0; i < nth && !known; i++)
        if (memcmp(&all[i].shape, &all[nth].shape, sizeof all->shape) == 0 &&
            all[i].columns == all[nth].columns && all[i].microbatches == all[nth].microbatches)
            known = &of[i].times;
    if (known) {
        o->times = *known;
    } else if (e == GW_OK) { /* the ranks compute at once, as they would in a run */
        gw_layer_job job = gw_placed_layers(&p);
        job.warmup = 1;
        job.least = 3;
        job.most = 25;
        job.enough_s = 0.15;
        if (p.pipeline)
            gw_pipeline_lend(p.pipeline, p.model);
        e = gw_layers_time(&job, &o->times);
    }
    gw_placed_close(&p);
    return e;
}

/* Means over the ranks and the steps that count. */
static gw_err layouts_play(const gw_layout_plays *s, const gw_parallel *l, const opened *o,
                           gw_layout_forecast *out) {
    gw_sim_play p = s->play;
    gw_parallel options = *l;
    gw_step_profile profile = {0};
    gw_sim_mesh mesh = {0};
    int ranks = p.world.ranks;
    options.stages = o->stages;
    p.script.profile = &profile;
    p.script.mesh = &mesh;
    gw_err e = layouts_profile(s, l, &o->times, o->rows, &profile);
    GW_THEN(e, gw_sim_mesh_open(&mesh, &options, &profile, ranks));
    GW_THEN(e, gw_alloc(&p.log, (size_t)(p.steps * ranks), sizeof *p.log));
    GW_THEN(e, gw_sim_play_run(&p));
    *out = (gw_layout_forecast){
        .activation_bytes = o->activation_bytes, .measured_s = NAN, .step_s = p.step_s};
    double each = 1.0 / (p.counted * ranks), spent[GW_DIMS] = {0};
    for (int i = (p.steps - p.counted) * ranks; e == GW_OK && i < p.steps * ranks; i++)
        for (int d = 0; d < GW_DIMS; d++) {
            spent[d] += each * p.log[i].cost.dim[d].comm_s;
            out->sent[d] += (double)p.log[i].cost.dim[d].bytes / p.counted;
        }
    out->bubble_s = fmax(0, spent[GW_DIM_PIPE]);
    out->tensor_s = fmax(0, spent[GW_DIM_TENSOR]);
    out->exchange_s = fmax(0, spent[GW_DIM_DATA]);
    out->compute_s = out->step_s - out->bubble_s - out->tensor_s - out->exchange_s;
    free(p.log);
    gw_sim_mesh_close(&mesh);
    gw_step_profile_free(&profile);
    return e;
}

/* ---- all of them ---- */

gw_err gw_layouts_predict(gw_layout_plays *s, const gw_parallel *layout, int n,
                          gw_layout_forecast *out) {
    MPI_Comm comm = s->place->comm;
    opened *of = NULL;
    int rank;
    gw_err e = gw_alloc(&of, (size_t)n, sizeof *of);
    GW_THEN(e, gw_comm_place(comm, &rank, NULL));
    e = gw_agree(comm, e);
    GW_THEN(e, gw_predict_links(&s->play.world, 0, s->oversubscribed, comm));
    s->play.codec.price = s->play.exact.price = &s->price;
    GW_THEN(e, gw_codec_measure_price(&s->play.codec, "off", NULL, ADDED, &s->price, comm));
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
