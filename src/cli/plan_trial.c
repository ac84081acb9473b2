#include "cli/plan_trial.h"

#include "base/mem.h"
#include "mpi/agree.h"
#include "nn/gemm.h"

#include <stdlib.h>

static gw_err trial_new_session(gw_plan_trial *t, const gw_train_config *c) {
    gw_mix exact;
    GW_TRY(gw_mix_single(&exact, &gw_codec_exact, c->wire_check));
    GW_TRY(gw_session_new(&t->rig.session, c->comm, &exact, c->feedback));
    return gw_rig_own(&t->rig);
}

static gw_err trial_open_rig(gw_plan_trial *t, const gw_place_setup *s) {
    gw_rig *r = &t->rig;
    gw_placed *p = &t->placed;
    r->local = (int)p->rows.n;
    r->global = (int)s->set->n;
    r->lr = p->c.lr;
    r->stepper = (gw_stepper){.model = p->model,
                              .optimizer = p->optimizer,
                              .g = r->g,
                              .set = s->set,
                              .pipeline = p->pipeline};
    GW_TRY(gw_alloc(&r->stepper.labels, p->rows.n, 1));
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
                           .seed = p->c.seed,
                           .lazy = p->c.lazy,
                           .yield = yield};
    GW_TRY(gw_step_open(&t->rig.stepper, t->rig.g, &setup));
    gw_pipeline_hooks hooks = gw_step_hooks(&t->rig.stepper);
    if (p->pipeline)
        GW_TRY(gw_pipeline_open(p->pipeline, p->model, &hooks, p->c.seed, yield, s->comm));
    return GW_OK;
}

void gw_plan_trial_close(gw_plan_trial *t) {
    gw_pipeline_close(t->placed.pipeline);
    gw_pipeline_free(t->placed.pipeline);
    t->placed.pipeline = NULL;
    gw_rig_stop(&t->rig);
    gw_placed_close(&t->placed);
    gw_rig_free(&t->rig);
    gw_samples_free(&t->wall);
}

gw_rig *gw_plan_trial_turn(gw_plan_trial *t) {
    gw_gemm_adopt(&t->placed.products.plan);
    return &t->rig;
}
