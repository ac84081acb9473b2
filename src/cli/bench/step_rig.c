#include "cli/bench/step_rig.h"

#include "base/mem.h"
#include "base/rng.h"
#include "mpi/rounds.h"
#include "mpi/wait.h"
#include "nn/gemm.h"
#include "prof/ledger.h"
#include "prof/record.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* Samples first..first+local of the batch, which is the same for every rig. */
static void rig_fill(gw_rig *r, const gw_rig_setup *s, size_t first) {
    size_t inputs = (size_t)s->spec.inputs;
    uint64_t pixels = gw_rng_key(s->c->run.seed, 1), labels = gw_rng_key(s->c->run.seed, 2);
    gw_span input = gw_model_edge(r->model, 0, GW_EDGE_INPUT, (gw_micro){.n = r->local});
    float *x = gw_model_work(r->model) + input.off;
    uint64_t classes = (uint64_t)s->spec.classes;
    size_t targets = (size_t)gw_model_spec_targets(&s->spec);
    for (size_t i = 0; i < (size_t)r->local * inputs; i++)
        x[i] = s->spec.context > 0 ? (float)(gw_rng_u64(pixels, first * inputs + i) % classes)
                                   : (float)gw_rng_unit(pixels, first * inputs + i);
    for (size_t i = 0; i < (size_t)r->local * targets; i++)
        r->stepper.labels[i] = (gw_label)(gw_rng_u64(labels, first * targets + i) % classes);
}

gw_err gw_rig_own(gw_rig *r) {
    gw_session *s = r->session;
    r->session = NULL;
    GW_TRY(gw_inside_new(&r->g, s));
    r->session = s;
    return GW_OK;
}

gw_model_spec gw_rig_spec(const gw_train_config *c, const gw_args *args) {
    gw_model_spec spec = c->model;
    spec.inputs = spec.context > 0 ? spec.context : (int)gw_args_int(args, "inputs");
    spec.classes = (int)gw_args_int(args, "classes");
    return spec;
}

static gw_err rig_open_model(gw_rig *r, const gw_rig_setup *s) {
    const gw_train_config *c = s->c;
    int servers = gw_session_servers(r->session), worker = s->place->rank - servers;
    gw_span own = {0, 0};
    GW_TRY(gw_step_batch(c, s->place->ranks, &r->global));
    if (worker >= 0)
        own = gw_span_part((gw_span){0, (size_t)r->global}, worker, s->place->ranks - servers);
    r->local = (int)own.n;
    r->lr = c->rate.lr;
    GW_TRY(gw_model_open(&r->model, &s->spec, r->local > 0 ? r->local : 1));
    GW_TRY(gw_step_optimizer(&r->optimizer, c, r->model, r->session->residuals.corrects));
    r->stepper =
        (gw_stepper){.model = r->model, .optimizer = r->optimizer, .g = r->g, .lazy = r->lazy};
    r->stepper.is = gw_inside_know(r->g);
    GW_TRY(gw_alloc(&r->stepper.labels, own.n * (size_t)gw_model_spec_targets(&s->spec),
                    sizeof *r->stepper.labels));
    rig_fill(r, s, own.off);
    return GW_OK;
}

gw_layer_job gw_rig_layers(gw_rig *r, bool polls, MPI_Comm comm) {
    return (gw_layer_job){.model = r->model,
                          .optimizer = r->optimizer,
                          .pass = {.labels = r->stepper.labels,
                                   .local = r->local,
                                   .global = r->global,
                                   .pieces = polls},
                          .comm = comm};
}

gw_err gw_rig_open(gw_rig *r, const gw_rig_setup *s) {
    gw_bench_place place = *s->place;
    GW_TRY(gw_agree(place.comm, rig_open_model(r, s)));
    GW_TRY(gw_bench_place_crowded(&place, gw_session_helpers(r->session), &r->yield));
    gw_products_setup products = {.comm = s->place->comm,
                                  .load = {.shard = gw_model_shard(r->model), .batch = r->local},
                                  .threads = s->c->run.threads,
                                  .polls = s->polls,
                                  .adds = s->adds};
    if (s->products->threads == 0)
        GW_TRY(gw_products_open(s->products, &products));
    gw_chooser_job job = {.steps = gw_rig_layers(r, r->stepper.is.polls, s->place->comm),
                          .threads = s->c->run.threads,
                          .remembers = r->optimizer->state.count > 0,
                          .nodes = place.nodes,
                          .lazy = r->lazy,
                          .yield = r->yield,
                          .seed = s->c->run.seed};
    return gw_chooser_settle(r->choice, &job);
}

