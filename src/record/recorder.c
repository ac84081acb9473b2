/* Records a run: claims and opens its folder, writes steps and epochs to files, and completes
 * these. */
#include "record/recorder.h"

#include "base/mem.h"
#include "base/text.h"
#include "mpi/wait.h"
#include "run/codec_stats.h"
#include "trace/trace.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    FIRST = 8,            /* steps to the first flush, which tells how many exchanges one has */
    TRACE_EVENTS = 200000 /* bounds the memory of --trace: about 25 MiB a rank */
};

/* Is it a call's turn? */
static gw_err recorder_turn(gw_recorder *r, gw_recorder_state from, gw_recorder_state to) {
    if (r->state != from)
        return gw_fail(GW_ERR_INTERNAL, "recorder: state %d, where %d is due", r->state, from);
    r->state = to;
    return GW_OK;
}

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
    memcpy(r->earlier.utc, r->start_utc, sizeof r->earlier.utc);
}

gw_err gw_recorder_claim(gw_recorder *r, const gw_recorder_setup *of) {
    bool first = of->rank == 0;
    gw_recorder_start(r, of);
    r->state = GW_RECORDER_CLAIMED;
    gw_err e = first && of->out ? gw_claim_take(&r->to.claim, of->out) : GW_OK;
    if (e == GW_OK && first && of->log)
        e = gw_live_open(&r->to.live, of->log, of->log_every);
    GW_TRY(gw_agree(of->comm, e));
    return of->early ? gw_busy_open(&r->watch, of->node, of->comm) : GW_OK;
}

/* *folder: that of the run that wrote the checkpoint, which lies in its model.ckpt.d; free(). */
static gw_err recorder_folder_of(const char *checkpoint, char **folder) {
    char *end;
    *folder = realpath(checkpoint, NULL);
    if (!*folder)
        return gw_fail(GW_ERR_INPUT, "--resume %s: %s", checkpoint, strerror(errno));
    for (int i = 0; i < 2 && (end = strrchr(*folder, '/')) != NULL; i++)
        *end = '\0';
    return GW_OK;
}

/* Reads the checkpoint's marks of its run's files. Names come out of a file, and what they name is
 * cut. */
static gw_err recorder_find_marks(gw_recorder *r, const gw_recorder_opening *o, double *clock_s) {
    const gw_recorder_past *past = o->past;
    const char *utc = json_string_value(json_object_get(past->marks, "started_utc")), *name;
    const json_t *clock = json_object_get(past->marks, "clock_s");
    const json_t *evaluated = json_object_get(past->marks, "evaluated");
    json_t *files = json_object_get(past->marks, "files"), *mark;
    if (!utc || strlen(utc) >= sizeof r->earlier.utc || !json_is_number(clock) ||
        !(json_number_value(clock) >= 0) || !json_is_integer(evaluated))
        return gw_fail(GW_ERR_INPUT, "%s: lacks marks of its run's folder", past->path);
    snprintf(r->earlier.utc, sizeof r->earlier.utc, "%s", utc);
    *clock_s = json_number_value(clock);
    r->tested = json_integer_value(evaluated);
    json_object_foreach(files, name, mark) {
        if (!gw_runfolder_grows(name))
            return gw_fail(GW_ERR_INPUT, "%s: marks '%s', which does not grow by rows", past->path,
                           name);
    }
    char *from = NULL;
    if (o->use != GW_RUNFOLDER_RESUME)
        GW_TRY(recorder_folder_of(past->path, &from));
    gw_err e = gw_rows_resume(r->rows, from, files, past->by);
    free(from);
    return e;
}

/* Before anything is replaced or cut: can this start continue all that it will open? */
static gw_err recorder_check_rows(gw_recorder *r, const gw_recorder_opening *o) {
    static const char lacks[] = "the rows of the steps before are not beside the checkpoint:"
                                " batches.csv and its like begin here";
    GW_TRY(gw_record_check(r->record, r->rows));
    GW_TRY(gw_rows_check(r->rows, &gw_epochs));
    if (r->of.evaluations)
        GW_TRY(gw_rows_check(r->rows, &gw_evaluations));
    if (o->compress_stats > 0)
        GW_TRY(gw_rows_check(r->rows, &gw_codec_stats_table));
    if (r->of.collectives)
        GW_TRY(gw_rows_check(r->rows, &gw_waits_collectives));
    if (!gw_rows_lack(r->rows))
        return GW_OK;
    r->earlier.lacks = lacks;
    return o->past->strict ? gw_fail(GW_ERR_INPUT, "--resume-strict: resume: %s", lacks) : GW_OK;
}

