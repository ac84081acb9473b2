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
                            .trace = w->run.trace,
                            .node = &g->node};
    GW_TRY(gw_recorder_claim(&g->files.rec, &of));
    bool checks = w->run.out && g->rank == 0;
    return gw_agree(g->comm, checks ? gw_runfolder_check(w->run.out, files_use(g)) : GW_OK);
}

/* How many steps the program takes is not known. */
static gw_repeat files_repeat(const gradwire *g, int64_t from) {
    gw_repeat repeat = gw_session_repeat(g->session, from);
    gw_repeat_also(&repeat, g->words.run.compress_stats, INT64_MAX);
    return repeat;
}

gw_err gw_files_open(gradwire *g) {
    gw_recorder_opening o = {.use = files_use(g),
                             .repeats = {files_repeat(g, 0), files_repeat(g, GW_RECORD_WARMUP)},
                             .session = g->session,
                             .compress_stats = g->words.run.compress_stats};
    gw_clock_start();
    GW_TRY(gw_recorder_open(&g->files.rec, &o));
    return gw_recorder_begin(&g->files.rec);
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
    const char *warning; /* for run.json only */
    GW_TRY(gw_recorder_step(&g->files.rec, &parts, g->guard.out, &warning));
    int64_t every = g->words.run.verify_every;
    bool agree = !g->batch.pending && gw_session_agrees(g->session, 0);
    uint32_t hash;
    return every > 0 && agree && g->batch.step - g->files.compared >= every
               ? files_compare(g, &hash)
               : GW_OK;
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
    gw_epoch_row row = r->last;
    GW_TRY(gw_recorder_sums(r, &row));
    row.epoch = g->batch.epoch;
    row.validation_loss = g->batch.validation_loss;
    row.validation_accuracy = g->batch.validation_accuracy;
    row.test_loss = test_loss;
    row.test_accuracy = test_accuracy;
    GW_TRY(files_compare(g, &row.replica_hash));
    g->batch.epoch++;
    g->batch.validation_loss = g->batch.validation_accuracy = NAN;
    return gw_recorder_epoch(r, &row);
}

/* ---- the end ---- */

static gw_err files_total(gradwire *g, gw_guard_total *nan, uint64_t *wire) {
    gw_recorder *r = &g->files.rec;
    gw_epoch_row row;
    GW_TRY(gw_recorder_sums(r, &row));
    if (!isnan(row.train_loss)) /* of batches after the last epoch that was told */
        r->last.train_loss = row.train_loss;
    *wire = row.wire_bytes;
    GW_TRY(gw_recorder_end(r, g->ranks - g->session->strategy.plan.servers));
    GW_TRY(gw_session_find_unmet(g->session, (gw_unmet_ask){.ended = true}, g->comm));
    if (g->words.run.compress_stats > g->batch.step)
        gw_unmet_add(&g->session->unmet, "compress-stats", "on", "no step was compared",
                     "the run ended before the first that was due");
    return gw_guard_collect(&g->guard, g->ranks, nan);
}

gw_err gw_files_finish(gradwire *g) {
    gw_guard_total nan = {0};
    uint64_t wire;
    gw_err e = files_total(g, &nan, &wire);
    if (e == GW_OK && (g->words.run.out || g->files.keep) && g->rank == 0)
        e = gw_files_report(g, &nan, wire);
    free(nan.bad_steps);
    return gw_agree(g->comm, e);
}

void gw_files_close(gradwire *g) {
    gw_recorder_close(&g->files.rec);
}
