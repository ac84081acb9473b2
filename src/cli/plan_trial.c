#include "cli/plan_trial.h"

#include "base/mem.h"
#include "base/steady.h"
#include "mpi/agree.h"
#include "nn/gemm.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

gw_plan_trial *gw_plan_trials_add(gw_plan_trials *t, int of, const double *predicted_s,
                                  double *measured_s) {
    gw_plan_trial *one = &t->at[t->n++];
    one->of = of;
    one->predicted_s = predicted_s;
    one->measured_s = measured_s;
    return one;
}

/* ---- a layout ---- */

static gw_err trial_new_session(gw_plan_trial *t, const gw_train_config *c) {
    gw_mix exact;
    GW_TRY(gw_mix_single(&exact, &gw_codec_exact, c->run.wire_check));
    GW_TRY(gw_session_new(&t->rig.session, c->run.comm, &exact, c->run.feedback));
    return gw_rig_own(&t->rig);
}

static gw_err trial_open_rig(gw_plan_trial *t, const gw_place_setup *s) {
    gw_rig *r = &t->rig;
    gw_placed *p = &t->placed;
    r->local = (int)p->rows.n;
    r->global = (int)s->set->n;
    r->lr = p->c.rate.lr;
    r->stepper = (gw_stepper){.model = p->model,
                              .optimizer = p->optimizer,
                              .g = r->g,
                              .set = s->set,
                              .pipeline = p->pipeline};
    GW_TRY(gw_alloc(&r->stepper.labels, p->rows.n * (size_t)s->set->targets,
                    sizeof *r->stepper.labels));
    GW_TRY(gw_alloc(&r->idx, p->rows.n, sizeof *r->idx));
    for (size_t i = 0; i < p->rows.n; i++)
        r->idx[i] = (uint32_t)(p->rows.off + i);
    return GW_OK;
}

gw_err gw_plan_trial_open(gw_plan_trial *t, const gw_place_setup *s, const gw_layout *l,
                          bool yield) {
    gw_placed *p = &t->placed;
    GW_TRY(gw_agree(s->comm, trial_new_session(t, s->c)));
    GW_TRY(gw_placed_open(p, s, l, t->rig.session));
    GW_TRY(gw_agree(s->comm, trial_open_rig(t, s)));
    gw_step_setup setup = {.c = &p->c,
                           .products = &p->products,
                           .comm = p->mesh.comm[GW_DIM_DATA],
                           .seed = p->c.run.seed,
                           .lazy = p->c.run.lazy,
                           .yield = yield};
    GW_TRY(gw_step_open(&t->rig.stepper, t->rig.g, &setup));
    gw_pipeline_hooks hooks = gw_step_hooks(&t->rig.stepper);
    if (p->pipeline)
        GW_TRY(gw_pipeline_open(p->pipeline, p->model, &hooks, p->c.run.seed, yield, s->comm));
    return GW_OK;
}

gw_err gw_plan_trial_start(gw_plan_trial *t, const gw_rig_setup *s, bool lazy, gw_err e) {
    t->rig.lazy = lazy;
    GW_THEN(e, gw_rig_own(&t->rig));
    GW_TRY(gw_agree(s->place->comm, e));
    GW_TRY(gw_rig_open(&t->rig, s));
    return gw_rig_start(&t->rig, s);
}

/* ---- turns ---- */

static gw_plan_trials *trials; /* those that take them */

static gw_rig *trial_turn(int i) {
    gw_plan_trial *t = &trials->at[i];
    if (t->placed.model)
        gw_gemm_adopt(&t->placed.products.plan);
    return &t->rig;
}

gw_err gw_plan_trials_measure(gw_plan_trials *t, const gw_args *args, const gw_bench_place *place,
                              uint64_t seed, bool *own) {
    int block = (int)gw_args_int(args, "block");
    gw_rig_turns turns = {.place = place,
                          .rig = trial_turn,
                          .n = t->n,
                          .steps = (int)gw_args_int(args, "steps"),
                          .block = block,
                          .warmup = block,
                          .seed = seed};
    trials = t;
    gw_err e = gw_rig_take_turns(&turns);
    for (int i = 0; e == GW_OK && i < t->n; i++)
        e = gw_steady_of(t->at[i].rig.mean.x, t->at[i].rig.mean.n, t->at[i].measured_s);
    *own = e != GW_OK; /* the others wait in an exchange */
    return e;
}

void gw_plan_print_given(const gw_args *args) {
    for (const gw_opt *o = gw_args_opts(args); strcmp(o->name, "codecs") != 0; o++)
        if (gw_args_given(args, o->name) && strcmp(o->name, "comm") != 0)
            printf(" --%s '%s'", o->name, gw_args_text(args, o->name));
}

void gw_plan_trials_print(const gw_plan_trials *t) {
    double best = INFINITY, worst = 1;
    for (int i = 0; i < t->n; i++) {
        double measured_s = *t->at[i].measured_s, off = *t->at[i].predicted_s / measured_s;
        best = fmin(best, measured_s);
        worst = fmax(off, 1 / off) > fmax(worst, 1 / worst) ? off : worst;
    }
    if (t->n > 0)
        printf("prediction farthest off: %.2f of the measured; the choice took %.2f of the best "
               "measured\n",
               worst, *t->at[0].measured_s / best);
}

void gw_plan_trials_close(gw_plan_trials *t) {
    for (; t->n > 0; t->n--) {
        gw_plan_trial *last = &t->at[t->n - 1];
        if (last->placed.pipeline) { /* else the stepper has its own */
            gw_pipeline_close(last->placed.pipeline);
            gw_pipeline_free(last->placed.pipeline);
            last->placed.pipeline = last->rig.stepper.pipeline = NULL;
        }
        gw_rig_stop(&last->rig);
        gw_placed_close(&last->placed);
        gw_rig_free(&last->rig);
    }
}
