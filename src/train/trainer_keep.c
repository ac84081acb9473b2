/* What happens between steps beside training: votes, checkpoints, and the start of a run that goes
 * on from one. */
#include "train/trainer_parts.h"

#include "base/mem.h"
#include "optim/lr.h"
#include "trace/trace.h"
#include "watch/signals.h"

/* ---- checkpoints ---- */

static void trainer_pass_on_warning(gw_trainer *t) {
    const char *warning = gw_checkpoint_warning(t->checkpoint);
    if (!warning)
        return;
    gw_recorder_warn(&t->rec, warning);
    t->watcher.status.warning = t->rec.warning;
}

gw_facts_of gw_trainer_facts(const gw_trainer *t) {
    const gw_candidate *c = gw_chooser_choice(t->choice);
    return (gw_facts_of){.c = t->c,
                         .codec = c ? c->codec : NULL,
                         .algo = c ? c->algo : NULL,
                         .data = t->data,
                         .mesh = &t->mesh,
                         .pipeline = t->part.pipeline,
                         .g = t->g,
                         .parameters = gw_trainer_parameters(t),
                         .ranks = t->ranks,
                         .global_batch = t->part.global_batch,
                         .schedule = gw_lr_end(t->c->rate.schedule, gw_trainer_steps(t)),
                         .optimizer = t->optimizer};
}

static gw_position trainer_keep_position(const gw_trainer *t) {
    return (gw_position){.step = t->at.step,
                         .epoch = t->at.epoch,
                         .batch = t->at.batch,
                         .samples = t->at.samples,
                         .loss_sum = t->rec.sum.loss,
                         .left_out = t->rec.sum.left_out,
                         .checks = gw_checks_keep(&t->measures.checks),
                         .elapsed_s = gw_ledger_now() - t->rec.zero_s,
                         .train_s = t->rec.train_s,
                         .wire_bytes = t->rec.wire_bytes};
}

static gw_err trainer_make_facts(const gw_trainer *t, json_t **facts) {
    gw_facts_of run = gw_trainer_facts(t);
    if (t->rank != 0)
        return GW_OK;
    json_t *files = NULL; /* of rows; can be resumed from here once gw_rows_sync is done */
    GW_TRY(gw_rows_mark(t->rec.rows, &files));
    int64_t evaluated =
        t->c->eval_every > 0 ? t->at.evaluated : t->at.step; /* one that was not due */
    json_t *marks = json_pack("{s:s, s:f, s:I, s:b, s:o}", "started_utc", t->past.started_utc,
                              "clock_s", gw_ledger_now(), "evaluated", (json_int_t)evaluated,
                              "mesh_columns", t->mesh_columns, "files", files);
    *facts = gw_facts_make(&run);
    bool bad = json_object_set_new(*facts, "marks", marks) != 0 || /* frees them if it fails */
               json_object_set_new(*facts, GW_BEST_FACT, gw_best_json(&t->epochs.best)) != 0;
    return bad ? gw_fail(GW_ERR_NOMEM, "out of memory") : GW_OK;
}

gw_err gw_trainer_keep(gw_trainer *t) {
    json_t *facts = NULL;
    GW_TRY(
        gw_guard_check(&t->measures.checks.guard)); /* no checkpoint of what comes after a fault */
    GW_TRY(gw_recorder_flush(&t->rec, t->at.step, NULL));
    gw_err ready = trainer_make_facts(t, &facts);
    gw_position at = trainer_keep_position(t);
    GW_TRY(gw_checkpoint_write(t->checkpoint, &at, facts, ready));
    trainer_pass_on_warning(t);
    return GW_OK;
}

/* Outside a batch, for that this is the last step was not known when it began. */
gw_err gw_trainer_keep_last(gw_trainer *t) {
    if (!t->checkpoint || gw_checkpoint_has(t->checkpoint, t->at.step))
        return GW_OK;
    GW_TRY(gw_checkpoint_wait(t->checkpoint));
    gw_recorder_aside(); /* the strategy may drain an exchange: the run's bytes, and no batch's */
    gw_err e = gw_checkpoint_take(t->checkpoint);
    gw_recorder_aside_end(&t->rec);
    *t->own = e != GW_OK;
    GW_TRY(e);
    return gw_trainer_keep(t);
}

gw_err gw_trainer_kept(gw_trainer *t) {
    GW_TRY(gw_checkpoint_wait(t->checkpoint));
    trainer_pass_on_warning(t);
    return GW_OK;
}

/* ---- votes ---- */

void gw_trainer_heed(gw_trainer *t, int sig) {
    if (!sig)
        return;
    t->watcher.result->signal = sig;
    t->at.stopped_by = gw_signals_name(sig);
}