gw_err gw_rig_start(gw_rig *r, const gw_rig_setup *s) {
    gw_step_setup setup = {.c = s->c,
                           .products = s->products,
                           .comm = s->place->comm,
                           .seed = s->c->run.seed,
                           .lazy = r->lazy,
                           .yield = r->yield};
    GW_TRY(gw_step_open(&r->stepper, r->g, &setup));
    if (gw_inside_repeat(r->g, GW_RECORD_WARMUP).all == 1)
        return GW_OK;
    return gw_fail(GW_ERR_UNSUPPORTED,
                   "--comm %s --compress %s: not all steps exchange the same with these options, "
                   "and here steps are timed one by one: use gradwire train, which counts whole "
                   "periods",
                   r->session->strategy.ops->head.name, r->session->mix.spec);
}

void gw_rig_say_products(const gw_products *p) {
    int by[GW_GEMM_WAYS] = {0};
    for (int i = 0; i < p->plan.n; i++)
        by[p->plan.choice[i].whole]++;
    if (gw_gemm_warning())
        printf("note: %s\n", gw_gemm_warning());
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
    gw_layer_job steps = gw_rig_layers(r, r->stepper.is.polls, s->place->comm);
    *out = (gw_bound_run){0};
    *known = gw_bound_of(&r->stepper.is, r->lazy, &mode) == GW_OK;
    return *known ? gw_bound_measure(out, &r->stepper, &steps, r->yield, own) : GW_OK;
}

/* ---- turns ---- */

static gw_err rig_one_step(gw_rig *r, gw_batch_cost *cost) {
    gw_ledger_begin();
    gw_err e = r->idx ? gw_step(&r->stepper, (gw_batch){r->idx, r->local, r->global}, (float)r->lr,
                                &r->loss)
                      : gw_step_loaded(&r->stepper, r->local, r->global, (float)r->lr, &r->loss);
    gw_ledger_end(cost);
    return e;
}

static gw_err rig_settle(gw_rig *r) {
    gw_batch_cost cost;
    gw_ledger_begin();
    gw_err e = gw_step_settle(&r->stepper);
    GW_THEN(e, gw_inside_drain(r->g));
    gw_ledger_end(&cost);
    return e;
}

/* n steps after one more that is not kept. */
static gw_err rig_turn(const gw_rig_turns *t, int i, int n, bool timed) {
    static gw_batch_cost cost[1 + GW_RIG_BLOCK];
    static double wall[GW_RIG_BLOCK], mean[GW_RIG_BLOCK];
    gw_rig *r = t->rig(i);
    GW_TRY(gw_bench_sync(t->place));
    for (int k = 0; k <= n; k++)
        GW_TRY(rig_one_step(r, &cost[k]));
    GW_TRY(rig_settle(r));
    for (int k = 0; k < n; k++) {
        wall[k] = cost[1 + k].wall_s;
        mean[k] = wall[k] / t->place->ranks;
    }
    GW_TRY(gw_allreduce(MPI_IN_PLACE, wall, n, MPI_DOUBLE, MPI_MAX, t->place->comm));
    GW_TRY(gw_allreduce(MPI_IN_PLACE, mean, n, MPI_DOUBLE, MPI_SUM, t->place->comm));
    for (int k = 0; k < n && timed; k++) {
        GW_TRY(gw_samples_add(&r->wall, wall[k]));
        GW_TRY(gw_samples_add(&r->mean, mean[k]));
    }
    return timed && t->keep ? t->keep(i, cost + 1, n) : GW_OK;
}

static gw_err rig_next_turn(void *ctx, int i, double *unused) {
    const gw_rig_turns *t = ctx;
    int left = t->steps - t->rig(i)->wall.n;
    (void)unused;
    return rig_turn(t, i, left < t->block ? left : t->block, true);
}

gw_err gw_rig_take_turns(gw_rig_turns *t) {
    gw_rounds rounds = {.seed = t->seed, .once = rig_next_turn, .ctx = t};
    gw_ledger_start();
    for (int i = 0; i < t->n; i++)
        for (int left = t->warmup; left > 0; left -= t->block)
            GW_TRY(rig_turn(t, i, left < t->block ? left : t->block, false));
    for (int done = 0; done < t->steps; done += t->block)
        GW_TRY(gw_rounds_next(&rounds, t->n, NULL, NULL));
    return GW_OK;
}

void gw_rig_stop(gw_rig *r) {
    gradwire_close(r->g);
    r->g = NULL;
    r->session = NULL;
}

void gw_rig_free(gw_rig *r) {
    gw_chooser_free(r->choice);
    gw_rig_stop(r);
    gw_step_close(&r->stepper);
    gw_optimizer_close(r->optimizer);
    gw_model_close(r->model);
    gw_samples_free(&r->wall);
    gw_samples_free(&r->mean);
    free(r->stepper.labels);
    free(r->idx);
    *r = (gw_rig){0};
}
