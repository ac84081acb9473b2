#include "record/recorder.h"

#include "base/mem.h"
#include "base/text.h"
#include "mpi/wait.h"
#include "run/codec_stats.h"
#include "trace/trace.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    FIRST = 8,            /* steps to the first flush, which tells how many exchanges one has */
    TRACE_EVENTS = 200000 /* bounds the memory of --trace: about 25 MiB a rank */
};

/* ---- the begin ---- */

void gw_recorder_start(gw_recorder *r, const gw_recorder_setup *of) {
    *r = (gw_recorder){.of = *of,
                       .last = {.train_loss = NAN,
                                .validation_loss = NAN,
                                .validation_accuracy = NAN,
                                .test_loss = NAN,
                                .test_accuracy = NAN,
                                .test_s = NAN,
                                .wire_bytes = GW_UNCOUNTED}};
    gw_resident_start(&r->resident, "/proc/self");
    gw_utc_now(r->start_utc);
}

gw_err gw_recorder_claim(gw_recorder *r) {
    bool first = r->of.rank == 0;
    gw_err e = first && r->of.out ? gw_claim_take(&r->claim, r->of.out) : GW_OK;
    if (e == GW_OK && first && r->of.log)
        e = gw_live_open(&r->live, r->of.log, r->of.log_every);
    return gw_agree(r->of.comm, e);
}

gw_err gw_recorder_rows(gw_recorder *r, bool parts) {
    return r->of.out ? gw_rows_new(&r->rows, r->of.out, parts) : GW_OK;
}

gw_err gw_recorder_open(gw_recorder *r, bool mesh, const gw_repeat repeats[2]) {
    GW_TRY(gw_record_open(&r->record, GW_RECORDER_ROWS, mesh, r->of.comm));
    gw_record_repeats(r->record, repeats);
    return GW_OK;
}

gw_err gw_recorder_replace(gw_recorder *r, gw_runfolder_use use) {
    if (use != GW_RUNFOLDER_RESUME)
        GW_TRY(gw_runfolder_clear(r->of.out, use));
    return gw_rows_open(r->rows, &gw_epochs, &r->epochs_csv, NULL);
}

gw_err gw_recorder_measure(gw_recorder *r, double clock_s) {
    const gw_recorder_setup *of = &r->of;
    GW_TRY(gw_record_begin(r->record, r->rows));
    GW_TRY(gw_barrier(of->comm));
    gw_ledger_start();
    gw_ledger_resume(clock_s);
    r->measures = true;
    if (r->live)
        gw_live_begin(r->live, gw_recorder_options(of->args), of->ranks, r->began_at, clock_s > 0);
    gw_ledger_set_profile(of->profile);
    r->flush_at = r->began_at + GW_RECORDER_ROWS;
    if (of->profile == GW_PROFILE_OFF || gw_team_of(of->comm)) /* these see MPI and real clocks */
        return GW_OK;
    r->flush_at = r->began_at + FIRST;
    GW_TRY(gw_waits_open(&r->waits, of->collectives ? r->rows : NULL, GW_RECORDER_ROWS, of->along,
                         of->comm));
    return gw_agree(of->comm, gw_matrix_open());
}

gw_err gw_recorder_trace(const gw_recorder *r) {
    if (!r->of.trace)
        return GW_OK;
    GW_TRY(gw_trace_open(TRACE_EVENTS, r->of.comm));
    gw_trace_counters(r->record);
    return GW_OK;
}

void gw_recorder_begin(gw_recorder *r) {
    r->zero_s = gw_ledger_now();
    gw_link_cost_begin(&r->total.link_cost);
    gw_energy_open(&r->energy, r->watch.reads && r->of.profile != GW_PROFILE_OFF);
    gw_energy_count(&r->energy, true);
}

/* ---- batches ---- */

static void recorder_count(gw_recorder *r, const gw_batch_cost *cost) {
    if (cost->wire_bytes != GW_UNCOUNTED)
        r->wire_bytes += cost->wire_bytes;
}

gw_err gw_recorder_push(gw_recorder *r, const gw_batch_parts *parts, bool out, gw_batch_row *row) {
    gw_recorder_sum *s = &r->sum;
    r->train_s += parts->cost.wall_s;
    recorder_count(r, &parts->cost);
    s->samples += parts->samples;
    s->left_out += out ? parts->samples : 0;
    s->loss += out ? 0 : parts->loss_sum;
    *row = gw_batch_row_of(parts);
    gw_trace_row(row);
    gw_live_step(r->live, row);
    return gw_record_push(r->record, row);
}

void gw_recorder_aside(void) {
    gw_trace_step(0);
    gw_ledger_begin();
}

void gw_recorder_aside_end(gw_recorder *r) {
    gw_batch_cost cost;
    gw_ledger_end(&cost);
    recorder_count(r, &cost);
}

void gw_recorder_warn(gw_recorder *r, const char *line) {
    gw_text_print(r->warning, sizeof r->warning, "%s", line);
}

gw_err gw_recorder_look(gw_recorder *r, int64_t step, const char **warning) {
    const char *line = NULL;
    GW_TRY(gw_codec_stats_end(r->stats, step, &line));
    if (line) {
        gw_recorder_warn(r, line);
        *warning = r->warning;
    }
    return GW_OK;
}

gw_err gw_recorder_flush(gw_recorder *r, int64_t step, gw_batch_row *last) {
    int room = GW_RECORDER_ROWS;
    int64_t n;
    gw_batch_row *rows = gw_record_rows(r->record, &n);
    gw_energy_count(&r->energy, r->energy.counting);
    if (r->waits)
        GW_TRY(gw_waits_flush(r->waits, rows, n, &room));
    if (last && n > 0)
        *last = rows[n - 1];
    r->flush_at = step + room;
    return gw_record_flush(r->record);
}

