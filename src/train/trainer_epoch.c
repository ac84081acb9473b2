/* The end of an epoch: the replicas compared, the model evaluated, a row written. */
#include "train/trainer_parts.h"

#include "mpi/wait.h"
#include "trace/trace.h"
#include "train/evaluate.h"

#include <math.h>

static const gw_column columns[] = {
    GW_COLUMN(gw_epoch_row, "epoch", INT, epoch),
    GW_COLUMN(gw_epoch_row, "step", I64, step),
    GW_COLUMN_REAL(gw_epoch_row, "train_loss", train_loss, 9),
    GW_COLUMN_REAL(gw_epoch_row, "validation_loss", validation_loss, 9),
    GW_COLUMN_REAL(gw_epoch_row, "validation_accuracy", validation_accuracy, 9),
    GW_COLUMN_REAL(gw_epoch_row, "test_loss", test_loss, 9),
    GW_COLUMN_REAL(gw_epoch_row, "test_accuracy", test_accuracy, 9),
    GW_COLUMN_REAL(gw_epoch_row, "elapsed_s", elapsed_s, 9),
    GW_COLUMN_REAL(gw_epoch_row, "train_s", train_s, 9),
    GW_COLUMN(gw_epoch_row, "wire_bytes", U64, wire_bytes),
    GW_COLUMN(gw_epoch_row, "replica_hash", HASH, replica_hash),
};
const gw_table gw_trainer_epochs = GW_TABLE("epochs.csv", gw_epoch_row, columns);

/* Bytes of a settling belong to the run, but to no batch. */
static gw_err settle_replicas(gw_trainer *t) {
    gw_batch_cost cost;
    gw_trace_step(0);
    gw_ledger_begin();
    gw_err e = gw_session_settle(t->session);
    gw_ledger_end(&cost);
    gw_trainer_count_wire(t, &cost);
    *t->own = e != GW_OK;
    return e;
}

gw_err gw_trainer_end_epoch(gw_trainer *t) {
    gw_watchdog_stage("settling the replicas");
    GW_TRY(settle_replicas(t));
    GW_TRY(gw_guard_check(&t->checks.guard));
    gw_watchdog_stage("closing the epoch");
    GW_TRY(gw_trainer_flush(t));
    uint64_t wire = t->wire_bytes;
    double sums[2] = {t->loss_sum, (double)t->left_out};
    GW_TRY(gw_allreduce(MPI_IN_PLACE, sums, 2, MPI_DOUBLE, MPI_SUM, t->comm));
    GW_TRY(gw_allreduce(MPI_IN_PLACE, &wire, 1, MPI_UINT64_T, MPI_SUM, t->comm));
    if (t->c->profile == GW_PROFILE_OFF)
        wire = GW_UNCOUNTED;
    double mean = sums[0] / ((double)t->samples - sums[1]);
    if (!isfinite(mean)) /* not found above, so it comes of nothing but steps that were left out */
        return gw_fail(GW_ERR_DIVERGED,
                       "epoch %d: loss or gradient are no longer finite in any step, and all are "
                       "left out: try a smaller --lr",
                       t->epoch);
    gw_epoch_row row = {.epoch = t->epoch,
                        .step = t->step,
                        .train_loss = mean,
                        .elapsed_s = gw_ledger_now() - t->zero_s,
                        .train_s = t->train_s,
                        .wire_bytes = wire};
    gw_evaluation test, validation;
    gw_watchdog_stage("evaluating");
    GW_TRY(gw_evaluate(t->model, &t->data->test, t->chunk, t->comm, NULL, &test));
    GW_TRY(gw_evaluate(t->model, &t->data->validation, t->chunk, t->comm, NULL, &validation));
    gw_trainer_heed(t, test.signal > validation.signal ? test.signal : validation.signal);
    if (t->result->signal) /* one that came just now: before the row that it leaves blank */
        GW_TRY(gw_trainer_keep_last(t));
    gw_watchdog_stage("comparing the replicas");
    GW_TRY(gw_checks_compare(&t->checks, t->step, &row.replica_hash));
    row.test_loss = test.loss;
    row.test_accuracy = test.accuracy;
    row.validation_loss = validation.loss;
    row.validation_accuracy = validation.accuracy;
    t->status.loss = mean;
    t->status.last = t->result->last = row;
    GW_TRY(gw_codec_stats_epoch(t->stats, t->epoch, &t->codec_rows));
    return gw_agree(t->comm, gw_table_write(&gw_trainer_epochs, t->epochs_csv, &row, 1));
}
