/* The clock of a run in virtual time. */
#include "mpi/wait.h"
#include "play/spend.h"
#include "predict/profile.h"
#include "prof/clock.h"
#include "train/trainer_parts.h"

#include <string.h>

static void trainer_clock_next(void *ctx, gw_pipeline_job *pass) {
    gw_trainer *t = ctx;
    int b = t->measures.rehearsed++ % gw_sampler_full(t->sampler);
    gw_batch batch = gw_sampler_batch(t->sampler, b);
    *pass = gw_step_job(&t->stepper, &batch);
}

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
    memset(gw_model_grads(t->model), 0, gw_model_size(t->model) * sizeof(float));
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

/* Ranks that hold equal parts of the model take equally long: the first that takes samples measures
 * for them. */
static gw_err trainer_clock_times(gw_trainer *t, gw_step_times *times) {
    const gw_simulated *s = t->c->simulated;
    gw_err e = GW_OK;
    if (s->times)
        return gw_agree(t->comm, s->times(s->ctx, t->model, times));
    gw_watchdog_stage("measuring computation");
    if (t->mesh.at[GW_DIM_DATA] == t->part.servers)
        e = trainer_clock_measure(t, times);
    GW_TRY(gw_agree(t->comm, e));
    return gw_bcast(times, (int)sizeof *times, MPI_BYTE, t->part.servers,
                    t->mesh.comm[GW_DIM_DATA]);
}

gw_err gw_trainer_open_clock(gw_trainer *t) {
    const gw_simulated *s = t->c->simulated;
    gw_step_times times;
    if (!s)
        return GW_OK;
    GW_TRY(trainer_clock_times(t, &times));
    t->stepper.exec = s->open(s->ctx, t->comm, &times, gw_products_gap_s(&t->measures.products));
    GW_TRY(gw_barrier(t->comm));
    gw_clock_virtual(s->ns);
    return GW_OK;
}
