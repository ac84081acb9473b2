/* A training run: its steps one by one, what happens between them (evaluations, checkpoints,
 * votes), and the ends of its epochs. */
#include "train/trainer.h"

#include "base/mem.h"
#include "base/turn.h"
#include "prof/clock.h"
#include "prof/tempo.h"
#include "trace/trace.h"
#include "train/evaluate.h"
#include "train/trainer_parts.h"

#include <math.h>
#include <string.h>
#include <zlib.h>

enum { FORGET_EVERY = 64 /* steps of a rehearsal */ };

/* ---- a step ---- */

/* A step of the run, or of a rehearsal, and the row that it leaves. */
typedef struct step_job {
    gw_batch batch;
    float rate;
    bool settle; /* nothing may be pending afterwards */
    bool keep;   /* take a checkpoint then */
    gw_batch_parts parts;
} step_job;

/* Takes a step between the clocks, with all that the run does for a row. */
static gw_err trainer_step(gw_trainer *t, step_job *job) {
    gw_batch_parts *parts = &job->parts;
    gw_counters *counters = gw_memory_counters(t->measures.memory);
    gw_moved before = t->stepper.moved;
    gw_exchange_log_begin(parts->step);
    gw_trace_step(parts->step);
    gw_counters_begin(counters);
    gw_ledger_begin();
    if (parts->injected_s > 0) {
        /* Keep the rank busy, as if it had more to do than the others have. */
        const gw_exec *exec = t->stepper.exec;
        uint64_t start = gw_clock_ticks();
        gw_phase_enter(GW_PHASE_DATA);
        if (exec)
            exec->rest(exec->ctx, parts->injected_s);
        while (!exec && gw_clock_since(start) < parts->injected_s)
            ;
        gw_phase_leave();
    }
    gw_err e = gw_step(&t->stepper, job->batch, job->rate, &parts->loss_sum);
    if (job->settle)
        GW_THEN(e, gw_step_settle(&t->stepper));
    if (job->keep)
        GW_THEN(e, gw_checkpoint_take(t->checkpoint));
    gw_ledger_end(&parts->cost);
    parts->counts = gw_counters_end(counters, &parts->cost);
    gw_moved moved = gw_moved_since(&t->stepper.moved, &before);
    parts->split = gw_split_batch(&t->measures.split, job->batch.local, &moved, &parts->cost);
    gw_exchange_log_end();
    gw_watchdog_beat();
    return e;
}

/* Is the model to be evaluated after this step (if the replicas agree then), beside the end of the
 * epoch? */
static bool trainer_evaluates(const gw_trainer *t, int64_t step) {
    int64_t every = t->c->eval_every;
    return every > 0 && step / every > t->rec.tested / every;
}

/* Returns the next step, with its row as far as that is known before. */
static step_job trainer_next_step(gw_trainer *t) {
    bool counts = !t->part.pipeline || gw_pipeline_counts(t->part.pipeline); /* its replica's */
    gw_batch batch = gw_sampler_batch(t->sampler, t->at.batch);
    int64_t step = ++t->at.step;
    t->measures.checks.guard.step = step;
    t->at.keep = gw_checkpoint_due(t->checkpoint, step);
    gw_codec_stats_begin(t->rec.stats, step);
    bool due = trainer_evaluates(t, step) || gw_checks_due(&t->measures.checks, step);
    /* After it somebody reads parameters: nothing may be pending then. */
    bool settle = t->at.batch + 1 == gw_sampler_batches(t->sampler) || step == t->c->until.steps ||
                  step == t->rec.flush_at || step == t->at.stop_at || t->at.keep ||
                  (due && gw_inside_agrees(t->g, t->stepper.pending + 1)) ||
                  gw_codec_stats_settles(t->rec.stats, step);
    return (step_job){
        .batch = batch,
        .rate = gw_trainer_rate(t, step),
        .settle = settle,
        .keep = t->at.keep,
        .parts = {
            .rank = t->rank,
            .place = {t->mesh.at[GW_DIM_DATA], t->mesh.at[GW_DIM_PIPE], t->mesh.at[GW_DIM_TENSOR]},
            .epoch = t->at.epoch,
            .step = step,
            .samples = counts ? batch.local : 0,
            .injected_s = gw_delay_draw(&t->c->skew, t->c->run.seed, t->rank, step),
            .logical_bytes = gw_inside_logical(t->g),
            .slept = t->c->simulated}};
}

