/* The run's folder and the ledger: what is recorded of each batch, and of all of them. */
#include "api/handle.h"
#include "base/nap.h"
#include "base/text.h"
#include "folder/report.h"
#include "folder/runfolder.h"
#include "mpi/replicas.h"
#include "mpi/wait.h"
#include "prof/clock.h"
#include "trace/trace.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    ROWS = 4096,          /* most batch rows kept between two flushes */
    FIRST = 8,            /* before the first one, which tells how many exchanges a step has */
    TRACE_EVENTS = 200000 /* bounds the memory of --trace: about 25 MiB a rank */
};

static gw_runfolder_use files_use(const gradwire *g) {
    return gw_runfolder_use_of(g->words.out, g->words.overwrite, NULL, "");
}

static gw_err files_claim(gradwire *g) {
    GW_TRY(gw_claim_take(&g->files.claim, g->words.out));
    return gw_runfolder_check(g->words.out, files_use(g));
}

gw_err gw_files_claim(gradwire *g) {
    bool claims = g->words.out && g->rank == 0;
    gw_utc_now(g->files.start_utc);
    return gw_agree(g->comm, claims ? files_claim(g) : GW_OK);
}

static gw_err files_open_rows(gradwire *g) {
    gw_files *f = &g->files;
    if (g->rank == 0)
        GW_TRY(gw_runfolder_clear(g->words.out, files_use(g)));
    GW_TRY(gw_rows_new(&f->rows, g->words.out, false));
    return g->rank == 0 ? gw_rows_open(f->rows, &gw_epochs, &f->epochs_csv, NULL) : GW_OK;
}

static gw_err files_open_stats(gradwire *g) {
    gw_codec_stats_setup stats = {.session = g->session,
                                  .layers = g->group,
                                  .n_layers = g->groups,
                                  .n = g->n,
                                  .every = g->words.compress_stats,
                                  .files = g->files.rows};
    return gw_codec_stats_open(&g->files.stats, g->comm, &stats);
}

static gw_err files_open_measuring(gradwire *g) {
    gw_files *f = &g->files;
    gw_profile profile = g->words.profile;
    gw_ledger_start();
    f->measures = true;
    gw_ledger_set_profile(profile == GW_PROFILE_FULL ? GW_PROFILE_TIMERS : profile);
    f->flush_at = ROWS;
    if (profile != GW_PROFILE_OFF) {
        GW_TRY(
            gw_waits_open(&f->waits, g->words.collectives ? f->rows : NULL, ROWS, NULL, g->comm));
        GW_TRY(gw_agree(g->comm, gw_matrix_open()));
        f->flush_at = FIRST;
    }
    if (g->words.trace)
        GW_TRY(gw_trace_open(TRACE_EVENTS, g->comm));
    f->zero_s = gw_ledger_now();
    gw_link_cost_begin(&f->link_cost);
    return gw_busy_open(&f->watch, &g->node, g->comm);
}

gw_err gw_files_open(gradwire *g) {
    gw_files *f = &g->files;
    gw_resident_start(&f->resident, "/proc/self");
    gw_clock_start();
    f->last = (gw_epoch_row){.train_loss = NAN,
                             .validation_loss = NAN,
                             .validation_accuracy = NAN,
                             .test_loss = NAN,
                             .test_accuracy = NAN,
                             .test_s = NAN,
                             .wire_bytes = GW_UNCOUNTED};
    GW_TRY(gw_record_open(&f->record, ROWS, false, g->comm));
    GW_TRY(gw_agree(g->comm, g->words.out ? files_open_rows(g) : GW_OK));
    GW_TRY(files_open_stats(g));
    GW_TRY(gw_record_begin(f->record, f->rows));
    GW_TRY(gw_barrier(g->comm));
    return files_open_measuring(g);
}

/* ---- batches ---- */

void gw_files_begin(gradwire *g) {
    g->logical = g->session->logical_bytes;
    gw_codec_stats_begin(g->files.stats, g->step);
    gw_exchange_log_begin(g->step);
    gw_trace_step(g->step);
    gw_ledger_begin();
    g->batch_open = true;
}

static void files_count_wire(gradwire *g, const gw_batch_cost *cost) {
    g->files.train_s += cost->wall_s;
    if (cost->wire_bytes != GW_UNCOUNTED)
        g->files.wire_bytes += cost->wire_bytes;
}

