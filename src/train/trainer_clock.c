/* A run in virtual time: what its replicas share, and its clock. */
#include "base/file.h"
#include "base/json.h"
#include "mpi/wait.h"
#include "play/spend.h"
#include "predict/codec.h"
#include "predict/profile.h"
#include "prof/clock.h"
#include "train/trainer_parts.h"

#include <string.h>

/* Replicas are in one process's memory, each with parameters and gradients at least. */
gw_err gw_trainer_fits(const gw_trainer *t, const gw_model_spec *spec) {
    int replicas = t->mesh.shape.size[GW_DIM_DATA];
    double most = gw_file_memory(), bytes = 2.0 * sizeof(float) * replicas;
    size_t n;
    if (!t->c->simulated)
        return GW_OK;
    GW_TRY(gw_model_spec_check(spec, GW_ERR_USAGE, "", &n));
    bytes *= (double)n;
    return bytes <= most
               ? GW_OK
               : gw_fail(GW_ERR_USAGE,
                         "simulate: --train: %d replicas of %zu parameters take %.1f GiB or more, "
                         "and there are %.1f GiB of memory: give fewer --ranks or a smaller model",
                         replicas, n, bytes * 0x1p-30, most * 0x1p-30);
}

/* Simulated replicas share a core, and each would draw the same numbers again. */
gw_err gw_trainer_share_params(gw_trainer *t) {
    if (!t->c->simulated || t->part.pipeline)
        return GW_OK;
    return gw_bcast(gw_model_params(t->model), (int)gw_model_size(t->model), MPI_FLOAT, 0,
                    t->mesh.comm[GW_DIM_DATA]);
}

static void trainer_clock_next(void *ctx, gw_pipeline_job *pass) {
    gw_trainer *t = ctx;
    int b = t->measures.rehearsed++ % gw_sampler_full(t->sampler);
    gw_batch batch = gw_sampler_batch(t->sampler, b);
    *pass = gw_step_job(&t->stepper, &batch);
}

/* ---- what coding takes ---- */

/* Each codec gets the price of its text, which the rank that measures finds out: on the gradient of
 * the last step that was timed, if any was. */
static gw_err trainer_clock_codecs(gw_trainer *t, bool measures) {
    const gw_simulated *s = t->c->simulated;
    const float *gradient = s->times ? NULL : gw_model_grads(t->model);
    gw_trainer_prices *p = &t->measures.prices;
    gw_codec *codec[GW_INSIDE_CODECS + GW_PIPELINE_CODECS];
    int n = gw_inside_codecs(t->g, codec);
    if (t->part.pipeline)
        n += gw_pipeline_codecs(t->part.pipeline, codec + n);
    for (int i = 0; i < n; i++) {
        int at = 0;
        while (at < p->n && strcmp(p->codec[at], codec[i]->spec) != 0)
            at++;
        bool known = at < p->n;
        p->codec[at] = codec[i]->spec;
        p->n += !known;
        codec[i]->price = &p->of[at];
        if (s->price)
            p->of[at] = *s->price;
        else if (!known && measures) {
            GW_TRY(gw_codec_time_price(codec[i], t->c->run.feedback, gradient,
                                       gw_model_size(t->model), gw_trainer_workers(t), &p->of[at]));
            p->of[at] = gw_codec_price_scaled(&p->of[at], s->speed);
        }
    }
    return GW_OK;
}

json_t *gw_trainer_prices_json(const gw_trainer *t) {
    const gw_trainer_prices *p = &t->measures.prices;
    json_t *all = json_array();
    for (int i = 0; i < p->n; i++)
        json_array_append_new(all, gw_json_object("codec:s seconds_per_call:o seconds_per_float:o",
                                                  p->codec[i], gw_codec_price_json(p->of[i].call_s),
                                                  gw_codec_price_json(p->of[i].float_s)));
    return all;
}

/* ---- what kernels take ---- */

/* Measured on this rank only, with its own samples. */
static gw_err trainer_clock_measure(gw_trainer *t, gw_step_times *out) {
    const gw_shard *held = gw_model_shard(t->model);
    gw_layer_times times;
    gw_layer_job job = {.model = t->model,
                        .walk = t->stepper.pipeline,
                        .optimizer = t->optimizer,
                        .next = trainer_clock_next,
                        .ctx = t,
                        .comm = MPI_COMM_SELF,
                        .warmup = 2,
                        .least = 7,
                        .most = 101,
                        .enough_s = 0.5};
    double rows = gw_sampler_batch(t->sampler, 0).local;
    gw_busy_watch watch;
    gw_sampler_epoch(t->sampler, 0);
    GW_TRY(gw_busy_open(&watch, &t->node, MPI_COMM_SELF));
    gw_err e = gw_layers_time(&job, &times);
    GW_THEN(e, gw_busy_look(&watch, 0, &t->rec.total.before));
    gw_busy_close(&watch);
    GW_TRY(e);
    *out = (gw_step_times){.update_s = times.update_s / (double)gw_model_size(t->model)};
    out->of[GW_COMPUTED_DATA][0] = times.data_s / rows;
    for (int l = 0; l < held->n_layers; l++) {
        int number = held->layers[l].number;
        out->of[GW_COMPUTED_FORWARD][l] = times.forward_s[number] / rows;
        out->of[GW_COMPUTED_INPUT][l] = times.input_s[number] / rows;
        out->of[GW_COMPUTED_WEIGHTS][l] = times.weights_s[number] / rows;
    }
    return GW_OK;
}

gw_err gw_trainer_open_clock(gw_trainer *t) {
    const gw_simulated *s = t->c->simulated;
    gw_step_times times;
    if (!s)
        return GW_OK;
    /* Ranks that hold equal parts of the model take equally long: the first that takes samples
     * measures for them. */
    bool measures = t->mesh.at[GW_DIM_DATA] == t->part.servers;
    gw_err e = GW_OK;
    gw_watchdog_stage("measuring computation");
    if (s->times)
        e = s->times(s->ctx, t->model, &times);
    else if (measures)
        e = trainer_clock_measure(t, &times);
    GW_THEN(e, trainer_clock_codecs(t, measures));
    memset(gw_model_grads(t->model), 0, gw_model_size(t->model) * sizeof(float));
    GW_TRY(gw_agree(t->comm, e));
    GW_TRY(
        gw_bcast(&times, (int)sizeof times, MPI_BYTE, t->part.servers, t->mesh.comm[GW_DIM_DATA]));
    GW_TRY(gw_bcast(t->measures.prices.of, (int)sizeof t->measures.prices.of, MPI_BYTE,
                    t->part.servers, t->mesh.comm[GW_DIM_DATA]));
    t->stepper.exec = s->open(s->ctx, t->comm, &times);
    GW_TRY(gw_barrier(t->comm));
    gw_clock_virtual(s->ns);
    return GW_OK;
}