/* Counts a step that was taken, and has it recorded. What came in damaged is found by the rank it
 * came to, in its own time. */
static gw_err trainer_record(gw_trainer *t, step_job *job, gw_err e) {
    *t->own = e != GW_OK;
    if (e == GW_ERR_CORRUPT)
        return gw_fail(e, "step %lld: %s", (long long)t->at.step, gw_err_text());
    GW_TRY(e);
    gw_watchdog_step(t->at.step, t->at.epoch);
    t->at.batch++;
    t->at.samples += job->batch.global;
    t->at.checkpoint_s += job->parts.cost.phase_s[GW_PHASE_CHECKPOINT];
    job->parts.logical_bytes = gw_inside_logical(t->g) - job->parts.logical_bytes;
    gw_watchdog_stage("recording the step");
    GW_TRY(gw_recorder_step(&t->rec, &job->parts, t->measures.checks.guard.out,
                            &t->watcher.status.warning));
    gw_watchdog_stage("training");
    t->watcher.status.loss = t->rec.row.loss;
    return GW_OK;
}

/* A profiler that is attached from outside may look at batches alone. With --update lazy a progress
 * thread is at work between them, too. */
static void trainer_mark(int level) {
    gw_turn_take();
    MPI_Pcontrol(level);
    gw_turn_leave();
}

/* ---- evaluations ---- */

