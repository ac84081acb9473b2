#include "train/trainer_parts.h"

#include "base/mem.h"
#include "base/wait.h"
#include "prof/trace.h"
#include "train/auto.h"
#include "train/evaluate.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

enum {
    LIMIT_EVERY = 16,     /* steps between two looks at the time limit */
    FORGET_EVERY = 64,    /* steps of a rehearsal */
    TRACE_EVENTS = 200000 /* bounds the memory of --trace: about 25 MiB a rank */
};

/* Warm-up climbs from the unscaled rate (or 0, without scaling) to the full one (Goyal et al.,
 * "Accurate, large minibatch SGD", 2017). */
static float rate(const gw_trainer *t, int64_t step) {
    const gw_train_config *c = t->c;
    double full = c->lr * (c->lr_linear ? gw_trainer_workers(t) : 1);
    if (step > c->lr_warmup)
        return (float)full;
    double from = c->lr_linear ? c->lr : 0;
    return (float)(from + (full - from) * (double)step / (double)c->lr_warmup);
}

/* After this step somebody reads parameters or calls MPI: nothing may be pending then. */
static bool must_settle(const gw_trainer *t, int b) {
    return b + 1 == gw_sampler_batches(t->sampler) || t->step == t->c->steps ||
           t->step == t->flush_at || gw_codec_stats_settles(t->stats, t->step) ||
           (t->c->time_limit_s > 0 && t->step % LIMIT_EVERY == 0);
}

static void count_wire(gw_trainer *t, const gw_batch_cost *cost) {
    if (cost->wire_bytes != GW_UNCOUNTED)
        t->wire_bytes += cost->wire_bytes;
}

typedef struct step_job {
    gw_trainer *t;
    gw_batch batch;
    float rate;
    bool settle; /* nothing may be pending afterwards */
} step_job;

static gw_err timed_step(const step_job *job, gw_batch_row *row, double *loss) {
    gw_ledger_begin();
    gw_err e = gw_step(&job->t->stepper, job->batch, job->rate, loss);
    if (e == GW_OK && job->settle)
        e = gw_step_settle(&job->t->stepper);
    gw_ledger_end(&row->cost);
    return e;
}

/* With all that the run does for a row. */
static gw_err measured_step(const step_job *job, gw_batch_row *row, double *loss) {
    gw_trainer *t = job->t;
    bool full = gw_ledger_profile() == GW_PROFILE_FULL;
    gw_waits_begin(t->waits, row->step);
    gw_trace_step(row->step);
    gw_moved before = t->stepper.moved;
    if (full)
        gw_memory_begin(t->memory);
    gw_err e = timed_step(job, row, loss);
    if (full) {
        gw_memory_end(t->memory, row);
        gw_moved moved = gw_moved_since(&t->stepper.moved, &before);
        gw_split_batch(&t->split, job->batch.local, &moved, row);
    }
    gw_waits_end(t->waits);
    return e;
}

/* `counts`: it is a step of the run, not the twin of one. */
static gw_err take_step(void *ctx, bool counts, gw_batch_row *row, double *loss) {
    gw_err e;
    if (counts) {
        MPI_Pcontrol(1); /* a profiler that is attached from outside may look at batches alone */
        e = measured_step(ctx, row, loss);
        MPI_Pcontrol(0);
    } else {
        gw_matrix_pause();
        e = timed_step(ctx, row, loss);
        gw_matrix_resume();
    }
    return e;
}

static gw_err one_step(gw_trainer *t, int epoch, int b, double *loss_sum) {
    gw_batch batch = gw_sampler_batch(t->sampler, b);
    uint64_t logical = gw_session_logical_bytes(t->session);
    gw_batch_row row = gw_batch_row_blank();
    row.epoch = epoch;
    row.step = ++t->step;
    row.samples = batch.local;
    double loss = 0;
    gw_codec_stats_begin(t->stats, t->step);
    step_job job = {t, batch, rate(t, t->step), must_settle(t, b)};
    if (t->paired) {
        GW_TRY(gw_paired_step(t->paired, take_step, &job, &row, &loss, t->own));
    } else {
        gw_err e = take_step(&job, true, &row, &loss);
        *t->own = e != GW_OK;
        GW_TRY(e);
    }
    *loss_sum += loss;
    row.loss = batch.local ? loss / batch.local : NAN;
    row.logical_bytes = gw_session_logical_bytes(t->session) - logical;
    t->train_s += row.cost.wall_s;
    count_wire(t, &row.cost);
    t->status.loss = row.loss;
    gw_trace_row(&row);
    return gw_record_push(t->record, &row);
}

