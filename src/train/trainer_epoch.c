/* The end of an epoch: the replicas compared, the model evaluated, a row written. And evaluations
 * within epochs. */
#include "train/trainer_parts.h"

#include "base/mem.h"
#include "train/evaluate.h"

#include <math.h>
#include <zlib.h>

static const gw_column of_evaluations[] = {
    GW_COLUMN(gw_epoch_row, "epoch", INT, epoch),
    GW_COLUMN(gw_epoch_row, "step", I64, step),
    GW_COLUMN_REAL(gw_epoch_row, "test_loss", test_loss, 9),
    GW_COLUMN_REAL(gw_epoch_row, "test_accuracy", test_accuracy, 9),
    GW_COLUMN_REAL(gw_epoch_row, "train_s", train_s, 9),
    GW_COLUMN(gw_epoch_row, "wire_bytes", U64, wire_bytes),
};
const gw_table gw_trainer_evaluations = GW_TABLE("evaluations.csv", gw_epoch_row, of_evaluations);

/* Bytes of a settling belong to the run, but to no batch. */
static gw_err trainer_settle_replicas(gw_trainer *t) {
    gw_recorder_aside();
    gw_err e = gw_inside_drain(t->g);
    gw_recorder_aside_end(&t->rec);
    *t->own = e != GW_OK;
    return e;
}

static gw_err trainer_epoch_evaluate(gw_trainer *t, const gw_dataset *set, int64_t *confusion,
                                     gw_evaluation *out) {
    gw_evaluator by = {.model = t->model,
                       .pipeline = t->stepper.pipeline,
                       .chunk = t->part.chunk,
                       .part = t->mesh.at[GW_DIM_DATA],
                       .parts = t->mesh.shape.size[GW_DIM_DATA],
                       .comm = t->comm};
    gw_resident_enter(&t->rec.resident, GW_RESIDENT_EVALUATION);
    gw_energy_count(&t->rec.energy, false);
    gw_err e = gw_evaluate(&by, set, confusion, out);
    gw_resident_enter(&t->rec.resident, GW_RESIDENT_TRAINING);
    gw_energy_count(&t->rec.energy, true);
    return e;
}

/* One row for each step that was tested; an evaluation that a signal ended tested nothing. */
static gw_err trainer_epoch_tested(gw_trainer *t, const gw_epoch_row *row) {
    if (t->at.evaluated == t->at.step || isnan(row->test_accuracy))
        return GW_OK;
    t->at.evaluated = t->at.step;
    return gw_table_write(&gw_trainer_evaluations, t->epochs.evaluations_csv, row, 1);
}

bool gw_trainer_evaluates(const gw_trainer *t, int64_t step) {
    int64_t every = t->c->eval_every;
    return every > 0 && step / every > t->at.evaluated / every;
}

/* The step's time, bytes and ledger are closed; nothing of the evaluation gets into them. */
gw_err gw_trainer_evaluate(gw_trainer *t) {
    bool ends = t->at.batch == gw_sampler_batches(t->sampler);
    bool agree = !t->stepper.pending && gw_inside_agrees(t->g, 0);
    if (ends || !agree || !gw_trainer_evaluates(t, t->at.step))
        return GW_OK;
    GW_TRY(gw_guard_check(&t->measures.checks.guard)); /* no row of what comes after a fault */
    gw_watchdog_stage("evaluating");
    gw_epoch_row row = {.epoch = t->at.epoch, .step = t->at.step, .train_s = t->rec.train_s};
    gw_evaluation test;
    GW_TRY(gw_recorder_wire(&t->rec, &row.wire_bytes));
    GW_TRY(trainer_epoch_evaluate(t, &t->data->test, NULL, &test));
    row.test_loss = test.loss;
    row.test_accuracy = test.accuracy;
    gw_trainer_heed(t, test.signal);
    if (test.signal)
        t->at.stop_at = t->at.step;
    GW_TRY(gw_agree(t->comm, trainer_epoch_tested(t, &row)));
    gw_watchdog_stage("training");
    return GW_OK;
}

