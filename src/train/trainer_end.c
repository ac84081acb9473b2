/* The end of a run: what all steps and ranks add up to, and the files of its folder. */
#include "train/trainer_parts.h"

#include "mpi/wait.h"

#include <math.h>

void gw_trainer_note(const gw_trainer *t, gw_train_result *r) {
    r->steps = t->at.step;
    r->total = t->rec.total;
    r->total.by_rank = NULL; /* the recorder's, as hosts */
    r->total.hosts = NULL;
    r->train_s = t->rec.train_s;
    r->ranks = t->ranks;
    r->parameters = gw_trainer_parameters(t);
    r->checkpoints = gw_checkpoint_count(t->checkpoint);
    r->best = t->epochs.best;
    r->best.params = NULL; /* the trainer's */
    snprintf(r->stopped_by, sizeof r->stopped_by, "%s", t->at.stopped_by);
}

/* Rank 0: the model is what all this led to, or its best. */
static gw_err trainer_save_model(gw_trainer *t) {
    bool saves = t->c->keep.model == GW_SAVE_BEST ? t->epochs.best.epoch > 0
                                                  : t->c->keep.model == GW_SAVE_LAST;
    const float *params = t->epochs.best.params ? t->epochs.best.params : gw_trainer_whole(t);
    uint64_t bytes;
    uint32_t crc32;
    return saves ? gw_model_save_as(t->model, params, t->c->run.out, "model.gw", &bytes, &crc32)
                 : GW_OK;
}

gw_err gw_trainer_finish(gw_trainer *t) {
    gw_train_result *r = t->watcher.result;
    gw_watchdog_stage("collecting the results");
    GW_TRY(gw_recorder_total_up(&t->rec, t->at.step, gw_trainer_workers(t)));
    if (t->rec.has_matrix)
        t->rec.total.traffic = t->past.traffic;
    gw_trainer_note(t, r);
    bool pipe = t->mesh.shape.size[GW_DIM_PIPE] > 1;
    r->bubble_s = pipe ? r->total.summary.dim_waiting_s[GW_DIM_PIPE] : NAN;
    GW_TRY(gw_checks_collect(&t->measures.checks, &t->measures.checked));
    r->foretold = *gw_inside_know(t->g).unmet;
    GW_TRY(gw_trainer_unmet(t, true));
    r->left_out = t->measures.checked.nan.out_steps;
    r->first_fault = t->measures.checked.nan.first;
    if (t->choice)
        t->choice->measured_s = r->total.summary.wall_s;
    GW_TRY(gw_memory_finish(t->measures.memory));
    r->bound_s = t->measures.bound.measured
                     ? gw_bound_step(&t->measures.bound.parts, t->measures.bound.mode)
                     : 0;
    r->bound_mode = t->measures.bound.mode;
    if (t->measures.paired)
        GW_TRY(gw_paired_finish(t->measures.paired, GW_RECORD_WARMUP, &r->paired));
    gw_pacer *pacer = t->stepper.pacer;
    double of_pace[2] = {pacer ? pacer->late_sum_s / (double)pacer->steps : NAN, t->at.outside_s};
    GW_TRY(gw_allreduce(MPI_IN_PLACE, of_pace, 2, MPI_DOUBLE, MPI_MAX, t->comm));
    r->late_s = of_pace[0];
    r->outside_s = of_pace[1];
    int64_t split[2] = {t->measures.split.split, t->measures.split.flagged};
    GW_TRY(gw_allreduce(MPI_IN_PLACE, split, 2, MPI_INT64_T, MPI_SUM, t->comm));
    GW_TRY(gw_allreduce(&t->at.checkpoint_s, &r->checkpoint_s, 1, MPI_DOUBLE, MPI_MAX, t->comm));
    r->split = split[0];
    r->flagged = split[1];
    gw_watchdog_stage("measuring the ceilings again");
    GW_TRY(gw_gauge_close(&t->measures.gauge, &t->measures.gauging));
    r->ceilings_drift = t->measures.gauge.drift;
    gw_watchdog_stage("writing the results");
    GW_TRY(gw_recorder_end(&t->rec, &gw_trainer_evaluations));
    if (!t->c->run.out)
        return GW_OK;
    GW_TRY(gw_agree(t->comm, t->rank == 0 ? trainer_save_model(t) : GW_OK));
    return gw_trainer_write(t);
}