gw_err gw_recorder_wire(const gw_recorder *r, uint64_t *wire) {
    *wire = r->wire_bytes;
    GW_TRY(gw_allreduce(MPI_IN_PLACE, wire, 1, MPI_UINT64_T, MPI_SUM, r->of.comm));
    if (r->of.profile == GW_PROFILE_OFF)
        *wire = GW_UNCOUNTED;
    return GW_OK;
}

gw_err gw_recorder_loss(const gw_recorder *r, double *loss) {
    const gw_recorder_sum *s = &r->sum;
    double sums[2] = {s->loss, (double)(s->samples - s->left_out)};
    GW_TRY(gw_allreduce(MPI_IN_PLACE, sums, 2, MPI_DOUBLE, MPI_SUM, r->of.comm));
    *loss = sums[0] / sums[1];
    return GW_OK;
}

gw_err gw_recorder_epoch(gw_recorder *r, const gw_epoch_row *row) {
    r->last = *row;
    r->sum = (gw_recorder_sum){0};
    GW_TRY(gw_codec_stats_epoch(r->stats, row->epoch, &r->codec_rows));
    gw_err e = gw_table_write(&gw_epochs, r->epochs_csv, row, 1);
    GW_THEN(e, gw_live_epoch(r->live, row));
    return gw_agree(r->of.comm, e);
}

/* ---- the end ---- */

/* *out (rank 0's, else untouched): the names of all hosts, each once, in the order of the ranks.
 */
static gw_err recorder_hosts(json_t **out, MPI_Comm comm) {
    enum { NAME = 64 };
    int rank, size;
    GW_TRY(gw_comm_place(comm, &rank, &size));
    char mine[NAME] = {0}, *all = NULL;
    gethostname(mine, NAME - 1);
    gw_err e = gw_agree(comm, rank == 0 ? gw_alloc(&all, (size_t)size, NAME) : GW_OK);
    GW_THEN(e, gw_gather(mine, all, NAME, comm));
    if (e == GW_OK && rank == 0) {
        json_t *names = json_array();
        for (int r = 0; r < size; r++) {
            const char *name = all + (size_t)r * NAME;
            bool known = false;
            for (size_t i = 0; i < json_array_size(names); i++)
                known |= strcmp(json_string_value(json_array_get(names, i)), name) == 0;
            if (!known)
                json_array_append_new(names, json_string(name));
        }
        *out = names;
    }
    free(all);
    return e;
}

gw_err gw_recorder_total_up(gw_recorder *r, int64_t steps, int workers) {
    const gw_recorder_setup *of = &r->of;
    gw_recorder_total *t = &r->total;
    gw_resident_end(&r->resident); /* what follows belongs to no phase */
    t->elapsed_s = gw_ledger_now() - r->zero_s;
    gw_energy_count(&r->energy, false);
    GW_TRY(gw_energy_json(&r->energy, steps - r->began_at, of->comm, &t->energy));
    GW_TRY(gw_busy_look(&r->watch, 0, &t->during));
    GW_TRY(gw_link_cost_end(&t->link_cost, workers, of->comm));
    if (of->rank == 0)
        gw_record_summary(r->record, &t->summary);
    GW_TRY(gw_ranks_collect(&t->by_rank, &t->dropped, r->record, r->waits, steps, r->began_at,
                            of->comm));
    GW_TRY(gw_ranks_memory(t->by_rank, &r->resident, of->comm));
    if (of->rank == 0)
        t->straggler = gw_ranks_straggler(t->by_rank, of->ranks);
    if (of->profile != GW_PROFILE_OFF && !gw_team_of(of->comm))
        GW_TRY(gw_matrix_write(r->has_matrix ? NULL : of->out, &t->traffic, of->comm));
    return recorder_hosts(&t->hosts, of->comm);
}

static gw_err recorder_commit(gw_recorder *r, const gw_table *more) {
    GW_TRY(gw_rows_commit(r->rows, &gw_epochs));
    GW_TRY(gw_rows_commit(r->rows, &gw_codec_stats_table));
    if (more)
        GW_TRY(gw_rows_commit(r->rows, more));
    return gw_rows_finish(r->rows);
}

/* The record and the waits end in any case. */
gw_err gw_recorder_end(gw_recorder *r, const gw_table *more) {
    gw_record *record = r->record;
    gw_waits *waits = r->waits;
    r->record = NULL;
    GW_TRY(gw_record_close(record));
    if (r->of.trace)
        GW_TRY(gw_trace_write(r->of.out, gw_waits_sync(waits), r->of.comm));
    r->waits = NULL;
    if (waits)
        GW_TRY(gw_waits_close(waits));
    bool commits = r->of.out && r->of.rank == 0;
    gw_err e = gw_live_end(r->live);
    if (e == GW_OK && commits)
        e = recorder_commit(r, more);
    return gw_agree(r->of.comm, e);
}

void gw_recorder_close(gw_recorder *r) {
    gw_trace_close();
    gw_waits_abandon(r->waits);
    gw_matrix_close();
    gw_record_abandon(r->record);
    gw_busy_close(&r->watch);
    gw_codec_stats_close(r->stats);
    gw_rows_close(r->rows);
    gw_claim_release(r->claim);
    gw_live_close(r->live);
    json_decref(r->total.hosts);
    json_decref(r->total.energy);
    free(r->total.by_rank);
    if (r->measures)
        gw_ledger_set_profile(GW_PROFILE_OFF);
}