/* Where several ranks hold the model, rank 0 gets all of it; *hash is that of its floats. */
static gw_err trainer_epoch_collect(gw_trainer *t, uint32_t *hash) {
    size_t n = gw_trainer_parameters(t);
    gw_err e = GW_OK;
    if (!gw_mesh_divides(&t->mesh.shape))
        return GW_OK;
    if (t->rank == 0 && !t->epochs.whole)
        e = gw_alloc(&t->epochs.whole, n, sizeof *t->epochs.whole);
    GW_TRY(gw_agree(t->comm, e));
    e = gw_pipeline_collect(t->part.pipeline, gw_model_params(t->model), t->epochs.whole, t->comm);
    if (t->rank == 0)
        *hash = (uint32_t)crc32_z(0, (const Bytef *)t->epochs.whole, n * sizeof(float));
    return gw_agree(t->comm, e);
}

/* What the evaluations found, into the epoch's row. */
static void trainer_epoch_note(const gw_trainer *t, const gw_evaluation *test,
                               const gw_evaluation *validation, gw_epoch_row *row) {
    static gw_class_metrics per[GW_MAX_CONFUSED];
    row->test_loss = test->loss;
    row->test_accuracy = test->accuracy;
    row->test_s = t->c->simulated ? NAN : test->seconds; /* no rank's clock saw it */
    row->test_forward_s = t->c->simulated ? NAN : test->forward_s;
    row->validation_loss = validation->loss;
    row->validation_accuracy = validation->accuracy;
    row->macro = (gw_class_metrics){NAN, NAN, NAN, 0};
    if (!isnan(test->accuracy) && t->epochs.confusion)
        gw_confusion_metrics(t->epochs.confusion, t->data->classes, per, &row->macro);
}

gw_err gw_trainer_end_epoch(gw_trainer *t) {
    gw_watchdog_stage("settling the replicas");
    GW_TRY(trainer_settle_replicas(t));
    GW_TRY(gw_guard_check(&t->measures.checks.guard));
    gw_watchdog_stage("closing the epoch");
    GW_TRY(gw_recorder_flush(&t->rec, t->at.step, NULL));
    uint64_t wire;
    double mean;
    GW_TRY(gw_recorder_loss(&t->rec, &mean));
    GW_TRY(gw_recorder_wire(&t->rec, &wire));
    if (!isfinite(mean)) /* not found above, so it comes of nothing but steps that were left out */
        return gw_fail(GW_ERR_DIVERGED,
                       "epoch %d: loss or gradient are no longer finite in any step, and all are "
                       "left out: try a smaller --lr",
                       t->at.epoch);
    gw_epoch_row row = {.epoch = t->at.epoch,
                        .step = t->at.step,
                        .train_loss = mean,
                        .elapsed_s = gw_ledger_now() - t->rec.zero_s,
                        .train_s = t->rec.train_s,
                        .wire_bytes = wire};
    gw_evaluation test, validation;
    gw_watchdog_stage("evaluating");
    GW_TRY(trainer_epoch_evaluate(t, &t->data->test, t->epochs.confusion, &test));
    GW_TRY(trainer_epoch_evaluate(t, &t->data->validation, NULL, &validation));
    gw_trainer_heed(t, test.signal > validation.signal ? test.signal : validation.signal);
    if (t->watcher.result->signal) /* one that came just now: before the row that it leaves blank */
        GW_TRY(gw_trainer_keep_last(t));
    gw_watchdog_stage("comparing the replicas");
    GW_TRY(gw_checks_compare(&t->measures.checks, t->at.step, &row.replica_hash));
    GW_TRY(trainer_epoch_collect(t, &row.replica_hash));
    trainer_epoch_note(t, &test, &validation, &row);
    gw_best epoch = {
        t->at.epoch, row.validation_loss, row.validation_accuracy, row.test_accuracy, NULL, 0};
    gw_best_offer(&t->epochs.best, &epoch, gw_trainer_whole(t));
    t->watcher.status.loss = mean;
    t->watcher.status.last = t->watcher.result->last = row;
    GW_TRY(gw_agree(t->comm, trainer_epoch_tested(t, &row)));
    return gw_recorder_epoch(&t->rec, &row);
}
