#include "step/paced.h"

#include "base/mem.h"
#include "base/nap.h"
#include "mpi/wait.h"
#include "nn/gemm.h"
#include "prof/clock.h"
#include "step/exec/measure.h"
#include "step/exec/naive.h"
#include "step/paced_pipeline.h"
#include "step/snapshot.h"
#include "watch/watchdog.h"

#include <stdlib.h>
#include <string.h>

#define BUDGET_S 1.0 /* of a size of batch, beyond the least steps */

gw_err gw_paced_refuse(const gw_train_config *c, const gradwire *g) {
    const char *what = c->run.lazy ? "a step whose updates are all done before the next one "
                                     "computes: use --update eager"
                       : !gw_inside_know(g).codec
                           ? "a codec by name, for --compress auto measures ranks that "
                             "compute at once"
                           : NULL;
    return c->pace > 0 && what ? gw_fail(GW_ERR_UNSUPPORTED, "train: --pace needs %s", what)
                               : GW_OK;
}

/* Does each rank hold a part of the model, or pass its batch in microbatches? */
static bool paced_parts(const gw_stepper *t) {
    return !t->naive && !gw_pipeline_is_whole(t->pipeline);
}

/* ---- the arithmetic of a step ---- */

static gw_err paced_ahead(gw_stepper *t, const gw_batch *batch, float *sums) {
    gw_paced_onto onto = {sums ? sums : gw_model_grads(t->model), sums};
    gw_exec ahead = gw_exec_ahead(&t->sleeper);
    if (!t->naive)
        return gw_paced_walk(t, batch, onto, &ahead, &t->computed_loss);
    t->computed_loss = gw_exec_naive_compute(t, batch);
    return GW_OK;
}

gw_err gw_paced_prepare(gw_stepper *t, const gw_batch *batch) {
    float *sums = NULL;
    if (!t->naive)
        GW_TRY(gradwire_begin(t->g, batch->local, batch->global));
    if (t->is.adds && !t->naive) /* the exchange keeps what the backward pass adds to */
        GW_TRY(gw_inside_sums(t->g, &sums));
    GW_TRY(paced_ahead(t, batch, sums));
    GW_TRY(gw_gemm_check());
    return gw_pacer_begin(t->pacer, batch->local);
}

/* ---- measuring ---- */

/* At rate 0 parameters keep their values, but for the sign of a zero; the optimizer's state does
 * not. */
static gw_err paced_measure(gw_stepper *t, gw_sampler *sampler, double budget_s) {
    gw_snapshot kept = {.alone = true};
    gw_err e = gw_snapshot_take(&kept, t);
    t->pacer->wake_s = gw_pacer_wake();
    for (int i = 0; e == GW_OK && i < t->pacer->n_tapes; i++)
        e = gw_exec_measure(t, &t->pacer->tape[i], sampler, budget_s);
    GW_THEN(e, gw_snapshot_put(&kept, t));
    memset(gw_model_grads(t->model), 0, gw_model_size(t->model) * sizeof(float));
    gw_snapshot_free(&kept);
    return e;
}

/* ---- all ranks ---- */

/* Ranks that measure one after another; those of a group have one share. */
typedef struct turns {
    MPI_Comm group;
    int own, n;
} turns;

static turns paced_turns(const gw_stepper *t) {
    turns k = {t->pacer->comm, 0, 1};
    if (paced_parts(t))
        gw_paced_turns(t, &k.own, &k.n, &k.group);
    return k;
}

/* The sizes of all ranks' batches, and the rank of a group that measures: the first with the
 * largest. */
static gw_err paced_find_sizes(gw_pacer *p, const gw_sampler *s, MPI_Comm group) {
    struct {
        int most, rank;
    } largest = {gw_sampler_max_local(s), 0};
    unsigned char *seen = NULL;
    GW_MPI(MPI_Comm_rank(group, &largest.rank));
    GW_TRY(gw_allreduce(MPI_IN_PLACE, &largest, 1, MPI_2INT, MPI_MAXLOC, group));
    GW_TRY(gw_agree(p->comm, gw_alloc(&seen, (size_t)largest.most + 1, 1)));
    seen[gw_sampler_batch(s, 0).local] = 1;
    seen[gw_sampler_batch(s, gw_sampler_batches(s) - 1).local] = 1;
    gw_err e =
        gw_allreduce(MPI_IN_PLACE, seen, largest.most + 1, MPI_UNSIGNED_CHAR, MPI_MAX, group);
    for (int n = largest.most; e == GW_OK && n >= 0 && p->n_tapes < GW_PACER_SIZES; n--)
        if (seen[n])
            p->tape[p->n_tapes++] = (gw_tape){.samples = n};
    int last = p->n_tapes == GW_PACER_SIZES ? p->tape[p->n_tapes - 1].samples : 0;
    if (e == GW_OK && last > 0 && memchr(seen, 1, (size_t)last))
        e = gw_fail(GW_ERR_UNSUPPORTED,
                    "--pace: the ranks' parts of a batch have more than %d different sizes: give a "
                    "--partition with fewer, or a --batch that its shares divide",
                    GW_PACER_SIZES);
    free(seen);
    p->measured_by = largest.rank;
    return e;
}

