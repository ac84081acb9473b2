#include "cli/bench/step_rig.h"

#include "mpi/rounds.h"
#include "mpi/wait.h"
#include "nn/gemm.h"
#include "prof/ledger.h"
#include "prof/record.h"

#include <stdio.h>

gw_err gw_rig_new(gw_rig *r, const gw_spec *comm, gw_mix *mix, const char *feedback) {
    gw_session *s = NULL;
    GW_TRY(gw_session_new(&s, comm, mix, feedback));
    GW_TRY(gw_inside_new(&r->g, s));
    r->session = s;
    return GW_OK;
}

gw_rig_setup gw_rig_setup_of(const gw_train_config *c, const gw_bench_place *place) {
    gw_model_spec spec = c->model; /* that the command line describes */
    spec.inputs = spec.context > 0 ? spec.context : (int)gw_args_int(c->args, "inputs");
    spec.classes = (int)gw_args_int(c->args, "classes");
    return (gw_rig_setup){.at = {.comm = place->comm, .c = c, .spec = spec}, .place = place};
}

gw_err gw_rig_open(gw_rig *r, const gw_rig_setup *s) {
    gw_bench_place place = *s->place;
    gw_placed *p = &r->at;
    GW_TRY(gw_placed_open(p, &s->at, s->parallel, r->session));
    r->stepper = (gw_stepper){.model = p->model,
                              .optimizer = p->optimizer,
                              .g = r->g,
                              .is = gw_inside_know(r->g),
                              .set = p->set,
                              .labels = p->labels,
                              .lazy = r->lazy,
                              .pipeline = p->pipeline};
    GW_TRY(gw_bench_place_crowded(&place, r->session->strategy.plan.helpers, &r->yield));
    gw_chooser_job job = {.steps = gw_placed_layers(p), .nodes = place.nodes, .yield = r->yield};
    return gw_chooser_settle(r->choice, &job);
}

gw_err gw_rig_start(gw_rig *r) {
    gw_placed *p = &r->at;
    gw_step_setup setup = {.c = &p->c,
                           .comm = p->meshed ? p->mesh.comm[GW_DIM_DATA] : p->comm,
                           .seed = p->c.run.seed,
                           .yield = r->yield};
    GW_TRY(gw_step_open(&r->stepper, r->g, &setup));
    gw_pipeline_hooks hooks = gw_step_hooks(&r->stepper);
    if (p->pipeline)
        GW_TRY(gw_pipeline_open(p->pipeline, p->model, &hooks, setup.seed, r->yield, p->comm));
    if (gw_inside_repeat(r->g, GW_RECORD_WARMUP).all == 1)
        return GW_OK;
    return gw_fail(GW_ERR_UNSUPPORTED,
                   "--comm %s --compress %s: not all steps exchange the same with these options, "
                   "and here steps are timed one by one: use gradwire train, which counts whole "
                   "periods",
                   r->session->strategy.ops->head.name, r->session->mix.spec);
}

void gw_rig_say_warning(void) {
    if (gw_gemm_warning())
        printf("note: %s\n", gw_gemm_warning());
}

/* ---- turns ---- */

/* n steps after one more that is not kept. */
static gw_err rig_turn(const gw_rig_turns *t, int i, int n, bool timed) {
    static gw_batch_cost cost[1 + GW_RIG_BLOCK];
    static double wall[GW_RIG_BLOCK], mean[GW_RIG_BLOCK];
    gw_rig *r = t->rig(i);
    const gw_placed *p = &r->at;
    gw_batch batch = {p->set ? p->idx : NULL, (int)p->rows.n, p->global};
    gw_batch_cost settling;
    GW_TRY(gw_bench_sync(t->place));
    gw_err e = GW_OK;
    for (int k = 0; k <= n && e == GW_OK; k++) {
        gw_ledger_begin();
        e = gw_step(&r->stepper, batch, (float)p->c.rate.lr, &r->loss);
        gw_ledger_end(&cost[k]);
    }
    gw_ledger_begin();
    GW_THEN(e, gw_step_settle(&r->stepper));
    GW_THEN(e, gw_inside_drain(r->g));
    gw_ledger_end(&settling);
    GW_TRY(e);
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
    gw_placed_close(&r->at);
    gw_samples_free(&r->wall);
    gw_samples_free(&r->mean);
    *r = (gw_rig){0};
}