/* The time limit by rank 0's clock, so that all stop at the same step. */
static gw_err trainer_begin_vote(gw_trainer *t) {
    double now = gw_ledger_now();
    bool limited = t->rank == 0 && t->c->until.time_s > 0;
    gw_ballot ballot = {.signal = gw_signals_seen(),
                        .time_over = limited && now - t->at.limit_from_s >= t->c->until.time_s,
                        .not_finite = gw_guard_stops(&t->measures.checks.guard)};
    gw_checkpoint_ballot(t->checkpoint, &ballot);
    GW_TRY(gw_vote_begin(&t->at.vote, now, &ballot));
    gw_ledger_completed(1); /* a step that computes while the vote is open hides no exchange */
    return GW_OK;
}

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

/* Ranks of one process need no vote: whoever sees a reason names a step that none has begun. */
static void trainer_stop_together(gw_trainer *t, gw_stop_together *s) {
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

/* What a lazy step leaves pending is not waited for: the vote ends a step later, and if the run is
 * to stop, it does after one more step, which settles. */
gw_err gw_trainer_vote(gw_trainer *t, bool *stop) {
    if (t->c->simulated)
        trainer_stop_together(t, t->c->simulated->stop);
    if (t->at.vote.open)
        GW_TRY(trainer_end_vote(t));
    if (t->at.step == t->at.vote.next && t->at.stop_at == 0) {
        GW_TRY(trainer_begin_vote(t));
        if (!t->stepper.pending)
            GW_TRY(trainer_end_vote(t));
    }
    if (t->at.stop_at == 0 || t->at.step < t->at.stop_at)
        return GW_OK;
    *stop = true;
    return gw_guard_check(&t->measures.checks.guard);
}

/* ---- the start ---- */

static gw_err trainer_keep_resume(gw_trainer *t) {
    const gw_position *at = &t->resume.at;
    if (at->epoch < 1 || at->batch < 0 || at->batch > gw_sampler_batches(t->sampler))
        return gw_fail(GW_ERR_INPUT, "%s: epoch %lld, batch %lld: there are %d batches an epoch",
                       t->resume.path, (long long)at->epoch, (long long)at->batch,
                       gw_sampler_batches(t->sampler));
    t->at.epoch = (int)at->epoch;
    t->at.batch = (int)at->batch;
    t->at.step = at->step;
    t->at.samples = at->samples;
    t->rec.sum.samples = t->rank == 0 ? at->samples : 0;
    t->rec.sum.loss = at->loss_sum;
    t->rec.sum.left_out = at->left_out;
    gw_checks_resume(&t->measures.checks, &at->checks);
    t->rec.train_s = at->train_s;
    t->rec.wire_bytes = at->wire_bytes;
    t->rec.zero_s -= at->elapsed_s;
    return GW_OK;
}

static gw_err trainer_begin_best(gw_trainer *t) {
    t->epochs.best.n = gw_trainer_parameters(t);
    if (t->c->keep.model == GW_SAVE_BEST && t->rank == 0)
        GW_TRY(gw_alloc(&t->epochs.best.params, t->epochs.best.n, sizeof *t->epochs.best.params));
    return gw_resume_best(&t->resume, &t->epochs.best, gw_args_spec(t->c->args, "model"));
}

gw_err gw_trainer_begin(gw_trainer *t) {
    const gw_train_config *c = t->c;
    t->at.epoch = 1;
    GW_TRY(gw_busy_look(&t->rec.watch, 0, &t->rec.total.before));
    gw_recorder_begin(&t->rec);
    t->at.limit_from_s = t->rec.zero_s;
    if (*t->resume.path) {
        GW_TRY(gw_agree(t->comm, trainer_keep_resume(t)));
        GW_TRY(gw_resume_statistics(&t->resume, t->rec.stats, t->comm));
    }
    GW_TRY(gw_agree(t->comm, trainer_begin_best(t)));
    t->watcher.status.step = t->at.step;
    t->watcher.status.begins = true;
    t->watcher.status.busy = &t->rec.total.before;
    t->watcher.status.notes = &t->resume.notes;
    GW_TRY(gw_vote_open(&t->at.vote, t->comm, t->at.step, t->at.limit_from_s));
    gw_checkpoint_setup setup = {.c = c,
                                 .stepper = &t->stepper,
                                 .stats = t->rec.stats,
                                 .mesh = &t->mesh,
                                 .best = &t->epochs.best,
                                 .rows = t->rec.rows,
                                 .comm = t->comm};
    bool keeps = c->keep.every.count > 0 || c->keep.every.s > 0;
    if (keeps)
        GW_TRY(gw_checkpoint_open(&t->checkpoint, &setup));
    gw_resident_enter(&t->rec.resident, GW_RESIDENT_TRAINING);
    return GW_OK;
}
