/* The end of an epoch: the replicas compared, the model evaluated, a row written. */
#include "train/trainer_parts.h"

#include "mpi/wait.h"
#include "trace/trace.h"
#include "train/evaluate.h"

#include <math.h>

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
    gw_train_result *r = t->result;
    r->train_loss = t->status.loss = mean;
    r->test_loss = t->status.test_loss = test.loss;
    r->test_accuracy = t->status.test_accuracy = test.accuracy;
    r->validation_loss = t->status.validation_loss = validation.loss;
    r->validation_accuracy = t->status.validation_accuracy = validation.accuracy;
    r->wire_bytes = wire;
    r->replica_hash = row.replica_hash;
    GW_TRY(gw_codec_stats_epoch(t->stats, t->epoch, &t->codec_rows));
    return gw_agree(t->comm, t->epochs_csv ? gw_epochs_write(t->epochs_csv, &row) : GW_OK);
}
