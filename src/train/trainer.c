#include "train/trainer_parts.h"

#include "base/turn.h"
#include "prof/clock.h"
#include "prof/tempo.h"
#include "trace/trace.h"

#include <string.h>

enum { FORGET_EVERY = 64 /* steps of a rehearsal */ };

/* After the present step somebody reads parameters: nothing may be pending then. */
static bool trainer_must_settle(const gw_trainer *t) {
    int64_t step = t->at.step;
    bool due = gw_trainer_evaluates(t, step) || gw_checks_due(&t->measures.checks, step);
    return t->at.batch + 1 == gw_sampler_batches(t->sampler) || step == t->c->until.steps ||
           step == t->rec.flush_at || step == t->at.stop_at || t->at.keep ||
           (due && gw_inside_agrees(t->g, t->stepper.pending + 1)) ||
           gw_codec_stats_settles(t->rec.stats, step);
}

typedef struct step_job {
    gw_trainer *t;
    gw_batch batch;
    float rate;
    bool settle; /* nothing may be pending afterwards */
    bool keep;   /* take a checkpoint then */
} step_job;

/* Keeps the rank busy, as if it had more to do than the others. */
static void trainer_hold_up(const gw_trainer *t, double seconds) {
    const gw_exec *exec = t->stepper.exec;
    uint64_t start = gw_clock_ticks();
    gw_phase_enter(GW_PHASE_DATA);
    if (exec)
        exec->rest(exec->ctx, seconds);
    while (!exec && gw_clock_since(start) < seconds)
        ;
    gw_phase_leave();
}

static gw_err trainer_timed_step(const step_job *job, gw_batch_parts *batch) {
    gw_ledger_begin();
    if (batch->injected_s > 0)
        trainer_hold_up(job->t, batch->injected_s);
    gw_err e = gw_step(&job->t->stepper, job->batch, job->rate, &batch->loss_sum);
    if (e == GW_OK && job->settle)
        e = gw_step_settle(&job->t->stepper);
    if (e == GW_OK && job->keep)
        e = gw_checkpoint_take(job->t->checkpoint);
    gw_ledger_end(&batch->cost);
    return e;
}

/* With all that the run does for a row. */
static gw_err trainer_measured_step(const step_job *job, gw_batch_parts *batch) {
    gw_trainer *t = job->t;
    gw_counters *counters = gw_memory_counters(t->measures.memory);
    gw_exchange_log_begin(batch->step);
    gw_trace_step(batch->step);
    gw_moved before = t->stepper.moved;
    gw_counters_begin(counters);
    gw_err e = trainer_timed_step(job, batch);
    batch->counts = gw_counters_end(counters, &batch->cost);
    gw_moved moved = gw_moved_since(&t->stepper.moved, &before);
    batch->split = gw_split_batch(&t->measures.split, job->batch.local, &moved, &batch->cost);
    gw_exchange_log_end();
    return e;
}

/* A profiler that is attached from outside may look at batches alone. With --update lazy a progress
 * thread is at work between them, too. */
static void trainer_mark(int level) {
    gw_turn_take();
    MPI_Pcontrol(level);
    gw_turn_leave();
}

static gw_err trainer_take_step(const step_job *job, gw_batch_parts *batch) {
    trainer_mark(1);
    gw_err e = trainer_measured_step(job, batch);
    trainer_mark(0);
    gw_watchdog_beat();
    return e;
}

/* What came in damaged is found by the rank it came to, in its own time. */
static gw_err trainer_name_step(const gw_trainer *t, gw_err e) {
    return e == GW_ERR_CORRUPT ? gw_fail(e, "step %lld: %s", (long long)t->at.step, gw_err_text())
                               : e;
}

static gw_err trainer_one_step(gw_trainer *t) {
    bool counts = !t->part.pipeline || gw_pipeline_counts(t->part.pipeline); /* its replica's */
    gw_batch batch = gw_sampler_batch(t->sampler, t->at.batch);
    uint64_t logical = gw_inside_logical(t->g);
    gw_batch_parts parts = {
        .rank = t->rank,
        .place = {t->mesh.at[GW_DIM_DATA], t->mesh.at[GW_DIM_PIPE], t->mesh.at[GW_DIM_TENSOR]},
        .epoch = t->at.epoch,
        .step = ++t->at.step,
        .samples = counts ? batch.local : 0,
        .slept = t->c->simulated};
    t->measures.checks.guard.step = t->at.step;
    parts.injected_s = gw_delay_draw(&t->c->skew, t->c->run.seed, t->rank, t->at.step);
    t->at.keep = gw_checkpoint_due(t->checkpoint, t->at.step);
    gw_codec_stats_begin(t->rec.stats, t->at.step);
    step_job job = {.t = t,
                    .batch = batch,
                    .rate = gw_trainer_rate(t, t->at.step),
                    .settle = trainer_must_settle(t),
                    .keep = t->at.keep};
    gw_err e = trainer_take_step(&job, &parts);
    *t->own = e != GW_OK;
    GW_TRY(trainer_name_step(t, e));
    gw_watchdog_step(t->at.step, t->at.epoch);
    t->at.batch++;
    t->at.samples += batch.global;
    parts.logical_bytes = gw_inside_logical(t->g) - logical;
    t->at.checkpoint_s += parts.cost.phase_s[GW_PHASE_CHECKPOINT];
    gw_batch_row row;
    GW_TRY(gw_recorder_push(&t->rec, &parts, t->measures.checks.guard.out, &row));
    t->watcher.status.loss = row.loss;
    return GW_OK;
}