static gw_err files_flush(gradwire *g) {
    gw_files *f = &g->files;
    int room = ROWS;
    int64_t n;
    gw_batch_row *rows = gw_record_rows(f->record, &n);
    if (f->waits)
        GW_TRY(gw_waits_flush(f->waits, rows, n, &room));
    if (n > 0)
        g->row = rows[n - 1];
    f->flush_at = g->step + room;
    return gw_record_flush(f->record);
}

static gw_err files_compare(gradwire *g, uint32_t *hash) {
    gw_files *f = &g->files;
    double from_s = gw_ledger_now();
    gw_layout_take_params(g, (gw_span){0, g->n});
    gw_replicas replicas = {.params = g->session->env.param,
                            .sum = gw_layout_group_sum,
                            .ctx = g,
                            .layers = g->group,
                            .n_layers = g->groups,
                            .step = g->step,
                            .comm = g->comm};
    GW_TRY(gw_replicas_compare(&replicas, hash));
    f->compared = g->step;
    f->comparisons++;
    f->compare_s += gw_ledger_now() - from_s;
    return GW_OK;
}

/* What is due between two batches. */
static gw_err files_after(gradwire *g) {
    gw_files *f = &g->files;
    const char *warning = NULL;
    uint32_t hash;
    GW_TRY(gw_codec_stats_end(f->stats, g->step, &warning));
    if (warning)
        gw_text_copy(f->warning, sizeof f->warning, warning);
    int64_t every = g->words.verify_every;
    bool agree = !g->pending && gw_session_agrees(g->session, 0);
    if (every > 0 && agree && g->step - f->compared >= every)
        GW_TRY(files_compare(g, &hash));
    return g->step == f->flush_at ? files_flush(g) : GW_OK;
}

gw_err gw_files_end(gradwire *g, double loss) {
    gw_files *f = &g->files;
    gw_batch_parts parts = {.rank = g->rank,
                            .epoch = g->epoch,
                            .step = g->step,
                            .samples = g->samples,
                            .loss_sum = g->samples > 0 ? loss * g->samples : 0,
                            .logical_bytes = g->session->logical_bytes - g->logical,
                            .slept = !gw_nap_computes(),
                            .counts = gw_batch_no_counts,
                            .split = gw_batch_no_split};
    gw_ledger_end(&parts.cost);
    g->batch_open = false;
    gw_exchange_log_end();
    files_count_wire(g, &parts.cost);
    if (g->samples > 0 && !g->guard.out) {
        f->loss_sum += parts.loss_sum;
        f->samples += g->samples;
    }
    g->row = gw_batch_row_of(&parts);
    gw_trace_row(&g->row);
    GW_TRY(gw_record_push(f->record, &g->row));
    return files_after(g);
}

/* Bytes of a settling belong to the run, but to no batch. */
gw_err gw_files_settle(gradwire *g) {
    gw_batch_cost cost;
    if (g->fresh && g->publishes)
        gw_layout_take_params(g, (gw_span){0, g->n});
    gw_trace_step(0);
    gw_ledger_begin();
    gw_err e = gw_session_settle(g->session);
    gw_ledger_end(&cost);
    if (cost.wire_bytes != GW_UNCOUNTED)
        g->files.wire_bytes += cost.wire_bytes;
    if (g->publishes)
        gw_layout_give_params(g, (gw_span){0, g->n});
    g->fresh = true; /* whoever settles may write parameters, too */
    return e;
}

/* Sent so far, by all ranks. */
static gw_err files_wire(const gradwire *g, uint64_t *wire) {
    *wire = g->files.wire_bytes;
    GW_TRY(gw_allreduce(MPI_IN_PLACE, wire, 1, MPI_UINT64_T, MPI_SUM, g->comm));
    if (g->words.profile == GW_PROFILE_OFF)
        *wire = GW_UNCOUNTED;
    return GW_OK;
}

static gw_err files_train_loss(gradwire *g, double *loss) {
    gw_files *f = &g->files;
    double sums[2] = {f->loss_sum, (double)f->samples};
    GW_TRY(gw_allreduce(MPI_IN_PLACE, sums, 2, MPI_DOUBLE, MPI_SUM, g->comm));
    *loss = sums[0] / sums[1]; /* no samples: NaN */
    f->loss_sum = 0;
    f->samples = 0;
    return GW_OK;
}