static gw_err trainer_test(gw_trainer *t, const gw_dataset *set, int64_t *confusion,
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

/* The step's time, bytes and ledger are closed; nothing of the evaluation gets into them. */
static gw_err trainer_evaluate(gw_trainer *t) {
    bool ends = t->at.batch == gw_sampler_batches(t->sampler);
    bool agree = !t->stepper.pending && gw_inside_agrees(t->g, 0);
    if (ends || !agree || !trainer_evaluates(t, t->at.step))
        return GW_OK;
    GW_TRY(gw_guard_check(&t->measures.checks.guard)); /* no row of what comes after a fault */
    gw_watchdog_stage("evaluating");
    gw_epoch_row row = {.epoch = t->at.epoch, .step = t->at.step, .train_s = t->rec.train_s};
    gw_evaluation test;
    GW_TRY(gw_recorder_wire(&t->rec, &row.wire_bytes));
    GW_TRY(trainer_test(t, &t->data->test, NULL, &test));
    row.test_loss = test.loss;
    row.test_accuracy = test.accuracy;
    gw_trainer_heed(t, test.signal);
    if (test.signal)
        t->at.stop_at = t->at.step;
    GW_TRY(gw_recorder_tested(&t->rec, &row));
    gw_watchdog_stage("training");
    return GW_OK;
}

/* ---- checkpoints ---- */

static void trainer_pass_on_warning(gw_trainer *t) {
    const char *warning = gw_checkpoint_warning(t->checkpoint);
    if (!warning)
        return;
    gw_recorder_warn(&t->rec, warning);
    t->watcher.status.warning = t->rec.warning;
}

static gw_err trainer_make_facts(gw_trainer *t, json_t **facts) {
    gw_facts_of run = gw_trainer_facts(t);
    json_t *marks;
    if (t->rank != 0)
        return GW_OK;
    GW_TRY(gw_recorder_mark(&t->rec, &marks));
    *facts = gw_facts_make(&run);
    bool bad = json_object_set_new(*facts, "marks", marks) != 0 || /* frees them if it fails */
               json_object_set_new(*facts, GW_BEST_FACT, gw_best_json(&t->epochs.best)) != 0;
    return bad ? gw_fail(GW_ERR_NOMEM, "out of memory") : GW_OK;
}

/* Write the checkpoint that the step has taken. */
static gw_err trainer_keep(gw_trainer *t) {
    json_t *facts = NULL;
    GW_TRY(gw_guard_check(&t->measures.checks.guard)); /* nothing is kept of what follows a fault */
    GW_TRY(gw_recorder_flush(&t->rec));
    gw_err ready = trainer_make_facts(t, &facts);
    gw_position at = {.step = t->at.step,
                      .epoch = t->at.epoch,
                      .batch = t->at.batch,
                      .samples = t->at.samples,
                      .loss_sum = t->rec.sum.loss,
                      .left_out = t->rec.sum.left_out,
                      .checks = gw_checks_keep(&t->measures.checks),
                      .elapsed_s = gw_ledger_now() - t->rec.zero_s,
                      .train_s = t->rec.train_s,
                      .wire_bytes = t->rec.wire_bytes};
    GW_TRY(gw_checkpoint_write(t->checkpoint, &at, facts, ready));
    trainer_pass_on_warning(t);
    return GW_OK;
}

/* After the last step, take and write one of it, unless there is. Outside a batch, for that this is
 * the last step was not known when it began. */
static gw_err trainer_keep_last(gw_trainer *t) {
    if (!t->checkpoint || gw_checkpoint_has(t->checkpoint, t->at.step))
        return GW_OK;
    GW_TRY(gw_checkpoint_wait(t->checkpoint));
    gw_recorder_aside(); /* the strategy may drain an exchange: the run's bytes, and no batch's */
    gw_err e = gw_checkpoint_take(t->checkpoint);
    gw_recorder_aside_end(&t->rec);
    *t->own = e != GW_OK;
    GW_TRY(e);
    return trainer_keep(t);
}

/* ---- votes ---- */

static gw_err trainer_end_vote(gw_trainer *t) {
    gw_ballot ballot;
    gw_ledger_posted(1); /* which gw_vote_end reports as completed */
    GW_TRY(gw_vote_end(&t->at.vote, &ballot));
    ballot.writing |= t->at.keep; /* one that was taken since the vote began */
    if (ballot.not_finite || ballot.time_over || ballot.signal)
        t->at.stop_at = t->stepper.pending ? t->at.step + 1 : t->at.step;
    if (ballot.not_finite)
        return GW_OK;
    GW_TRY(gw_checkpoint_voted(t->checkpoint, t->at.step, &ballot));
    trainer_pass_on_warning(t);
    if (ballot.time_over)
        t->at.stopped_by = "time-limit";
    gw_trainer_heed(t, (int)ballot.signal);
    return GW_OK;
}

/* What a lazy step leaves pending is not waited for: the vote ends a step later, and if the run is
 * to stop, it does after one more step, which settles. */
static gw_err trainer_vote(gw_trainer *t, bool *stop) {
    if (t->c->simulated) {
        /* Ranks of one process need no vote: whoever sees a reason names a step that none has
         * begun. */
        gw_stop_together *s = t->c->simulated->stop;
        int signal = gw_signals_seen();
        bool bad = gw_guard_stops(&t->measures.checks.guard);
        s->step = t->at.step > s->step ? t->at.step : s->step;
        if (s->at == 0 && (signal || bad)) {
            s->at = s->step + 2;
            s->signal = bad ? 0 : signal;
        }
        t->at.stop_at = s->at;
        if (t->at.step == s->at)
            gw_trainer_heed(t, s->signal);
    }
    if (t->at.vote.open)
        GW_TRY(trainer_end_vote(t));
    if (t->at.step == t->at.vote.next && t->at.stop_at == 0) {
        /* The time limit by rank 0's clock, so that all stop at the same step. */
        double now = gw_ledger_now();
        bool limited = t->rank == 0 && t->c->until.time_s > 0;
        gw_ballot ballot = {.signal = gw_signals_seen(),
                            .time_over = limited && now - t->at.limit_from_s >= t->c->until.time_s,
                            .not_finite = gw_guard_stops(&t->measures.checks.guard)};
        gw_checkpoint_ballot(t->checkpoint, &ballot);
        GW_TRY(gw_vote_begin(&t->at.vote, now, &ballot));
        gw_ledger_completed(1); /* a step that computes while the vote is open hides no exchange */
        if (!t->stepper.pending)
            GW_TRY(trainer_end_vote(t));
    }
    if (t->at.stop_at == 0 || t->at.step < t->at.stop_at)
        return GW_OK;
    *stop = true;
    return gw_guard_check(&t->measures.checks.guard);
}

static gw_err trainer_limit_reached(gw_trainer *t, bool *stop) {
    bool last = t->c->until.steps > 0 && t->at.step >= t->c->until.steps;
    if (!last || t->at.vote.open)
        GW_TRY(trainer_vote(t, stop));
    if (last)
        t->at.stopped_by = "steps";
    *stop |= last;
    return GW_OK;
}

/* ---- an epoch ---- */

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

static gw_err trainer_end_epoch(gw_trainer *t) {
    static gw_class_metrics per[GW_MAX_CONFUSED];
    gw_watchdog_stage("settling the replicas");
    /* Bytes of a settling belong to the run, but to no batch. */
    gw_recorder_aside();
    gw_err e = gw_inside_drain(t->g);
    gw_recorder_aside_end(&t->rec);
    *t->own = e != GW_OK;
    GW_TRY(e);
    GW_TRY(gw_guard_check(&t->measures.checks.guard));
    gw_watchdog_stage("closing the epoch");
    gw_epoch_row row = {.epoch = t->at.epoch};
    GW_TRY(gw_recorder_sums(&t->rec, &row));
    if (!isfinite(row.train_loss)) /* not found above, so all steps were left out */
        return gw_fail(GW_ERR_DIVERGED,
                       "epoch %d: loss or gradient are no longer finite in any step, and all are "
                       "left out: try a smaller --lr",
                       t->at.epoch);
    gw_evaluation test, validation;
    gw_watchdog_stage("evaluating");
    GW_TRY(trainer_test(t, &t->data->test, t->epochs.confusion, &test));
    GW_TRY(trainer_test(t, &t->data->validation, NULL, &validation));
    gw_trainer_heed(t, test.signal > validation.signal ? test.signal : validation.signal);
    if (t->watcher.result->signal) /* one that came just now: before the row that it leaves blank */
        GW_TRY(trainer_keep_last(t));
    gw_watchdog_stage("comparing the replicas");
    GW_TRY(gw_checks_compare(&t->measures.checks, t->at.step, &row.replica_hash));
    GW_TRY(trainer_epoch_collect(t, &row.replica_hash));
    row.test_loss = test.loss;
    row.test_accuracy = test.accuracy;
    row.test_s = t->c->simulated ? NAN : test.seconds; /* no rank's clock saw it */
    row.test_forward_s = t->c->simulated ? NAN : test.forward_s;
    row.validation_loss = validation.loss;
    row.validation_accuracy = validation.accuracy;
    row.macro = (gw_class_metrics){NAN, NAN, NAN, 0};
    if (!isnan(test.accuracy) && t->epochs.confusion)
        gw_confusion_metrics(t->epochs.confusion, t->data->classes, per, &row.macro);
    gw_best epoch = {
        t->at.epoch, row.validation_loss, row.validation_accuracy, row.test_accuracy, NULL, 0};
    gw_best_offer(&t->epochs.best, &epoch, gw_trainer_whole(t));
    t->watcher.status.loss = row.train_loss;
    t->watcher.status.last = t->watcher.result->last = row;
    GW_TRY(gw_recorder_tested(&t->rec, &row));
    return gw_recorder_epoch(&t->rec, &row);
}

static void trainer_report(gw_trainer *t, double epoch_start_s, int64_t samples) {
    if (t->rank != 0 || !t->watcher.watch)
        return;
    double now = gw_ledger_now();
    t->watcher.status.step = t->at.step;
    t->watcher.status.elapsed_s = now - t->rec.zero_s;
    if (!t->watcher.status.epoch_end && now > epoch_start_s)
        t->watcher.status.samples_per_s = (double)samples / (now - epoch_start_s);
    t->watcher.watch(t->watcher.ctx, &t->watcher.status);
    t->watcher.status.warning = NULL;
    t->watcher.status.begins = false;
}

/* Takes the epoch, or what is left of it if the run resumed within it. */
static gw_err trainer_epoch(gw_trainer *t, bool *stop) {
    gw_sampler_epoch(t->sampler, t->at.epoch - 1);
    double start_s = gw_ledger_now();
    int64_t before = t->at.samples; /* of earlier starts */
    t->watcher.status.epoch = t->at.epoch;
    t->watcher.status.epoch_end = false;
    gw_watchdog_step(t->at.step, t->at.epoch);
    while (t->at.batch < gw_sampler_batches(t->sampler) && !*stop) {
        step_job job = trainer_next_step(t);
        trainer_mark(1);
        gw_err e = trainer_step(t, &job);
        trainer_mark(0);
        GW_TRY(trainer_record(t, &job, e));
        if (!t->stepper.pending)
            GW_TRY(gw_checks_step(&t->measures.checks, t->at.step));
        double step_end_s = gw_ledger_now();
        GW_TRY(trainer_evaluate(t));
        start_s += gw_ledger_now() - step_end_s; /* no time of training */
        if (t->at.keep) {
            gw_watchdog_stage("beginning a checkpoint");
            GW_TRY(trainer_keep(t));
            gw_watchdog_stage("training");
        }
        GW_TRY(trainer_limit_reached(t, stop));
        trainer_report(t, start_s, t->at.samples - before);
    }
    bool last = *stop || t->at.epoch == t->c->until.epochs;
    if (last)
        GW_TRY(trainer_keep_last(t));
    t->watcher.status.samples_per_s =
        (double)(t->at.samples - before) / (gw_ledger_now() - start_s);
    GW_TRY(trainer_end_epoch(t));
    *stop |= t->watcher.result->signal != 0;
    if (last || *stop) {
        gw_watchdog_stage("waiting for the checkpoint");
        GW_TRY(gw_checkpoint_wait(t->checkpoint));
        trainer_pass_on_warning(t);
    }
    gw_watchdog_stage("training");
    t->watcher.status.epoch_end = true;
    trainer_report(t, start_s, t->at.samples - before);
    t->at.batch = 0;
    t->at.samples = 0;
    t->at.epoch++;
    return GW_OK;
}

/* ---- the run ---- */

static gw_err trainer_rehearse(void *ctx, int64_t i, gw_batch_cost *cost) {
    gw_trainer *t = ctx;
    int b = (int)(i % gw_sampler_batches(t->sampler));
    if (i % FORGET_EVERY == 0)
        gw_exchange_log_clear(true); /* it would fill up */
    step_job job = {.batch = gw_sampler_batch(t->sampler, b), .settle = true};
    gw_err e = trainer_step(t, &job);
    *cost = job.parts.cost;
    return e;
}

static gw_err trainer_measure_overhead(gw_trainer *t) {
    static const gw_profile both[] = {GW_PROFILE_TIMERS, GW_PROFILE_FULL};
    const gw_train_config *c = t->c;
    if (c->overhead == 0 || c->run.profile == GW_PROFILE_OFF)
        return GW_OK;
    gw_overhead_job job = {.stepper = &t->stepper,
                           .step = trainer_rehearse,
                           .ctx = t,
                           .profiles = c->overhead_only ? both : &c->run.profile,
                           .n = c->overhead_only ? 2 : 1,
                           .rounds = c->overhead,
                           .seed = c->run.seed,
                           .comm = t->comm};
    GW_TRY(gw_overhead_measure(t->watcher.result->overhead, &job, t->own));
    gw_codec_stats_restart(t->rec.stats);
    gw_exchange_log_clear(true);
    gw_counters_forget(gw_memory_counters(t->measures.memory));
    gw_split_forget(&t->measures.split);
    return gw_agree(t->comm, gw_matrix_open()); /* from zero again */
}

/* All that comes before the first step. *begins: there is to be one. */
static gw_err trainer_prepare(gw_trainer *t, bool *begins) {
    GW_TRY(gw_trainer_open(t));
    if (t->watcher.result->signal) {
        gw_trainer_note(t, t->watcher.result);
        return GW_OK;
    }
    gw_watchdog_stage("measuring what the profile costs");
    GW_TRY(trainer_measure_overhead(t));
    if (t->c->overhead_only) {
        t->watcher.result->parameters = gw_trainer_parameters(t);
        return GW_OK;
    }
    if (t->part.pipeline && t->c->run.profile != GW_PROFILE_OFF)
        GW_TRY(gw_agree(t->comm, gw_tempo_open(gw_pipeline_chunks(t->part.pipeline))));
    t->watcher.status.epochs = t->c->until.epochs;
    t->watcher.status.steps = gw_trainer_steps(t);
    t->watcher.status.data = t->data;
    t->watcher.status.parameters = gw_trainer_parameters(t);
    t->watcher.status.ranks = t->ranks;
    t->watcher.status.oversubscribed = t->oversubscribed;
    t->at.stopped_by = "epochs";
    GW_TRY(gw_trainer_begin(t));
    gw_checks_begin(&t->measures.checks);
    trainer_report(t, t->at.limit_from_s, 0);
    gw_watchdog_stage("training");
    *begins = true;
    return GW_OK;
}

gw_err gw_train(gw_train_setup *s, MPI_Comm comm, gw_train_result *result, bool *own) {
    const gw_train_config *config = s->config;
    gw_trainer t = {.c = config,
                    .choice = s->choice,
                    .comm = comm,
                    .g = s->g,
                    .part.pipeline = s->pipeline,
                    .watcher = {.watch = s->watch, .ctx = s->ctx, .result = result},
                    .own = own};
    s->g = NULL;
    *own = false;
    memset(result, 0, sizeof *result);
    gw_watchdog_setup dog = {.timeout_s = config->run.hang_timeout_s,
                             .comm = config->run.comm->text,
                             .compress = config->run.compress->text};
    gw_watchdog_start(&dog, comm);
    bool begins = false, stop = false;
    gw_err e = config->check ? gw_trainer_check(&t) : trainer_prepare(&t, &begins);
    if (config->check && e == GW_OK) {
        t.at.stopped_by = "check";
        gw_trainer_note(&t, result);
    }
    if (begins) {
        GW_THEN(e, trainer_limit_reached(&t, &stop)); /* a run at its end is only concluded again */
        while (e == GW_OK && t.at.epoch <= config->until.epochs && !(stop && t.at.batch == 0))
            e = trainer_epoch(&t, &stop);
        if (e == GW_OK) { /* a folder that cannot be read now was fine when the run began */
            e = gw_trainer_finish(&t);
            e = e == GW_ERR_INPUT ? GW_ERR_IO : e;
        }
    }
    /* After a failure of one rank alone no collective can be relied on, closing included. */
    if (*own || gw_err_alone(e))
        return e;
    gw_watchdog_stage("closing");
    gw_trainer_close(&t);
    gw_watchdog_leave();
    if (e == GW_OK && t.rank == 0 && s->watch)
        s->watch(s->ctx, &(gw_train_status){.result = result});
    return e;
}
