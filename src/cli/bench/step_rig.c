#include "cli/bench/step_rig.h"

#include "base/mem.h"
#include "base/rng.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

gw_err gw_rig_batch(const gw_rig_setup *s, int *global) {
    const gw_train_config *c = s->c;
    int64_t batch = (int64_t)c->batch * (c->local_batch ? s->place->ranks : 1);
    if (batch > INT32_MAX)
        return gw_fail(GW_ERR_USAGE,
                       "local-batch=%d on %d ranks: the global batch must stay below 2^31",
                       c->batch, s->place->ranks);
    *global = (int)batch;
    return GW_OK;
}

/* Samples first..first+local of the batch, which is the same for every rig. */
static void fill(gw_rig *r, const gw_rig_setup *s, size_t first) {
    size_t inputs = (size_t)s->inputs;
    uint64_t pixels = gw_rng_key(s->c->seed, 1), labels = gw_rng_key(s->c->seed, 2);
    float *x = gw_model_input(r->model);
    for (size_t i = 0; i < (size_t)r->local * inputs; i++)
        x[i] = (float)gw_rng_unit(pixels, first * inputs + i);
    for (int i = 0; i < r->local; i++)
        r->stepper.labels[i] =
            (uint8_t)(gw_rng_u64(labels, first + (size_t)i) % (uint64_t)s->classes);
}

static gw_err open_model(gw_rig *r, const gw_rig_setup *s) {
    const gw_train_config *c = s->c;
    gw_model_spec spec = {.inputs = s->inputs,
                          .classes = s->classes,
                          .n_hidden = c->n_hidden,
                          .activation = c->activation,
                          .init = c->init,
                          .seed = c->seed};
    memcpy(spec.hidden, c->hidden, sizeof spec.hidden);
    int servers = gw_session_servers(r->session), worker = s->place->rank - servers;
    gw_span own = {0, 0};
    GW_TRY(gw_rig_batch(s, &r->global));
    if (worker >= 0)
        own = gw_span_part((gw_span){0, (size_t)r->global}, worker, s->place->ranks - servers);
    r->local = (int)own.n;
    r->lr = c->lr;
    GW_TRY(gw_model_open(&r->model, &spec, r->local > 0 ? r->local : 1));
    GW_TRY(gw_optimizer_open(&r->optimizer, gw_model_size(r->model),
                             gw_session_corrects(r->session) ? 0 : c->momentum, c->weight_decay));
    r->stepper = (gw_stepper){
        .model = r->model, .optimizer = r->optimizer, .session = r->session, .lazy = r->lazy};
    GW_TRY(gw_alloc(&r->stepper.labels, own.n, 1));
    fill(r, s, own.off);
    return GW_OK;
}

/* For the cost model: rate 0, so that nothing moves. */
static gw_err rehearse(void *ctx) {
    gw_rig *r = ctx;
    double loss;
    return gw_step_loaded(&r->stepper, r->local, r->global, 0, &loss);
}

gw_err gw_rig_open(gw_rig *r, const gw_rig_setup *s) {
    gw_bench_place place = *s->place;
    GW_TRY(gw_agree(place.comm, open_model(r, s)));
    GW_TRY(gw_bench_place_crowded(&place, gw_session_helpers(r->session), &r->yield));
    gw_products_setup products = {.comm = s->place->comm,
                                  .spec = gw_model_get_spec(r->model),
                                  .batch = r->local,
                                  .threads = s->c->threads,
                                  .polls = s->polls,
                                  .adds = s->adds};
    if (s->products->threads == 0)
        GW_TRY(gw_products_open(s->products, &products));
    gw_auto_job job = {.rehearsal = {&r->stepper, rehearse, r, s->place->comm},
                       .lazy = r->lazy,
                       .yield = r->yield,
                       .seed = s->c->seed};
    return gw_auto_settle(r->choice, &job);
}

gw_err gw_rig_start(gw_rig *r, const gw_rig_setup *s) {
    gw_session_setup setup = {.n = gw_model_size(r->model),
                              .layers = gw_model_spans(r->model),
                              .n_layers = gw_model_layers(r->model),
                              .tensors = gw_model_tensors(r->model),
                              .n_tensors = gw_model_tensor_count(r->model),
                              .by_layer = r->lazy,
                              .adds = true,
                              .lists = gw_optimizer_lists(r->optimizer),
                              .params = gw_model_params(r->model),
                              .momentum = gw_optimizer_momentum(r->optimizer),
                              .pace =
                                  gw_wire_pace(&s->products->wire, gw_products_gap_s(s->products)),
                              .correction = (float)s->c->momentum,
                              .seed = s->c->seed,
                              .yield = r->yield};
    GW_TRY(gw_session_open(r->session, s->place->comm, &setup));
    gw_model_lend(r->model, gw_session_params(r->session), gw_session_grads(r->session));
    return GW_OK;
}

void gw_rig_say_products(const gw_products *p) {
    int by[GW_GEMM_WAYS] = {0};
    for (int i = 0; i < p->plan.n; i++)
        by[p->plan.choice[i].whole]++;
    printf("products:");
    for (int w = 0; w < GW_GEMM_WAYS; w++)
        if (by[w] > 0)
            printf(" %d by %s", by[w], gw_gemm_way_name(w, p->threads));
    if (isfinite(p->plan.piece))
        printf("; pieces of %.3g GFLOP (%.2g ms), the wire drains its buffer in %.2g ms (at %s "
               "%.3g Gbit/s)",
               p->plan.piece * 1e-9, p->plan.piece / p->flops_per_s * 1e3,
               gw_wire_drain_s(&p->wire) * 1e3, p->wire.rate_known ? "the testbed's" : "assumed",
               p->wire.rate_bits_per_s * 1e-9);
    printf("\n%s%s%s", *p->note ? "note: " : "", p->note, *p->note ? "\n" : "");
}

gw_err gw_rig_bound(gw_rig *r, const gw_rig_setup *s, gw_bound_run *out, bool *known, bool *own) {
    gw_bound_mode mode;
    gw_rehearsal job = {&r->stepper, rehearse, r, s->place->comm};
    *out = (gw_bound_run){0};
    *known = gw_bound_of_session(r->session, r->lazy, &mode) == GW_OK;
    return *known ? gw_bound_measure(out, &job, r->yield, own) : GW_OK;
}

gw_err gw_rig_step(gw_rig *r) {
    return gw_step_loaded(&r->stepper, r->local, r->global, (float)r->lr, &r->loss);
}

gw_err gw_rig_settle(gw_rig *r) {
    GW_TRY(gw_step_settle(&r->stepper));
    return gw_session_settle(r->session);
}

void gw_rig_free(gw_rig *r) {
    gw_auto_free(r->choice);
    gw_session_free(r->session);
    gw_optimizer_close(r->optimizer);
    gw_model_close(r->model);
    free(r->stepper.labels);
    *r = (gw_rig){0};
}