static gw_err paced_make_room(gw_tape *t, int pieces) {
    gw_err e = t->pieces ? GW_OK : gw_alloc(&t->pieces, (size_t)t->segments, sizeof *t->pieces);
    while (e == GW_OK && t->s.n < pieces)
        e = gw_samples_add(&t->s, 0);
    return e;
}

/* Of the rank that measured, to its group. */
static gw_err paced_share_tape(const gw_pacer *p, gw_tape *t, MPI_Comm group) {
    double more[] = {t->update_s, t->repetitions, t->segments, t->s.n};
    GW_TRY(gw_bcast(more, 4, MPI_DOUBLE, p->measured_by, group));
    t->update_s = more[0];
    t->repetitions = (int)more[1];
    t->segments = (int)more[2];
    GW_TRY(gw_agree(p->comm, paced_make_room(t, (int)more[3])));
    GW_TRY(gw_bcast(t->phase_s, GW_PHASES, MPI_DOUBLE, p->measured_by, group));
    GW_TRY(gw_bcast(t->in_phase, GW_PHASES, MPI_INT, p->measured_by, group));
    GW_TRY(gw_bcast(t->pieces, t->segments, MPI_INT, p->measured_by, group));
    return gw_bcast(t->s.x, t->s.n, MPI_DOUBLE, p->measured_by, group);
}

/* One rank at a time, while all others sleep. */
static gw_err paced_measure_in_turn(gw_stepper *t, gw_sampler *sampler, const turns *k) {
    gw_pacer *p = t->pacer;
    gw_err e = GW_OK;
    int rank;
    GW_MPI(MPI_Comm_rank(k->group, &rank));
    for (int turn = 0; turn < k->n; turn++) {
        if (turn == k->own && rank == p->measured_by)
            e = paced_measure(t, sampler, BUDGET_S / k->n);
        MPI_Request request;
        GW_MPI(MPI_Ibarrier(p->comm, &request));
        GW_TRY(gw_wait_asleep(&request));
        gw_watchdog_beat();
    }
    return gw_agree(p->comm, e);
}

static gw_err paced_measure_alone(gw_stepper *t, gw_sampler *sampler) {
    gw_pacer *p = t->pacer;
    turns k = paced_turns(t);
    GW_TRY(paced_find_sizes(p, sampler, k.group));
    GW_TRY(paced_measure_in_turn(t, sampler, &k));
    for (int i = 0; i < p->n_tapes; i++)
        GW_TRY(paced_share_tape(p, &p->tape[i], k.group));
    GW_TRY(gw_bcast(&p->wake_s, 1, MPI_DOUBLE, p->measured_by, k.group));
    return paced_parts(t) ? gw_paced_tell_shares(t) : GW_OK;
}

/* Activations of a first batch, so that what is measured finds such numbers. Collective. */
static gw_err paced_fill(gw_stepper *t, const gw_sampler *sampler) {
    gw_batch batch = gw_sampler_batch(sampler, 0);
    return paced_parts(t) ? paced_ahead(t, &batch, NULL) : GW_OK;
}

/* See the head: where the last step's gradients are still needed. */
static gw_err paced_lend(gw_stepper *t) {
    size_t n = gw_model_size(t->model);
    if (!(t->is.traits & GW_STRATEGY_LATE))
        return GW_OK;
    GW_TRY(gw_alloc(&t->scratch, n, sizeof(float)));
    gw_model_lend(t->model, gw_model_params(t->model), t->scratch);
    return GW_OK;
}

gw_err gw_paced_open(gw_stepper *t, double factor, gw_sampler *sampler, MPI_Comm comm) {
    gw_err e = gw_alloc(&t->pacer, 1, sizeof *t->pacer);
    GW_THEN(e, paced_lend(t));
    GW_TRY(gw_agree(comm, e));
    t->sleeper.pacer = t->pacer;
    t->pacer->factor = factor;
    t->pacer->comm = comm;
    t->pacer->parameters = gw_model_size(t->model);
    gw_clock_start();
    gw_nap_lightly();
    GW_TRY(paced_fill(t, sampler));
    return paced_measure_alone(t, sampler);
}

void gw_paced_close(gw_stepper *t) {
    gw_pacer_close(t->pacer);
    free(t->scratch);
    free(t->sleeper.sent.x);
    t->pacer = NULL;
    t->scratch = NULL;
}