/* Between batches, and on all ranks at the same step. */
static gw_err flush(gw_trainer *t) {
    int room = GW_TRAINER_ROWS;
    int64_t n;
    gw_batch_row *rows = gw_record_rows(t->record, &n);
    if (t->waits)
        GW_TRY(gw_waits_flush(t->waits, rows, n, &room));
    t->flush_at = t->step + room;
    return gw_record_flush(t->record);
}

static gw_err limit_reached(gw_trainer *t, bool *stop) {
    if (t->c->steps > 0 && t->step >= t->c->steps) {
        t->stopped_by = "steps";
        *stop = true;
        return GW_OK;
    }
    if (t->c->time_limit_s <= 0 || t->step % LIMIT_EVERY != 0)
        return GW_OK;
    /* Rank 0's clock decides for all, so that all stop at the same step. */
    int over = gw_ledger_now() - t->limit_from_s >= t->c->time_limit_s;
    GW_TRY(gw_bcast(&over, 1, MPI_INT, 0, t->comm));
    if (over) {
        t->stopped_by = "time-limit";
        *stop = true;
    }
    return GW_OK;
}

static void report(gw_trainer *t, double epoch_start_s, int64_t samples) {
    if (t->rank != 0 || !t->watch)
        return;
    double now = gw_ledger_now();
    t->status.step = t->step;
    t->status.elapsed_s = now - t->limit_from_s;
    if (!t->status.epoch_end && now > epoch_start_s)
        t->status.samples_per_s = (double)samples / (now - epoch_start_s);
    t->watch(t->ctx, &t->status);
    t->status.warning = NULL;
}

/* Every replica must hold the same bits; a difference names the ranks. */
static gw_err check_replicas(gw_trainer *t, uint32_t *hash) {
    *hash = (uint32_t)crc32_z(0, (const Bytef *)gw_model_params(t->model),
                              gw_model_size(t->model) * sizeof(float));
    uint32_t *all = NULL;
    GW_TRY(gw_agree(t->comm, gw_alloc(&all, (size_t)t->ranks, sizeof *all)));
    gw_err e = gw_mpi_check(MPI_Allgather(hash, 1, MPI_UINT32_T, all, 1, MPI_UINT32_T, t->comm),
                            "MPI_Allgather");
    for (int r = 1; e == GW_OK && r < t->ranks; r++)
        if (all[r] != all[0])
            e = gw_fail(GW_ERR_DIVERGED,
                        "step %lld: parameters of rank %d differ from rank 0's (crc32 %08x, %08x): "
                        "the strategy, algorithm or codec does not keep replicas equal",
                        (long long)t->step, r, all[r], all[0]);
    free(all);
    return e;
}

/* Bytes of a settling belong to the run, but to no batch. */
static gw_err settle_replicas(gw_trainer *t) {
    gw_batch_cost cost;
    gw_trace_step(0);
    gw_ledger_begin();
    gw_err e = gw_session_settle(t->session);
    gw_ledger_end(&cost);
    count_wire(t, &cost);
    *t->own = e != GW_OK;
    return e;
}

static gw_err end_epoch(gw_trainer *t, int epoch, double loss_sum, int64_t samples) {
    GW_TRY(settle_replicas(t));
    GW_TRY(flush(t));
    uint64_t wire = t->wire_bytes;
    GW_TRY(gw_allreduce(MPI_IN_PLACE, &loss_sum, 1, MPI_DOUBLE, MPI_SUM, t->comm));
    GW_TRY(gw_allreduce(MPI_IN_PLACE, &wire, 1, MPI_UINT64_T, MPI_SUM, t->comm));
    if (t->c->profile == GW_PROFILE_OFF)
        wire = GW_UNCOUNTED;
    double mean = loss_sum / (double)samples;
    if (!isfinite(mean))
        return gw_fail(GW_ERR_DIVERGED,
                       "epoch %d: the training loss is no longer finite: try a smaller --lr",
                       epoch);
    gw_epoch_row row = {.epoch = epoch,
                        .step = t->step,
                        .train_loss = mean,
                        .elapsed_s = gw_ledger_now() - t->limit_from_s,
                        .train_s = t->train_s,
                        .wire_bytes = wire};
    gw_evaluation test, validation;
    GW_TRY(gw_evaluate(t->model, &t->data->test, t->chunk, t->comm, NULL, &test));
    GW_TRY(gw_evaluate(t->model, &t->data->validation, t->chunk, t->comm, NULL, &validation));
    GW_TRY(check_replicas(t, &row.replica_hash));
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
    GW_TRY(gw_codec_stats_epoch(t->stats, epoch, &t->codec_rows));
    return gw_agree(t->comm, t->epochs_csv ? gw_epochs_write(t->epochs_csv, &row) : GW_OK);
}