static gw_err trainer_limit_reached(gw_trainer *t, bool *stop) {
    bool last = t->c->until.steps > 0 && t->at.step >= t->c->until.steps;
    if (!last || t->at.vote.open)
        GW_TRY(gw_trainer_vote(t, stop));
    if (last)
        t->at.stopped_by = "steps";
    *stop |= last;
    return GW_OK;
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

/* What is left of the epoch, if the run resumed within it. */
static gw_err trainer_one_epoch(gw_trainer *t, bool *stop) {
    gw_sampler_epoch(t->sampler, t->at.epoch - 1);
    double start_s = gw_ledger_now();
    int64_t before = t->at.samples; /* of earlier starts */
    t->watcher.status.epoch = t->at.epoch;
    t->watcher.status.epoch_end = false;
    gw_watchdog_step(t->at.step, t->at.epoch);
    while (t->at.batch < gw_sampler_batches(t->sampler) && !*stop) {
        GW_TRY(trainer_one_step(t));
        GW_TRY(gw_recorder_look(&t->rec, t->at.step, &t->watcher.status.warning));
        if (!t->stepper.pending)
            GW_TRY(gw_checks_step(&t->measures.checks, t->at.step));
        double step_end_s = gw_ledger_now();
        GW_TRY(gw_trainer_evaluate(t));
        start_s += gw_ledger_now() - step_end_s; /* no time of training */
        if (t->at.keep) {
            gw_watchdog_stage("beginning a checkpoint");
            GW_TRY(gw_trainer_keep(t));
            gw_watchdog_stage("training");
        } else if (t->at.step == t->rec.flush_at) {
            gw_watchdog_stage("writing rows");
            GW_TRY(gw_recorder_flush(&t->rec, t->at.step, NULL));
            gw_watchdog_stage("training");
        }
        GW_TRY(trainer_limit_reached(t, stop));
        trainer_report(t, start_s, t->at.samples - before);
    }
    bool last = *stop || t->at.epoch == t->c->until.epochs;
    if (last)
        GW_TRY(gw_trainer_keep_last(t));
    t->watcher.status.samples_per_s =
        (double)(t->at.samples - before) / (gw_ledger_now() - start_s);
    GW_TRY(gw_trainer_end_epoch(t));
    *stop |= t->watcher.result->signal != 0;
    if (last || *stop) {
        gw_watchdog_stage("waiting for the checkpoint");
        GW_TRY(gw_trainer_kept(t));
    }
    gw_watchdog_stage("training");
    t->watcher.status.epoch_end = true;
    trainer_report(t, start_s, t->at.samples - before);
    t->at.batch = 0;
    t->at.samples = 0;
    return GW_OK;
}

static gw_err trainer_rehearse(void *ctx, int64_t i, gw_batch_cost *cost) {
    gw_trainer *t = ctx;
    gw_batch_parts batch = {0};
    int b = (int)(i % gw_sampler_batches(t->sampler));
    if (i % FORGET_EVERY == 0)
        gw_exchange_log_forget(); /* it would fill up */
    step_job job = {t, gw_sampler_batch(t->sampler, b), 0, true, false};
    gw_err e = trainer_measured_step(&job, &batch);
    gw_watchdog_beat();
    *cost = batch.cost;
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
    gw_exchange_log_forget();
    gw_counters_forget(gw_memory_counters(t->measures.memory));
    gw_split_forget(&t->measures.split);
    return gw_agree(t->comm, gw_matrix_open()); /* from zero again */
}

static gw_err trainer_run(gw_trainer *t) {
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
    t->rec.of.trace = t->c->run.trace && !t->past.has_trace;
    GW_TRY(gw_recorder_trace(&t->rec)); /* now: it shows the run, no rehearsal */
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
    bool stop = false;
    GW_TRY(trainer_limit_reached(t, &stop)); /* a run that was at its end is only concluded again */
    for (; t->at.epoch <= t->c->until.epochs && !(stop && t->at.batch == 0); t->at.epoch++)
        GW_TRY(trainer_one_epoch(t, &stop));
    gw_err e = gw_trainer_finish(t);
    return e == GW_ERR_INPUT ? GW_ERR_IO : e; /* a folder that was fine when the run began */
}

static gw_err trainer_check(gw_trainer *t) {
    GW_TRY(gw_trainer_check(t));
    t->at.stopped_by = "check";
    gw_trainer_note(t, t->watcher.result);
    return GW_OK;
}

gw_err gw_train(const gw_train_config *config, gradwire *g, gw_pipeline *pipeline,
                gw_chooser *choice, MPI_Comm comm,
                void (*watch)(void *ctx, const gw_train_status *status), void *ctx,
                gw_train_result *result, bool *own) {
    gw_trainer t = {.c = config,
                    .choice = choice,
                    .comm = comm,
                    .g = g,
                    .part.pipeline = pipeline,
                    .watcher.watch = watch,
                    .watcher.ctx = ctx,
                    .watcher.result = result,
                    .own = own};
    *own = false;
    memset(result, 0, sizeof *result);
    gw_watchdog_setup dog = {.timeout_s = config->run.hang_timeout_s,
                             .comm = config->run.comm->text,
                             .compress = config->run.compress->text};
    gw_watchdog_start(&dog, comm);
    gw_err e = config->check ? trainer_check(&t) : trainer_run(&t);
    /* After a failure of one rank alone no collective can be relied on, closing included. */
    if (*own || gw_err_alone(e))
        return e;
    gw_watchdog_stage("closing");
    gw_trainer_close(&t);
    gw_watchdog_leave();
    return e;
}
