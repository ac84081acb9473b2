/* What is recorded of each batch, and of all of them. */
#include "api/handle.h"
#include "base/nap.h"
#include "mpi/replicas.h"
#include "prof/clock.h"
#include "trace/trace.h"

#include <math.h>
#include <stdlib.h>

static gw_runfolder_use files_use(const gradwire *g) {
    return gw_runfolder_use_of(g->words.run.out, g->words.run.overwrite, NULL, "");
}

gw_err gw_files_claim(gradwire *g) {
    const gw_words *w = &g->words;
    bool full = w->run.profile == GW_PROFILE_FULL; /* which counts, too */
    gw_recorder_setup of = {.comm = g->comm,
                            .rank = g->rank,
                            .ranks = g->ranks,
                            .out = w->run.out,
                            .profile = full ? GW_PROFILE_TIMERS : w->run.profile,
                            .collectives = w->run.collectives,
                            .log = w->run.log,
                            .log_every = w->run.log_every,
                            .args = w->args,
                            .trace = w->run.trace};
    gw_recorder_start(&g->files.rec, &of);
    GW_TRY(gw_recorder_claim(&g->files.rec));
    bool checks = w->run.out && g->rank == 0;
    return gw_agree(g->comm, checks ? gw_runfolder_check(w->run.out, files_use(g)) : GW_OK);
}

static gw_err files_open_rows(gradwire *g) {
    GW_TRY(gw_recorder_rows(&g->files.rec, false));
    bool replaces = g->words.run.out && g->rank == 0;
    return replaces ? gw_recorder_replace(&g->files.rec, files_use(g)) : GW_OK;
}

/* How many steps the program takes is not known. */
static gw_repeat files_repeat(const gradwire *g, int64_t from) {
    gw_repeat repeat = gw_session_repeat(g->session, from);
    gw_repeat_also(&repeat, g->words.run.compress_stats, INT64_MAX);
    return repeat;
}

gw_err gw_files_open(gradwire *g) {
    gw_recorder *r = &g->files.rec;
    gw_repeat repeats[] = {files_repeat(g, 0), files_repeat(g, GW_RECORD_WARMUP)};
    gw_clock_start();
    GW_TRY(gw_recorder_open(r, false, repeats));
    GW_TRY(gw_agree(g->comm, files_open_rows(g)));
    GW_TRY(
        gw_codec_stats_open(&r->stats, g->comm, g->session, g->words.run.compress_stats, r->rows));
    GW_TRY(gw_recorder_measure(r, 0));
    GW_TRY(gw_recorder_trace(r));
    GW_TRY(gw_busy_open(&r->watch, &g->node, g->comm));
    gw_recorder_begin(r);
    return GW_OK;
}

/* ---- batches ---- */

void gw_files_begin(gradwire *g) {
    g->batch.logical = gw_call_logical();
    gw_codec_stats_begin(g->files.rec.stats, g->batch.step);
    gw_exchange_log_begin(g->batch.step);
    gw_trace_step(g->batch.step);
    gw_ledger_begin();
    g->batch.open = true;
}

static gw_err files_compare(gradwire *g, uint32_t *hash) {
    gw_files *f = &g->files;
    double from_s = gw_ledger_now();
    gw_layout_take_params(g, (gw_span){0, g->arena.n});
    gw_replicas replicas = {.params = g->session->env.param,
                            .sum = gw_layout_group_sum,
                            .ctx = g,
                            .layers = g->arena.group,
                            .n_layers = g->arena.groups,
                            .step = g->batch.step,
                            .comm = g->comm};
    GW_TRY(gw_replicas_compare(&replicas, hash));
    f->compared = g->batch.step;
    f->comparisons++;
    f->compare_s += gw_ledger_now() - from_s;
    return GW_OK;
}

/* What is due between two batches. */
static gw_err files_after(gradwire *g) {
    gw_files *f = &g->files;
    const char *warning;
    uint32_t hash;
    GW_TRY(gw_recorder_look(&f->rec, g->batch.step, &warning));
    int64_t every = g->words.run.verify_every;
    bool agree = !g->batch.pending && gw_session_agrees(g->session, 0);
    if (every > 0 && agree && g->batch.step - f->compared >= every)
        GW_TRY(files_compare(g, &hash));
    bool due = g->batch.step == f->rec.flush_at;
    return due ? gw_recorder_flush(&f->rec, g->batch.step, &g->batch.row) : GW_OK;
}