/* Rows behind the mark are of steps that this run shall not have had: what tells of them goes. */
static void recorder_look_for_end(gw_recorder *r, const gw_recorder_past *past) {
    gw_recorder_earlier *earlier = &r->earlier;
    earlier->concludes = past->ended && !gw_rows_beyond(r->rows, GW_BATCHES);
    if (!earlier->concludes)
        return;
    earlier->matrix = gw_matrix_read(r->of.out, &r->total.traffic) == GW_OK;
    earlier->trace = gw_runfolder_has(r->of.out, "trace.json");
    earlier->told = gw_runfolder_read(r->of.out);
}

/* Rank 0: lets an older run in the folder give way, or go on. */
static gw_err recorder_replace(gw_recorder *r, const gw_recorder_opening *o) {
    if (o->past)
        GW_TRY(recorder_check_rows(r, o));
    if (o->use == GW_RUNFOLDER_RESUME)
        recorder_look_for_end(r, o->past);
    else
        GW_TRY(gw_runfolder_clear(r->of.out, o->use));
    GW_TRY(gw_rows_open(r->rows, &gw_epochs, &r->to.epochs, NULL));
    return r->of.evaluations ? gw_rows_open(r->rows, &gw_evaluations, &r->to.evaluations, NULL)
                             : GW_OK;
}

/* Starts the ledger, `clock_s` seconds after the run's first start. */
static gw_err recorder_measure(gw_recorder *r, double clock_s) {
    const gw_recorder_setup *of = &r->of;
    GW_TRY(gw_record_begin(r->record, r->rows));
    GW_TRY(gw_barrier(of->comm));
    gw_ledger_start();
    gw_ledger_resume(clock_s);
    r->state = GW_RECORDER_OPEN;
    if (r->to.live)
        gw_live_begin(r->to.live, gw_recorder_options(of->args), of->ranks, r->step, clock_s > 0);
    gw_ledger_set_profile(of->profile);
    r->flush_at = r->step + GW_RECORDER_ROWS;
    if (of->profile == GW_PROFILE_OFF || gw_team_of(of->comm)) /* these see MPI and real clocks */
        return GW_OK;
    r->flush_at = r->step + FIRST;
    GW_TRY(gw_waits_open(&r->waits, of->collectives ? r->rows : NULL, GW_RECORDER_ROWS, of->along,
                         of->comm));
    return gw_agree(of->comm, gw_matrix_open());
}

gw_err gw_recorder_open(gw_recorder *r, const gw_recorder_opening *o) {
    const gw_recorder_setup *of = &r->of;
    bool first = of->rank == 0;
    double clock_s = 0;
    GW_TRY(recorder_turn(r, GW_RECORDER_CLAIMED, GW_RECORDER_CLAIMED));
    r->step = r->earlier.steps = o->step;
    gw_err e = of->out ? gw_rows_new(&r->rows, of->out, first && o->parts) : GW_OK;
    if (e == GW_OK && r->rows && first && o->past)
        e = recorder_find_marks(r, o, &clock_s);
    GW_TRY(gw_agree(of->comm, e));
    /* A file that is continued keeps its columns, whatever the mesh is now. */
    r->mesh = r->rows && gw_rows_continue(r->rows, GW_BATCHES)
                  ? json_is_true(json_object_get(o->past->marks, "mesh_columns"))
                  : o->mesh;
    GW_TRY(gw_record_open(&r->record, GW_RECORDER_ROWS, r->mesh, of->comm));
    gw_record_repeats(r->record, o->repeats);
    gw_record_counters(r->record, o->counters, o->n_counters);
    GW_TRY(gw_agree(of->comm, r->rows && first ? recorder_replace(r, o) : GW_OK));
    double news[] = {clock_s, r->earlier.trace, (double)r->tested};
    GW_TRY(gw_bcast(news, 3, MPI_DOUBLE, 0, of->comm));
    r->earlier.trace = news[1] != 0;
    r->tested = (int64_t)news[2];
    GW_TRY(gw_codec_stats_open(&r->stats, of->comm, o->session, o->compress_stats, r->rows));
    return recorder_measure(r, news[0]);
}

