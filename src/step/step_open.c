/* Opening the exchange that a stepper works with, and what of it needs no step. */
#include "step/step.h"

#include "machine/host.h"
#include "nn/gemm.h"

#include <stdio.h>
#include <string.h>

gw_err gw_step_batch(const gw_train_config *c, int ranks, int *global) {
    int64_t batch = (int64_t)c->batch * (c->local_batch ? ranks : 1);
    if (batch > INT32_MAX)
        return gw_fail(GW_ERR_USAGE,
                       "local-batch=%d on %d ranks: the global batch must stay below 2^31",
                       c->batch, ranks);
    *global = (int)batch;
    return GW_OK;
}

/* The first tensor of the whole model's last layer, or how many tensors there are here. */
static int step_head(const gw_model *model) {
    int last = gw_model_spec_layers(gw_model_get_spec(model)) - 1, t = gw_model_tensor_count(model);
    while (t > 0 && gw_model_tensors(model)[t - 1].layer == last)
        t--;
    return t;
}

gw_err gw_step_optimizer(gw_optimizer **out, const gw_train_config *c, const gw_model *model,
                         bool corrected) {
    gw_optimizer_setup setup = {.spec = c->optimizer,
                                .command = c->args,
                                .corrected = corrected,
                                .n = gw_model_size(model),
                                .model = {.tensors = gw_model_tensors(model),
                                          .n_tensors = gw_model_tensor_count(model),
                                          .head = step_head(model),
                                          .inputs_rows = true,
                                          .product = gw_gemm}};
    return gw_optimizer_open(out, &setup);
}

gw_err gw_step_check_parts(const gw_optimizer *o, const gw_model *model, bool cuts) {
    bool parts = cuts || gw_model_shard(model)->share.tensor > 1;
    if (!parts || !gw_optimizer_whole(o))
        return GW_OK;
    return gw_fail(GW_ERR_UNSUPPORTED,
                   "--optimizer %s moves whole tensors, and with this --comm or --mesh a rank "
                   "updates parts of them: change one of these",
                   o->ops->head.name);
}

/* Reads the rate of the simulated link, or of this host's link; 0 where it is not known. */
static gw_err step_link(const gw_step_setup *s, double *bytes_per_s) {
    gw_host_link link;
    if (s->c && s->c->simulated) {
        *bytes_per_s = s->c->simulated->rate_bits_per_s / 8;
        return GW_OK;
    }
    GW_TRY(gw_host_link_read(&link));
    *bytes_per_s = link.emulated ? (double)link.rate_bits_per_s / 8 : 0;
    return GW_OK;
}

static gw_err step_tell(const gw_stepper *t, gradwire *g, const gw_step_setup *s) {
    gw_inside_setup told = {.comm = s->comm,
                            .in_rows = true,
                            .lazy = t->lazy,
                            .yield = s->yield,
                            .params = gw_model_params(t->model),
                            .vectors = t->optimizer->state,
                            .most = t->optimizer->ops->most,
                            .seed = s->seed,
                            .note = s->note,
                            .table = s->table};
    if (s->c) {
        told.model_layers = gw_model_spec_layers(gw_model_get_spec(t->model));
        told.lists = gw_optimizer_lists(t->optimizer);
        told.undo = s->c->run.on_nan == GW_ON_NAN_SKIP;
        told.correction = (float)s->c->run.momentum;
        told.clip = s->c->run.clip;
        told.rest = s->rest;
        told.n_rest = s->n_rest;
    }
    GW_TRY(step_link(s, &told.link_bytes_per_s));
    gw_inside_tell(g, &told);
    return GW_OK;
}

/* Tensor i's layer, of those that the model holds. */
static int step_layer(const gw_stepper *t, int i) {
    int l = 0;
    while (gw_span_end(gw_model_spans(t->model)[l]) <= gw_model_tensors(t->model)[i].span.off)
        l++;
    return l;
}

static void step_name(const gw_stepper *t, gradwire *g, int i) {
    const gw_tensor *of = &gw_model_tensors(t->model)[i];
    char name[32];
    snprintf(name, sizeof name, "%d of layer %d", i, of->layer);
    gradwire_tensor(g, name, step_layer(t, i), of->span.n, (size_t)of->rows, NULL);
    gw_inside_tensor(g, i, of->layer, of->tracks);
}

gw_err gw_step_open(gw_stepper *t, gradwire *g, const gw_step_setup *s) {
    gw_pipeline_hooks hooks = gw_step_hooks(t);
    gw_err e = t->pipeline ? GW_OK : gw_pipeline_open_whole(&t->pipeline, t->model, &hooks);
    GW_THEN(e, step_tell(t, g, s));
    GW_TRY(gw_agree(s->comm, e));
    for (int i = 0; i < gw_model_tensor_count(t->model); i++)
        step_name(t, g, i);
    GW_TRY(gradwire_open(g)); /* all ranks learn of what was refused */
    t->g = g;
    t->is = gw_inside_know(g);
    gw_model_lend(t->model, gradwire_memory(g, 0, GRADWIRE_PARAM),
                  gradwire_memory(g, 0, GRADWIRE_GRAD));
    GW_TRY(gw_agree(s->comm, gw_inside_suits(g, t->optimizer)));
    return gw_agree(s->comm, gw_step_check_parts(t->optimizer, t->model, gw_inside_cuts(t->g)));
}

void gw_step_close(gw_stepper *t) {
    if (!t->pipeline || !gw_pipeline_is_whole(t->pipeline))
        return;
    gw_pipeline_close(t->pipeline);
    gw_pipeline_free(t->pipeline);
    t->pipeline = NULL;
}

/* ---- the exchange without the step ---- */

gw_err gw_step_offer(gw_stepper *t, const float *gradient) {
    float *sums;
    GW_TRY(gradwire_begin(t->g, 1, 1));
    GW_TRY(gw_inside_sums(t->g, &sums));
    memcpy(sums ? sums : gradwire_memory(t->g, 0, GRADWIRE_GRAD), gradient,
           gw_model_size(t->model) * sizeof *gradient);
    return GW_OK;
}

gw_err gw_step_exchange(gw_stepper *t, size_t *owned) {
    int spans = t->lazy ? gw_model_layers(t->model) : 1;
    *owned = 0;
    for (int i = gw_model_tensor_count(t->model) - 1; i >= 0; i--)
        GW_TRY(gradwire_ready(t->g, 1, &i, NULL));
    for (int i = 0; i < spans; i++) {
        int owns = gradwire_finish(t->g, t->lazy ? i : GRADWIRE_ALL);
        if (owns < 0)
            return owns;
        *owned += gw_inside_update(t->g)->own.n;
    }
    GW_TRY(gradwire_updated(t->g, GRADWIRE_ALL));
    GW_TRY(gw_inside_drain(t->g));
    return gradwire_end(t->g, 0);
}