gw_err gw_files_end(gradwire *g, double loss) {
    gw_batch_parts parts = {.rank = g->rank,
                            .epoch = g->batch.epoch,
                            .step = g->batch.step,
                            .samples = g->batch.samples,
                            .loss_sum = g->batch.samples > 0 ? loss * g->batch.samples : 0,
                            .logical_bytes = gw_call_logical() - g->batch.logical,
                            .slept = !gw_nap_computes(),
                            .counts = gw_batch_no_counts,
                            .split = gw_batch_no_split};
    gw_ledger_end(&parts.cost);
    g->batch.open = false;
    gw_exchange_log_end();
    GW_TRY(gw_recorder_push(&g->files.rec, &parts, g->guard.out, &g->batch.row));
    return files_after(g);
}

void gw_files_aside(const gradwire *g) {
    if (g->records)
        gw_recorder_aside();
}

void gw_files_aside_end(gradwire *g) {
    if (g->records)
        gw_recorder_aside_end(&g->files.rec);
}

gw_err gw_files_settle(gradwire *g) {
    if (g->batch.fresh && g->publishes)
        gw_layout_take_params(g, (gw_span){0, g->arena.n});
    gw_files_aside(g);
    gw_err e = gw_session_settle(g->session);
    gw_files_aside_end(g);
    if (g->publishes)
        gw_layout_give_params(g, (gw_span){0, g->arena.n});
    g->batch.fresh = true; /* whoever settles may write parameters, too */
    return e;
}

gw_err gw_files_epoch(gradwire *g, double test_loss, double test_accuracy) {
    gw_recorder *r = &g->files.rec;
    uint32_t hash;
    if (!g->records)
        return files_compare(g, &hash);
    GW_TRY(gw_recorder_flush(r, g->batch.step, &g->batch.row));
    gw_epoch_row row = r->last;
    row.epoch = g->batch.epoch;
    row.step = g->batch.step;
    row.validation_loss = g->batch.validation_loss;
    row.validation_accuracy = g->batch.validation_accuracy;
    row.test_loss = test_loss;
    row.test_accuracy = test_accuracy;
    row.elapsed_s = gw_ledger_now() - r->zero_s;
    row.train_s = r->train_s;
    GW_TRY(gw_recorder_loss(r, &row.train_loss));
    GW_TRY(gw_recorder_wire(r, &row.wire_bytes));
    GW_TRY(files_compare(g, &row.replica_hash));
    g->batch.epoch++;
    g->batch.validation_loss = g->batch.validation_accuracy = NAN;
    return gw_recorder_epoch(r, &row);
}

/* ---- the end ---- */

static gw_err files_total(gradwire *g, gw_guard_total *nan, uint64_t *wire) {
    gw_recorder *r = &g->files.rec;
    double loss;
    GW_TRY(gw_recorder_total_up(r, g->batch.step, g->ranks - gw_session_servers(g->session)));
    GW_TRY(gw_session_find_unmet(g->session, (gw_unmet_ask){.ended = true}, g->comm));
    if (g->words.run.compress_stats > g->batch.step)
        gw_unmet_add(&g->session->unmet, "compress-stats", "on", "no step was compared",
                     "the run ended before the first that was due");
    GW_TRY(gw_recorder_wire(r, wire));
    GW_TRY(gw_recorder_loss(r, &loss)); /* of batches after the last epoch that was told */
    if (!isnan(loss))
        r->last.train_loss = loss;
    return gw_guard_collect(&g->guard, g->ranks, nan);
}

gw_err gw_files_finish(gradwire *g) {
    gw_recorder *r = &g->files.rec;
    gw_guard_total nan = {0};
    uint64_t wire;
    gw_err e = gw_recorder_flush(r, g->batch.step, &g->batch.row);
    GW_THEN(e, files_total(g, &nan, &wire));
    GW_THEN(e, gw_recorder_end(r, NULL));
    if (e == GW_OK && (g->words.run.out || g->files.keep) && g->rank == 0)
        e = gw_files_report(g, &nan, wire);
    free(nan.bad_steps);
    return gw_agree(g->comm, e);
}

void gw_files_close(gradwire *g) {
    gw_recorder_close(&g->files.rec);
}
