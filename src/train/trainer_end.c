/* The end of a run: what all steps and ranks add up to, and the files of its folder. */
#include "train/trainer_parts.h"

#include "mpi/wait.h"
#include "select/chooser.h"
#include "trace/trace.h"

#include <math.h>

static gw_err trainer_compare_ranks(gw_trainer *t) {
    gw_train_result *r = t->result;
    if (t->rank == 0)
        gw_record_summary(t->record, &r->summary);
    bool pipe = t->mesh.shape.size[GW_DIM_PIPE] > 1;
    r->bubble_s = pipe ? r->summary.dim_waiting_s[GW_DIM_PIPE] : NAN;
    GW_TRY(gw_ranks_collect(&t->by_rank, &r->dropped, t->record, t->waits, t->step, t->began_at,
                            t->comm));
    GW_TRY(gw_ranks_memory(t->by_rank, &t->resident, t->comm));
    if (t->rank == 0)
        r->straggler = gw_ranks_straggler(t->by_rank, t->ranks);
    if (t->c->profile == GW_PROFILE_OFF)
        return GW_OK;
    GW_TRY(gw_matrix_write(t->has_matrix ? NULL : t->c->out, &r->traffic, t->comm));
    if (t->has_matrix)
        r->traffic = t->traffic;
    return GW_OK;
}

void gw_trainer_note(const gw_trainer *t, gw_train_result *r) {
    r->steps = t->step;
    r->elapsed_s = gw_ledger_now() - t->zero_s;
    r->train_s = t->train_s;
    r->ranks = t->ranks;
    r->parameters = gw_trainer_parameters(t);
    r->checkpoints = gw_checkpoint_count(t->checkpoint);
    r->best = t->best;
    r->best.params = NULL; /* the trainer's */
    snprintf(r->stopped_by, sizeof r->stopped_by, "%s", t->stopped_by);
}

/* Rank 0: what grew row by row is whole, and the model is what all this led to, or its best. */
static gw_err trainer_commit_files(gw_trainer *t) {
    GW_TRY(gw_rows_commit(t->rows, &gw_epochs));
    GW_TRY(gw_rows_commit(t->rows, &gw_trainer_evaluations));
    GW_TRY(gw_rows_commit(t->rows, &gw_codec_stats_table));
    GW_TRY(gw_rows_finish(t->rows));
    bool saves = t->c->save == GW_SAVE_BEST ? t->best.epoch > 0 : t->c->save == GW_SAVE_LAST;
    const float *params = t->best.params ? t->best.params : gw_trainer_whole(t);
    uint64_t bytes;
    uint32_t crc32;
    return saves ? gw_model_save_as(t->model, params, t->c->out, "model.gw", &bytes, &crc32)
                 : GW_OK;
}

gw_err gw_trainer_finish(gw_trainer *t) {
    gw_train_result *r = t->result;
    gw_watchdog_stage("collecting the results");
    gw_resident_end(&t->resident); /* what follows belongs to no phase */
    gw_trainer_note(t, r);
    GW_TRY(gw_busy_look(&t->busy, 0, &r->during));
    GW_TRY(gw_link_cost_end(&r->link_cost, gw_trainer_workers(t), t->comm));
    GW_TRY(trainer_compare_ranks(t));
    GW_TRY(gw_checks_collect(&t->checks, &t->checked));
    r->foretold = *gw_inside_know(t->g).unmet;
    GW_TRY(gw_trainer_unmet(t, true));
    r->left_out = t->checked.nan.out_steps;
    r->first_fault = t->checked.nan.first;
    if (t->choice)
        t->choice->measured_s = r->summary.wall_s;
    GW_TRY(gw_memory_finish(t->memory));
    r->bound_s = t->bound.measured ? gw_bound_step(&t->bound.parts, t->bound.mode) : 0;
    r->bound_mode = t->bound.mode;
    if (t->paired)
        GW_TRY(gw_paired_finish(t->paired, GW_RECORD_WARMUP, &r->paired));
    gw_pacer *pacer = t->stepper.pacer;
    double of_pace[2] = {pacer ? pacer->late_sum_s / (double)pacer->steps : NAN, t->outside_s};
    GW_TRY(gw_allreduce(MPI_IN_PLACE, of_pace, 2, MPI_DOUBLE, MPI_MAX, t->comm));
    r->late_s = of_pace[0];
    r->outside_s = of_pace[1];
    int64_t split[2] = {t->split.split, t->split.flagged};
    GW_TRY(gw_allreduce(MPI_IN_PLACE, split, 2, MPI_INT64_T, MPI_SUM, t->comm));
    GW_TRY(gw_allreduce(&t->checkpoint_s, &r->checkpoint_s, 1, MPI_DOUBLE, MPI_MAX, t->comm));
    r->split = split[0];
    r->flagged = split[1];
    gw_watchdog_stage("measuring the ceilings again");
    GW_TRY(gw_gauge_close(&t->gauge, &t->gauging));
    r->ceilings_drift = t->gauge.drift;
    gw_watchdog_stage("writing the results");
    gw_record *record = t->record;
    t->record = NULL;
    GW_TRY(gw_record_close(record));
    if (t->c->trace && !t->has_trace)
        GW_TRY(gw_trace_write(t->c->out, gw_waits_sync(t->waits), t->comm));
    gw_waits *waits = t->waits;
    t->waits = NULL;
    if (waits)
        GW_TRY(gw_waits_close(waits));
    if (!t->c->out)
        return GW_OK;
    GW_TRY(gw_agree(t->comm, t->rank == 0 ? trainer_commit_files(t) : GW_OK));
    return gw_trainer_write(t);
}