void gw_recorder_count_on(gw_recorder *r, int64_t steps) {
    r->step += steps;
    r->earlier.steps += steps;
    r->flush_at += steps;
}

gw_err gw_recorder_begin(gw_recorder *r) {
    GW_TRY(recorder_turn(r, GW_RECORDER_OPEN, GW_RECORDER_BEGUN));
    if (r->of.trace && !r->earlier.trace) {
        GW_TRY(gw_trace_open(TRACE_EVENTS, r->of.comm));
        gw_trace_counters(r->record);
    }
    GW_TRY(r->of.early ? gw_busy_look(&r->watch, 0, &r->total.before)
                       : gw_busy_open(&r->watch, r->of.node, r->of.comm));
    r->zero_s = gw_ledger_now();
    gw_link_cost_begin(&r->total.link_cost);
    gw_energy_open(&r->energy, r->watch.reads && r->of.profile != GW_PROFILE_OFF);
    gw_energy_count(&r->energy, true);
    return GW_OK;
}

/* ---- batches ---- */

static void recorder_count(gw_recorder *r, const gw_batch_cost *cost) {
    if (cost->wire_bytes != GW_UNCOUNTED)
        r->wire_bytes += cost->wire_bytes;
}

gw_err gw_recorder_step(gw_recorder *r, const gw_batch_parts *parts, bool out,
                        const char **warning) {
    gw_recorder_sum *s = &r->sum;
    const char *line = NULL;
    GW_TRY(recorder_turn(r, GW_RECORDER_BEGUN, GW_RECORDER_BEGUN));
    r->step = parts->step;
    r->train_s += parts->cost.wall_s;
    recorder_count(r, &parts->cost);
    s->samples += parts->samples;
    s->left_out += out ? parts->samples : 0;
    s->loss += out ? 0 : parts->loss_sum;
    r->row = gw_batch_row_of(parts);
    gw_trace_row(&r->row);
    gw_live_step(r->to.live, &r->row);
    GW_TRY(gw_record_push(r->record, &r->row));
    GW_TRY(gw_codec_stats_end(r->stats, r->step, &line));
    if (line) {
        gw_recorder_warn(r, line);
        *warning = r->warning;
    }
    return r->step == r->flush_at ? gw_recorder_flush(r) : GW_OK;
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

gw_err gw_recorder_flush(gw_recorder *r) {
    int room = GW_RECORDER_ROWS;
    int64_t n;
    gw_batch_row *rows = gw_record_rows(r->record, &n);
    gw_energy_count(&r->energy, r->energy.counting);
    if (r->waits)
        GW_TRY(gw_waits_flush(r->waits, rows, n, &room));
    if (n > 0)
        r->row = rows[n - 1];
    r->flush_at = r->step + room;
    return gw_record_flush(r->record);
}

gw_err gw_recorder_wire(const gw_recorder *r, uint64_t *wire) {
    *wire = r->wire_bytes;
    GW_TRY(gw_allreduce(MPI_IN_PLACE, wire, 1, MPI_UINT64_T, MPI_SUM, r->of.comm));
    if (r->of.profile == GW_PROFILE_OFF)
        *wire = GW_UNCOUNTED;
    return GW_OK;
}

gw_err gw_recorder_sums(gw_recorder *r, gw_epoch_row *row) {
    const gw_recorder_sum *s = &r->sum;
    double sums[2] = {s->loss, (double)(s->samples - s->left_out)};
    GW_TRY(gw_recorder_flush(r));
    GW_TRY(gw_allreduce(MPI_IN_PLACE, sums, 2, MPI_DOUBLE, MPI_SUM, r->of.comm));
    GW_TRY(gw_recorder_wire(r, &row->wire_bytes));
    row->train_loss = sums[0] / sums[1];
    row->step = r->step;
    row->elapsed_s = gw_ledger_now() - r->zero_s;
    row->train_s = r->train_s;
    return GW_OK;
}

gw_err gw_recorder_epoch(gw_recorder *r, const gw_epoch_row *row) {
    GW_TRY(recorder_turn(r, GW_RECORDER_BEGUN, GW_RECORDER_BEGUN));
    r->last = *row;
    r->sum = (gw_recorder_sum){0};
    GW_TRY(gw_codec_stats_epoch(r->stats, row->epoch, &r->codec_rows));
    gw_err e = gw_table_write(&gw_epochs, r->to.epochs, row, 1);
    GW_THEN(e, gw_live_epoch(r->to.live, row));
    return gw_agree(r->of.comm, e);
}

gw_err gw_recorder_tested(gw_recorder *r, const gw_epoch_row *row) {
    bool fresh = r->tested != row->step && !isnan(row->test_accuracy);
    if (fresh)
        r->tested = row->step;
    return gw_agree(r->of.comm, gw_table_write(&gw_evaluations, r->to.evaluations, row, fresh));
}

gw_err gw_recorder_mark(gw_recorder *r, json_t **marks) {
    json_t *files = NULL; /* of rows; can be resumed from here once gw_rows_sync is done */
    GW_TRY(gw_rows_mark(r->rows, &files));
    int64_t tested = r->of.evaluations ? r->tested : r->step; /* one that was not due */
    *marks = json_pack("{s:s, s:f, s:I, s:b, s:o}", "started_utc", r->earlier.utc, "clock_s",
                       gw_ledger_now(), "evaluated", (json_int_t)tested, "mesh_columns", r->mesh,
                       "files", files);
    return *marks ? GW_OK : gw_fail(GW_ERR_NOMEM, "out of memory");
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

/* Fills in `total`. */
static gw_err recorder_total_up(gw_recorder *r, int workers) {
    const gw_recorder_setup *of = &r->of;
    gw_recorder_total *t = &r->total;
    gw_matrix_total own;
    gw_resident_end(&r->resident); /* what follows belongs to no phase */
    t->elapsed_s = gw_ledger_now() - r->zero_s;
    gw_energy_count(&r->energy, false);
    GW_TRY(gw_energy_json(&r->energy, r->step - r->earlier.steps, of->comm, &t->energy));
    GW_TRY(gw_busy_look(&r->watch, 0, &t->during));
    GW_TRY(gw_link_cost_end(&t->link_cost, workers, of->comm));
    if (of->rank == 0)
        gw_record_summary(r->record, &t->summary);
    GW_TRY(gw_ranks_collect(&t->by_rank, &t->dropped, r->record, r->waits, r->step,
                            r->earlier.steps, of->comm));
    GW_TRY(gw_ranks_memory(t->by_rank, &r->resident, of->comm));
    if (of->rank == 0)
        t->straggler = gw_ranks_straggler(t->by_rank, of->ranks);
    if (of->profile != GW_PROFILE_OFF && !gw_team_of(of->comm))
        GW_TRY(r->earlier.matrix ? gw_matrix_write(NULL, &own, of->comm)
                                 : gw_matrix_write(of->out, &t->traffic, of->comm));
    return recorder_hosts(&t->hosts, of->comm);
}

/* Completes and renames the files of rows. */
static gw_err recorder_commit(gw_recorder *r) {
    GW_TRY(gw_rows_commit(r->rows, &gw_epochs));
    GW_TRY(gw_rows_commit(r->rows, &gw_codec_stats_table));
    GW_TRY(gw_rows_commit(r->rows, &gw_evaluations));
    return gw_rows_finish(r->rows);
}

gw_err gw_recorder_end(gw_recorder *r, int workers) {
    int64_t left; /* rows, as many on all ranks */
    GW_TRY(recorder_turn(r, GW_RECORDER_BEGUN, GW_RECORDER_ENDED));
    gw_record_rows(r->record, &left);
    if (left > 0)
        GW_TRY(gw_recorder_flush(r));
    GW_TRY(recorder_total_up(r, workers));
    gw_record *record = r->record; /* it and the waits end here, also if that fails */
    gw_waits *waits = r->waits;
    r->record = NULL;
    GW_TRY(gw_record_close(record));
    if (r->of.trace && !r->earlier.trace)
        GW_TRY(gw_trace_write(r->of.out, gw_waits_sync(waits), r->of.comm));
    r->waits = NULL;
    if (waits)
        GW_TRY(gw_waits_close(waits));
    gw_err e = gw_live_end(r->to.live);
    if (e == GW_OK && r->of.out && r->of.rank == 0)
        e = recorder_commit(r);
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
    gw_claim_release(r->to.claim);
    gw_live_close(r->to.live);
    json_decref(r->earlier.told);
    json_decref(r->total.hosts);
    json_decref(r->total.energy);
    free(r->total.by_rank);
    if (r->state >= GW_RECORDER_OPEN)
        gw_ledger_set_profile(GW_PROFILE_OFF);
}