static gw_err look_at_codecs(gw_trainer *t) {
    const char *warning = NULL;
    GW_TRY(gw_codec_stats_end(t->stats, t->step, &warning));
    if (warning)
        snprintf(t->warning, sizeof t->warning, "%s", warning);
    t->status.warning = warning;
    return GW_OK;
}

static gw_err one_epoch(gw_trainer *t, int epoch, bool *stop) {
    gw_sampler_epoch(t->sampler, epoch - 1);
    double loss_sum = 0, start_s = gw_ledger_now();
    int64_t samples = 0;
    t->status.epoch = epoch;
    t->status.epoch_end = false;
    for (int b = 0; b < gw_sampler_batches(t->sampler) && !*stop; b++) {
        GW_TRY(one_step(t, epoch, b, &loss_sum));
        samples += gw_sampler_batch(t->sampler, b).global;
        GW_TRY(look_at_codecs(t));
        if (t->step == t->flush_at)
            GW_TRY(flush(t));
        GW_TRY(limit_reached(t, stop));
        report(t, start_s, samples);
    }
    t->status.samples_per_s = (double)samples / (gw_ledger_now() - start_s);
    GW_TRY(end_epoch(t, epoch, loss_sum, samples));
    t->status.epoch_end = true;
    report(t, start_s, samples);
    return GW_OK;
}

/* ---- the end ---- */

static gw_err compare_ranks(gw_trainer *t) {
    gw_train_result *r = t->result;
    bool warm = t->step > 2 * GW_RECORD_WARMUP;
    if (t->rank == 0)
        gw_record_summary(t->record, warm ? GW_RECORD_WARMUP : 0, &r->summary);
    GW_TRY(gw_ranks_collect(&t->by_rank, &r->dropped, t->record, t->waits, t->step, t->comm));
    if (t->rank == 0)
        r->straggler = gw_ranks_straggler(t->by_rank, t->ranks);
    if (t->c->profile == GW_PROFILE_OFF)
        return GW_OK;
    return gw_matrix_write(t->c->out, &r->traffic, t->comm);
}

/* What of the result is known when the last step is done. */
static void note_run(const gw_trainer *t, gw_train_result *r) {
    r->steps = t->step;
    r->elapsed_s = gw_ledger_now() - t->limit_from_s;
    r->train_s = t->train_s;
    r->oversubscribed = t->oversubscribed;
    r->ranks = t->ranks;
    r->workers = gw_trainer_workers(t);
    r->nodes = t->nodes;
    r->node_ranks = t->node_ranks;
    r->parameters = gw_model_size(t->model);
    snprintf(r->stopped_by, sizeof r->stopped_by, "%s", t->stopped_by);
}

/* Phases are means over the ranks, of which servers compute nothing. */
static gw_work_run work_of(const gw_trainer *t) {
    const double *phase = t->result->summary.phase_s;
    int workers = gw_trainer_workers(t);
    double compute_s = phase[GW_PHASE_FORWARD] + phase[GW_PHASE_BACKWARD];
    return (gw_work_run){.spec = gw_model_get_spec(t->model),
                         .batch = (t->global_batch + workers - 1) / workers,
                         .momentum = t->gauging.twins.momentum > 0,
                         .split = &t->split,
                         .compute_s = compute_s * t->ranks / workers};
}

static gw_err write_results(gw_trainer *t) {
    gw_train_result *r = t->result;
    note_run(t, r);
    GW_TRY(compare_ranks(t));
    if (gw_session_forecast(t->session))
        gw_session_forecast(t->session)->measured_s = r->summary.wall_s;
    GW_TRY(gw_memory_finish(t->memory));
    if (t->paired)
        GW_TRY(gw_paired_finish(t->paired, GW_RECORD_WARMUP, &r->paired));
    int64_t split[2] = {t->split.split, t->split.flagged};
    GW_TRY(gw_allreduce(MPI_IN_PLACE, split, 2, MPI_INT64_T, MPI_SUM, t->comm));
    r->split = split[0];
    r->flagged = split[1];
    GW_TRY(gw_gauge_close(&t->gauge, &t->gauging));
    r->ceilings_drift = t->gauge.drift;
    gw_record *record = t->record;
    t->record = NULL;
    GW_TRY(gw_record_close(record));
    if (t->c->trace)
        GW_TRY(gw_trace_write(t->c->out, gw_waits_sync(t->waits), t->comm));
    gw_waits *waits = t->waits;
    t->waits = NULL;
    if (waits)
        GW_TRY(gw_waits_close(waits));
    if (!t->c->out)
        return GW_OK;
    gw_err e = GW_OK;
    if (t->rank == 0) {
        gw_file *epochs = t->epochs_csv;
        t->epochs_csv = NULL;
        e = gw_file_commit(epochs);
        if (e == GW_OK)
            e = gw_codec_stats_commit(t->stats);
        if (e == GW_OK && t->c->save)
            e = gw_model_save(t->model, t->c->out, "model.gw");
    }
    GW_TRY(gw_agree(t->comm, e));
    int level = 0;
    GW_MPI(MPI_Query_thread(&level));
    gw_work_run work = work_of(t);
    gw_run_facts facts = {.data = t->data,
                          .gauge = &t->gauge,
                          .work = &work,
                          .session = t->session,
                          .memory = t->memory,
                          .thread_level = level,
                          .started_utc = t->started_utc,
                          .codec = t->codec_rows,
                          .layers = gw_model_layers(t->model),
                          .warning = t->warning,
                          .by_rank = t->by_rank,
                          .comm = t->comm};
    return gw_runfolder_write(t->c, &facts, r);
}

