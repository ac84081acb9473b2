#include "step/checks.h"

#include "base/json.h"
#include "mpi/replicas.h"
#include "mpi/wait.h"
#include "prof/ledger.h"

#include <stdlib.h>

gw_err gw_checks_refuse(const gw_train_config *c, const gradwire *g) {
    gw_inside_facts is = gw_inside_know(g);
    bool verify = c->run.verify_every > 0;
    if (is.synchronous || is.plan.agrees || (!verify && c->eval_every == 0))
        return GW_OK;
    return gw_fail(GW_ERR_UNSUPPORTED,
                   "train: --%s replicas, and those of --comm %s agree only at the end of an "
                   "epoch, where they are averaged and %s anyway: remove --%s-every",
                   verify ? "verify-every compares" : "eval-every evaluates", is.strategy,
                   verify ? "compared" : "evaluated", verify ? "verify" : "eval");
}

void gw_checks_open(gw_checks *k, const gw_train_config *c, gradwire *g, MPI_Comm comm,
                    MPI_Comm replicas, const gw_span *layers, int n_layers, const int *number) {
    int rank, ranks;
    gw_comm_place(comm, &rank, &ranks);
    *k = (gw_checks){.comm = comm,
                     .replicas = replicas,
                     .g = g,
                     .layers = layers,
                     .n_layers = n_layers,
                     .ranks = ranks,
                     .every = c->run.verify_every,
                     .guard = {.comm = comm,
                               .rank = rank,
                               .how = c->run.on_nan,
                               .together = gw_inside_know(g).synchronous,
                               .layers = layers,
                               .n_layers = n_layers,
                               .number = number,
                               .most = gw_inside_know(g).most}};
}

static uint64_t checks_frames(const gw_checks *k) {
    return gw_inside_frames(k->g) + (k->pipeline ? gw_pipeline_frames(k->pipeline) : 0);
}

void gw_checks_begin(gw_checks *k) {
    k->rehearsed = checks_frames(k);
    gw_inside_recount(k->g);
}

gw_checks_mark gw_checks_keep(const gw_checks *k) {
    gw_checks_mark mark = k->mark;
    mark.bad_steps = k->guard.bad_steps;
    mark.out_steps = k->guard.out_steps;
    mark.first = gw_guard_first(&k->guard);
    mark.frames += checks_frames(k) - k->rehearsed;
    return mark;
}

void gw_checks_resume(gw_checks *k, const gw_checks_mark *mark) {
    k->mark = *mark;
    k->guard.bad_steps = mark->bad_steps;
    k->guard.out_steps = mark->out_steps;
    k->guard.earlier = mark->first;
}

void gw_checks_add(gw_checks_mark *sum, const gw_checks_mark *other) {
    sum->out_steps += other->out_steps;
    sum->frames += other->frames;
    if (gw_fault_before(&other->first, &sum->first))
        sum->first = other->first;
}

void gw_checks_clear(gw_checks_mark *mark) {
    mark->out_steps = 0;
    mark->first = (gw_fault){0};
    mark->frames = 0;
}

bool gw_checks_due(const gw_checks *k, int64_t step) {
    return k->every > 0 && step - k->mark.compared >= k->every;
}

gw_err gw_checks_compare(gw_checks *k, int64_t step, uint32_t *hash) {
    double from = gw_ledger_now();
    const float *params = gradwire_memory(k->g, 0, GRADWIRE_PARAM);
    gw_replicas replicas = {.params = params,
                            .layers = k->layers,
                            .n_layers = k->n_layers,
                            .number = k->guard.number,
                            .step = step,
                            .comm = k->replicas};
    gw_err e = gw_replicas_compare(&replicas, hash);
    GW_THEN(e, gw_guard_params(params, k->layers, k->n_layers, k->guard.number, step));
    GW_TRY(gw_agree(k->comm, e));
    k->mark.compared = step;
    k->mark.comparisons++;
    k->mark.compare_s += gw_ledger_now() - from;
    return GW_OK;
}

gw_err gw_checks_step(gw_checks *k, int64_t step) {
    uint32_t hash;
    if (!gw_checks_due(k, step) || !gw_inside_agrees(k->g, 0))
        return GW_OK;
    return gw_checks_compare(k, step, &hash);
}

gw_err gw_checks_collect(const gw_checks *k, gw_checks_total *out) {
    *out = (gw_checks_total){.comparisons = k->mark.comparisons,
                             .compare_s = k->mark.compare_s,
                             .ranks = k->ranks,
                             .framed = gw_inside_know(k->g).framed,
                             .frames = gw_checks_keep(k).frames};
    GW_TRY(gw_allreduce(MPI_IN_PLACE, &out->frames, 1, MPI_UINT64_T, MPI_SUM, k->comm));
    return gw_guard_collect(&k->guard, k->ranks, &out->nan);
}

void gw_checks_free(gw_checks_total *t) {
    free(t->nan.bad_steps);
    t->nan.bad_steps = NULL;
}

json_t *gw_checks_json(const gw_checks_total *t) {
    return gw_json_object("replicas:I replicas_s:f nan:o wire:o", t->comparisons, t->compare_s,
                          gw_guard_json(&t->nan, t->ranks, NULL),
                          t->framed ? gw_json_object("frames:I", t->frames) : json_null());
}