gw_err gw_files_epoch(gradwire *g, double test_loss, double test_accuracy) {
    gw_files *f = &g->files;
    GW_TRY(files_flush(g));
    gw_epoch_row row = f->last;
    row.epoch = g->epoch;
    row.step = g->step;
    row.test_loss = test_loss;
    row.test_accuracy = test_accuracy;
    row.elapsed_s = gw_ledger_now() - f->zero_s;
    row.train_s = f->train_s;
    GW_TRY(files_train_loss(g, &row.train_loss));
    GW_TRY(files_wire(g, &row.wire_bytes));
    GW_TRY(files_compare(g, &row.replica_hash));
    f->last = row;
    GW_TRY(gw_codec_stats_epoch(f->stats, g->epoch, &f->codec_rows));
    g->epoch++;
    return gw_agree(g->comm,
                    f->epochs_csv ? gw_table_write(&gw_epochs, f->epochs_csv, &row, 1) : GW_OK);
}

/* ---- the end ---- */

static gw_err files_total(gradwire *g, gw_total *t) {
    gw_files *f = &g->files;
    double loss;
    if (g->rank == 0)
        gw_record_summary(f->record, &t->summary);
    GW_TRY(gw_ranks_collect(&t->by_rank, &t->dropped, f->record, f->waits, g->step, f->began,
                            g->comm));
    GW_TRY(gw_ranks_memory(t->by_rank, &f->resident, g->comm));
    if (g->words.profile != GW_PROFILE_OFF)
        GW_TRY(gw_matrix_write(g->words.out, &t->traffic, g->comm));
    GW_TRY(gw_session_find_unmet(g->session, (gw_unmet_ask){.ended = true}, g->comm));
    if (g->words.compress_stats > g->step)
        gw_unmet_add(&g->session->unmet, "compress-stats", "on", "no step was compared",
                     "the run ended before the first that was due");
    GW_TRY(gw_busy_look(&f->watch, 0, &f->busy));
    GW_TRY(gw_link_cost_end(&f->link_cost, g->ranks - gw_session_servers(g->session), g->comm));
    GW_TRY(files_wire(g, &t->wire_bytes));
    GW_TRY(files_train_loss(g, &loss)); /* of batches after the last epoch that was told */
    if (!isnan(loss))
        f->last.train_loss = loss;
    GW_TRY(gw_guard_collect(&g->guard, g->ranks, &t->nan));
    return gw_report_hosts(&t->hosts, g->comm);
}

static gw_err files_commit(gradwire *g) {
    gw_files *f = &g->files;
    GW_TRY(gw_rows_commit(f->rows, &gw_epochs));
    GW_TRY(gw_rows_commit(f->rows, &gw_codec_stats_table));
    return gw_rows_finish(f->rows);
}

/* The record and the waits end in any case. */
static gw_err files_end_measuring(gradwire *g) {
    gw_files *f = &g->files;
    gw_record *record = f->record;
    f->record = NULL;
    GW_TRY(gw_record_close(record));
    if (g->words.trace)
        GW_TRY(gw_trace_write(g->words.out, gw_waits_sync(f->waits), g->comm));
    gw_waits *waits = f->waits;
    f->waits = NULL;
    return waits ? gw_waits_close(waits) : GW_OK;
}

gw_err gw_files_finish(gradwire *g) {
    gw_total total = {0};
    gw_resident_end(&g->files.resident);
    gw_err e = files_flush(g);
    GW_THEN(e, files_total(g, &total));
    GW_THEN(e, files_end_measuring(g));
    if (e == GW_OK && g->words.out && g->rank == 0) {
        e = files_commit(g);
        GW_THEN(e, gw_files_report(g, &total));
    }
    json_decref(total.hosts);
    free(total.nan.bad_steps);
    free(total.by_rank);
    return gw_agree(g->comm, e);
}

void gw_files_close(gradwire *g) {
    gw_files *f = &g->files;
    gw_trace_close();
    gw_waits_abandon(f->waits);
    gw_matrix_close();
    gw_record_abandon(f->record);
    gw_busy_close(&f->watch);
    gw_codec_stats_close(f->stats);
    gw_rows_close(f->rows);
    gw_claim_release(f->claim);
    if (f->measures)
        gw_ledger_set_profile(GW_PROFILE_OFF);
}