static gw_err rehearse(void *ctx, int64_t i, gw_batch_cost *cost) {
    gw_trainer *t = ctx;
    double loss;
    gw_batch_row row = gw_batch_row_blank();
    int b = (int)(i % gw_sampler_batches(t->sampler));
    if (i % FORGET_EVERY == 0)
        gw_waits_forget(t->waits); /* it would fill up */
    step_job job = {t, gw_sampler_batch(t->sampler, b), 0, true};
    gw_err e = measured_step(&job, &row, &loss);
    *cost = row.cost;
    return e;
}

static gw_err measure_overhead(gw_trainer *t) {
    static const gw_profile both[] = {GW_PROFILE_TIMERS, GW_PROFILE_FULL};
    const gw_train_config *c = t->c;
    if (c->overhead == 0 || c->profile == GW_PROFILE_OFF)
        return GW_OK;
    gw_overhead_job job = {.stepper = &t->stepper,
                           .step = rehearse,
                           .ctx = t,
                           .profiles = c->overhead_only ? both : &c->profile,
                           .n = c->overhead_only ? 2 : 1,
                           .rounds = c->overhead,
                           .seed = c->seed,
                           .comm = t->comm};
    double skew_s = t->stepper.skew_s; /* is no part of the step */
    t->stepper.skew_s = 0;
    GW_TRY(gw_overhead_measure(t->result->overhead, &job, t->own));
    t->stepper.skew_s = skew_s;
    gw_codec_stats_restart(t->stats);
    gw_waits_forget(t->waits);
    gw_memory_forget(t->memory);
    gw_split_forget(&t->split);
    return gw_agree(t->comm, gw_matrix_open()); /* from zero again */
}

static gw_err run(gw_trainer *t) {
    GW_TRY(gw_trainer_open(t));
    if (t->c->profile != GW_PROFILE_OFF)
        GW_TRY(gw_agree(t->comm, gw_matrix_open()));
    GW_TRY(measure_overhead(t));
    if (t->c->overhead_only) {
        t->result->parameters = gw_model_size(t->model);
        return GW_OK;
    }
    if (t->c->trace) { /* now: it shows the run, no rehearsal */
        GW_TRY(gw_trace_open(TRACE_EVENTS, t->comm));
        gw_trace_counters(t->record);
    }
    int per_epoch = gw_sampler_batches(t->sampler);
    t->status.epochs = t->c->epochs;
    t->status.steps = (int64_t)per_epoch * t->c->epochs;
    if (t->c->steps > 0 && t->c->steps < t->status.steps)
        t->status.steps = t->c->steps;
    t->status.data = t->data;
    t->status.parameters = gw_model_size(t->model);
    t->status.ranks = t->ranks;
    t->status.oversubscribed = t->oversubscribed;
    t->stopped_by = "epochs";
    t->limit_from_s = gw_ledger_now();
    report(t, t->limit_from_s, 0);
    bool stop = false;
    for (int epoch = 1; epoch <= t->c->epochs && !stop; epoch++)
        GW_TRY(one_epoch(t, epoch, &stop));
    return write_results(t);
}

static gw_err check(gw_trainer *t) {
    GW_TRY(gw_trainer_check(t));
    t->stopped_by = "check";
    note_run(t, t->result);
    return GW_OK;
}

gw_err gw_train(const gw_train_config *config, gw_session *session, MPI_Comm comm,
                void (*watch)(void *ctx, const gw_train_status *status), void *ctx,
                gw_train_result *result, bool *own) {
    gw_trainer t = {.c = config,
                    .comm = comm,
                    .session = session,
                    .watch = watch,
                    .ctx = ctx,
                    .result = result,
                    .own = own};
    *own = false;
    memset(result, 0, sizeof *result);
    gw_err e = config->check ? check(&t) : run(&t);
    /* After a failure of one rank alone no collective can be relied on, closing included. */
    if (!*own)
        gw_trainer_close(&t);
    return e;
}
