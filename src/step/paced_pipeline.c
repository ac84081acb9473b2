#include "step/paced_pipeline.h"

#include "base/json.h"
#include "base/mem.h"
#include "mpi/wait.h"
#include "prof/matrix.h"

#include <stdlib.h>

/* ---- hooks of a step outside the clock ---- */

typedef struct outside {
    gw_stepper *t;
    gw_paced_onto onto;
} outside;

static void outside_begin(void *ctx, float **grads, bool *add) {
    outside *o = ctx;
    *grads = o->onto.grads;
    *add = o->onto.add;
}

static gw_err outside_ready(void *ctx, int l) {
    outside *o = ctx;
    if (o->t->guard && gw_pipeline_enter(o->t->pipeline, GW_PHASE_BACKWARD)) {
        gw_guard_layer(o->t->guard, o->onto.grads, l);
        gw_pipeline_leave(o->t->pipeline);
    }
    return GW_OK;
}

static void outside_loss(void *ctx, double sum) {
    outside *o = ctx;
    if (o->t->guard)
        gw_guard_loss(o->t->guard, sum);
}

gw_err gw_paced_walk(gw_stepper *t, const gw_batch *batch, gw_paced_onto onto, const gw_exec *exec,
                     double *loss) {
    outside o = {t, onto};
    gw_pipeline_job job = gw_step_job(t, batch);
    gw_pipeline_hooks hooks = {
        .ctx = &o, .begin = outside_begin, .ready = outside_ready, .loss = outside_loss};
    gw_matrix_pause(); /* it is sent again in the clock, and counted there */
    gw_err e = gw_pipeline_step_by(t->pipeline, &job, exec, &hooks, loss);
    gw_matrix_resume();
    return e;
}

void gw_paced_turns(const gw_stepper *t, int *turn, int *turns, MPI_Comm *group) {
    const gw_mesh *mesh = gw_pipeline_mesh(t->pipeline);
    const int *size = mesh->shape.size, *at = mesh->at;
    *turns = size[GW_DIM_PIPE] * size[GW_DIM_TENSOR];
    *turn = at[GW_DIM_PIPE] * size[GW_DIM_TENSOR] + at[GW_DIM_TENSOR];
    *group = mesh->comm[GW_DIM_DATA];
}

/* ---- run.json ---- */

/* What a rank tells of one size of batch. */
enum {
    STAGE,
    PART,
    REPLICA,
    BY,
    BATCH,
    DATA,
    FORWARD,
    RECOMPUTE,
    BACKWARD,
    UPDATE,
    PIECES,
    TAKEN,
    FIGURES
};

static void share_tell(const gw_stepper *t, const gw_tape *tape, double f[FIGURES]) {
    const gw_mesh *mesh = gw_pipeline_mesh(t->pipeline);
    int by[GW_DIMS] = {t->pacer->measured_by, mesh->at[GW_DIM_PIPE], mesh->at[GW_DIM_TENSOR]};
    f[STAGE] = mesh->at[GW_DIM_PIPE];
    f[PART] = mesh->at[GW_DIM_TENSOR];
    f[REPLICA] = mesh->at[GW_DIM_DATA];
    f[BY] = gw_mesh_rank(mesh, by);
    f[BATCH] = tape->samples;
    f[DATA] = tape->phase_s[GW_PHASE_DATA];
    f[FORWARD] = tape->phase_s[GW_PHASE_FORWARD];
    f[RECOMPUTE] = tape->phase_s[GW_PHASE_RECOMPUTE];
    f[BACKWARD] = tape->phase_s[GW_PHASE_BACKWARD];
    f[UPDATE] = tape->update_s;
    f[PIECES] = tape->s.n;
    f[TAKEN] = tape->repetitions;
}

static json_t *share_json(const double f[FIGURES]) {
    return gw_json_object(
        "batch:i stage:i shard:i measured_by:i data_s:f forward_s:f recompute_s:f "
        "backward_s:f update_s:f pieces:i repetitions:i",
        (int)f[BATCH], (int)f[STAGE], (int)f[PART], (int)f[BY], f[DATA], f[FORWARD], f[RECOMPUTE],
        f[BACKWARD], f[UPDATE], (int)f[PIECES], (int)f[TAKEN]);
}

gw_err gw_paced_tell_shares(gw_stepper *t) {
    gw_pacer *p = t->pacer;
    int rank, ranks, n = p->n_tapes * FIGURES;
    double *all = NULL;
    GW_TRY(gw_comm_place(p->comm, &rank, &ranks));
    GW_TRY(gw_agree(p->comm, gw_alloc(&all, (size_t)(ranks * n), sizeof *all)));
    for (int i = 0; i < p->n_tapes; i++)
        share_tell(t, &p->tape[i], all + rank * n + i * FIGURES);
    gw_err e = gw_allreduce(MPI_IN_PLACE, all, ranks * n, MPI_DOUBLE, MPI_SUM, p->comm);
    if (rank == 0)
        p->shares = json_array();
    for (double *f = all; rank == 0 && e == GW_OK && f < all + ranks * n; f += FIGURES)
        if (f[REPLICA] == 0)
            json_array_append_new(p->shares, share_json(f));
    free(all);
    return e;
}
