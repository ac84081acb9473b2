/* Records a run: claims and opens its folder, writes steps and epochs to files, completes these,
 * and tells of all in run.json. */
#include "record/recorder.h"

#include "base/json.h"
#include "base/mem.h"
#include "base/text.h"
#include "base/version.h"
#include "machine/host.h"
#include "mpi/wait.h"
#include "mpi/world.h"
#include "prof/clock.h"
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
    /* The folder of the run that wrote the checkpoint, which lies in its model.ckpt.d. */
    char *from = o->use == GW_RUNFOLDER_RESUME ? NULL : realpath(past->path, NULL), *end;
    if (o->use != GW_RUNFOLDER_RESUME && !from)
        return gw_fail(GW_ERR_INPUT, "--resume %s: %s", past->path, strerror(errno));
    for (int i = 0; from && i < 2 && (end = strrchr(from, '/')) != NULL; i++)
        *end = '\0';
    gw_err e = gw_rows_resume(r->rows, from, files, past->by);
    free(from);
    return e;
}

/* Rank 0: lets an older run in the folder give way, or go on. */
static gw_err recorder_replace(gw_recorder *r, const gw_recorder_opening *o) {
    static const char lacks[] = "the rows of the steps before are not beside the checkpoint:"
                                " batches.csv and its like begin here";
    gw_recorder_earlier *earlier = &r->earlier;
    /* All that this start will open must be fit to be continued, before anything is replaced. */
    if (o->past) {
        GW_TRY(gw_record_check(r->record, r->rows));
        GW_TRY(gw_rows_check(r->rows, &gw_epochs));
        if (r->of.evaluations)
            GW_TRY(gw_rows_check(r->rows, &gw_evaluations));
        if (o->compress_stats > 0)
            GW_TRY(gw_rows_check(r->rows, &gw_codec_stats_table));
        if (r->of.collectives)
            GW_TRY(gw_rows_check(r->rows, &gw_waits_collectives));
        earlier->lacks = gw_rows_lack(r->rows) ? lacks : NULL;
        if (earlier->lacks && o->past->strict)
            return gw_fail(GW_ERR_INPUT, "--resume-strict: resume: %s", lacks);
    }
    if (o->use != GW_RUNFOLDER_RESUME)
        GW_TRY(gw_runfolder_clear(r->of.out, o->use));
    else /* rows behind the mark are of steps that this run shall not have had: what tells of them
            goes */
        earlier->concludes = o->past->ended && !gw_rows_beyond(r->rows, GW_BATCHES);
    if (earlier->concludes) {
        earlier->matrix = gw_matrix_read(r->of.out, &r->total.traffic) == GW_OK;
        earlier->trace = gw_runfolder_has(r->of.out, "trace.json");
        earlier->told = gw_runfolder_read(r->of.out);
    }
    GW_TRY(gw_rows_open(r->rows, &gw_epochs, &r->to.epochs, NULL));
    return r->of.evaluations ? gw_rows_open(r->rows, &gw_evaluations, &r->to.evaluations, NULL)
                             : GW_OK;
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
    GW_TRY(gw_record_begin(r->record, r->rows));
    GW_TRY(gw_barrier(of->comm));
    gw_ledger_start();
    gw_ledger_resume(news[0]); /* seconds after the run's first start */
    r->state = GW_RECORDER_OPEN;
    if (r->to.live)
        gw_live_begin(r->to.live, gw_recorder_options(of->args), of->ranks, r->step, news[0] > 0);
    gw_ledger_set_profile(of->profile);
    r->flush_at = r->step + GW_RECORDER_ROWS;
    if (of->profile == GW_PROFILE_OFF || gw_team_of(of->comm)) /* these see MPI and real clocks */
        return GW_OK;
    r->flush_at = r->step + FIRST;
    GW_TRY(gw_waits_open(&r->waits, of->collectives ? r->rows : NULL, GW_RECORDER_ROWS, of->along,
                         of->comm));
    return gw_agree(of->comm, gw_matrix_open());
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
    if (r->of.out && r->of.rank == 0) { /* the files of rows are complete, and get their names */
        GW_THEN(e, gw_rows_commit(r->rows, &gw_epochs));
        GW_THEN(e, gw_rows_commit(r->rows, &gw_codec_stats_table));
        GW_THEN(e, gw_rows_commit(r->rows, &gw_evaluations));
        GW_THEN(e, gw_rows_finish(r->rows));
    }
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

/* ---- run.json ---- */

json_t *gw_recorder_options(const gw_args *args) {
    json_t *all = json_object();
    for (const gw_opt *o = gw_args_opts(args); o->name; o++) {
        const char *text = gw_args_text(args, o->name);
        json_t *v = o->type == GW_OPT_FLAG ? json_boolean(text && *text == '1')
                    : !text                ? json_null()
                    : o->type == GW_OPT_REAL || o->type == GW_OPT_TIME
                        ? json_real(gw_args_real(args, o->name))
                    : gw_opt_is_int(o) || o->type == GW_OPT_BYTES
                        ? json_integer(gw_args_int(args, o->name))
                        : json_string(text);
        json_object_set_new(all, o->name, v);
    }
    return all;
}

/* Variables that tune the MPI library and its transports are factors as much as any option. */
static json_t *recorder_environment(void) {
    static const char *const families[] = {"UCX_", "MPIR_CVAR_", "MPICH_", "FI_"};
    json_t *all = json_object();
    for (char *const *v = environ; *v; v++)
        for (size_t i = 0; i < sizeof families / sizeof *families; i++) {
            char name[128];
            const char *value = strchr(*v, '=');
            if (!value || strncmp(*v, families[i], strlen(families[i])) != 0 || !gw_text_utf8(*v))
                continue;
            snprintf(name, sizeof name, "%.*s", (int)(value - *v), *v);
            json_object_set_new(all, name, json_string(value + 1));
        }
    return all;
}

/* The MPI library, its thread level, and what of the environment tunes it. Simulated ranks have
 * none. */
static json_t *recorder_mpi(MPI_Comm comm) {
    if (comm == MPI_COMM_NULL)
        return gw_json_object("library:s standard:o thread_level:s environment:o", "none",
                              json_null(), "none", json_null());
    char library[MPI_MAX_LIBRARY_VERSION_STRING];
    int len = 0, version = 0, subversion = 0, level = MPI_THREAD_SINGLE;
    MPI_Query_thread(&level);
    if (MPI_Get_library_version(library, &len) != MPI_SUCCESS)
        library[0] = '\0';
    library[strcspn(library, "\n")] = '\0';
    MPI_Get_version(&version, &subversion);
    char standard[32];
    snprintf(standard, sizeof standard, "%d.%d", version, subversion);
    return gw_json_object("library:s standard:s thread_level:s environment:o", library, standard,
                          gw_world_thread_level(level), recorder_environment());
}

/* Memory time by each source apart; see docs/measurement.md. */
static json_t *recorder_memory(const gw_batch_summary *b, const gw_recorder_report *of) {
    static const char *const names[] = {"absent", "twin+model", "ctr"};
    const gw_batch_split *s = &b->split;
    return gw_json_object("source:s ctr_s:f twin_s:f model_lo_s:f model_hi_s:f core_ctr_s:f "
                          "core_twin_s:f core_model_lo_s:f core_model_hi_s:f codec_ctr_s:f "
                          "codec_twin_s:f batches:I batches_inconsistent:I",
                          names[b->source], s->memory_ctr_s, s->memory_twin_s, s->memory_model_lo_s,
                          s->memory_model_hi_s, s->core_ctr_s, s->core_twin_s, s->core_model_lo_s,
                          s->core_model_hi_s, s->memory_codec_ctr_s, s->memory_codec_twin_s,
                          of->split, of->flagged);
}

/* Computation divided by its best source into parts that add up to it; null: undivided. Batches
 * without counters are taken to be like those that have them; by twins and model what is in neither
 * may be either. */
static json_t *recorder_division(const gw_batch_summary *b, double compute) {
    const gw_batch_split *s = &b->split;
    double core = b->core_least_s, memory = b->memory_least_s;
    if (b->source == GW_SPLIT_NONE)
        return json_null();
    if (b->source == GW_SPLIT_CTR) {
        memory = compute * s->memory_ctr_s / (s->core_ctr_s + s->memory_ctr_s);
        core = compute - memory;
    }
    return gw_json_object("source:s core_s:f core_or_memory_s:f memory_s:f",
                          b->source == GW_SPLIT_CTR ? "ctr" : "twin+model", core,
                          b->source == GW_SPLIT_CTR ? NAN : compute - core - memory, memory);
}

json_t *gw_recorder_dimensions(const gw_batch_summary *b, const gw_mesh_shape *mesh) {
    if (!gw_mesh_divides(mesh))
        return json_null();
    json_t *all = json_object();
    for (int d = 0; d < GW_DIMS; d++)
        json_object_set_new(all, gw_dim_names[d],
                            gw_json_object("ranks:i comm_s:f waiting_s:f bytes:f messages:f",
                                           mesh->size[d], b->dim_comm_s[d], b->dim_waiting_s[d],
                                           b->dim_bytes[d], b->dim_messages[d]));
    return all;
}

static json_t *recorder_summary(const gw_recorder *r, const gw_recorder_report *of) {
    const gw_batch_summary *b = &r->total.summary;
    const gw_steady_doubt *d = &b->doubt;
    const double *p = b->phase_s;
    double compute = gw_phases_computation(p);
    json_t *phases = json_object();
    for (int i = 0; i < GW_PHASES; i++) {
        char key[40];
        snprintf(key, sizeof key, "%s_s", gw_phase_name((gw_phase)i));
        json_object_set_new(phases, key, gw_json_number(p[i]));
    }
    return gw_json_object(
        "batches:I statistic:s period:I counted:I interrupted:f wall_s:f spread:o halves:o "
        "compute_s:f division:o memory_s:o exposed_s:f waiting_s:f transfer_s:f hidden_s:f "
        "codec_s:f wire_bytes:f logical_bytes:f phases:o dimensions:o bubble_s:f bubble_share:f",
        b->batches, of->statistic ? of->statistic : gw_steady_name(&b->kept), b->kept.period,
        b->kept.steps, b->interrupted, b->wall_s, gw_json_object("p10_s:f p90_s:f", d->p10, d->p90),
        gw_json_object("odd_s:f even_s:f first_s:f last_s:f apart:f warned:b", d->odd, d->even,
                       d->first, d->last, d->apart, gw_steady_doubts(d)),
        compute, recorder_division(b, compute), recorder_memory(b, of),
        p[GW_PHASE_MPI_POST] + p[GW_PHASE_MPI_POLL] + p[GW_PHASE_MPI_WAIT], b->waiting_s,
        b->transfer_s, b->inflight_s, p[GW_PHASE_ENCODE] + p[GW_PHASE_DECODE], b->wire_bytes,
        b->logical_bytes, phases, of->dimensions, of->bubble_s, of->bubble_s / b->wall_s);
}

static json_t *recorder_machine(const gw_recorder *r, const gw_recorder_report *of) {
    gw_host h;
    gw_host_facts(&h);
    const gw_busy *before = r->total.before.seconds > 0 ? &r->total.before : NULL;
    return gw_json_object(
        "hosts:o cpu:s cpus_online:i cpus_usable:i cores_usable:i memory_bytes:I ranks:i workers:i "
        "nodes:i ranks_on_this_node:i threads_per_rank:i helper_threads_per_rank:i "
        "oversubscribed:b busy:o clock:s",
        json_incref(r->total.hosts), h.cpu_model, h.cpus_online, h.cpus_usable, h.cores_usable,
        h.memory, r->of.ranks, of->workers, of->node.nodes, of->node.ranks, of->threads,
        of->helpers, of->oversubscribed, gw_busy_run_json(before, &r->total.during),
        gw_clock_name());
}

/* Which figures were observed and which follow from a formula. */
static json_t *recorder_sources(const gw_recorder *r, const gw_recorder_report *of) {
    static const char form[] =
        "phases:s waiting_s:s hidden_s:s memory_s:s wire_bytes:s peak_bytes:s";
    if (r->of.profile == GW_PROFILE_OFF)
        return gw_json_object(form, "absent", "absent", "absent", "absent", "absent",
                              of->sources.resident);
    return gw_json_object(form, of->sources.phases,
                          gw_clock_is_virtual() ? "absent"
                                                : "measured: blocked before the last rank's "
                                                  "arrival, on a common clock",
                          "upper bound: computation while a message was in flight",
                          of->sources.memory, of->sources.wire, of->sources.resident);
}

static json_t *recorder_results(const gw_recorder *r, const gw_recorder_report *of) {
    const gw_epoch_row *last = &r->last;
    const gw_recorder_total *t = &r->total;
    const gw_matrix_total *sent = &t->traffic;
    const gw_straggler *s = &t->straggler;
    json_t *peak, *sum, *traffic = json_null(), *straggler = json_null();
    char hash[16];
    if (r->of.profile != GW_PROFILE_OFF) /* else nothing is counted */
        traffic =
            gw_json_object("messages:I message_bytes:I collectives:I collective_bytes:I",
                           sent->messages, sent->bytes, sent->collectives, sent->collective_bytes);
    if (s->rank >= 0)
        straggler = gw_json_object("rank:i of_waiting:f last_share:f waited_s:f of_step:f", s->rank,
                                   s->of_waiting, s->last_share, s->waited_s, s->of_step);
    gw_ranks_memory_json(t->by_rank, r->of.ranks, &peak, &sum);
    json_t *results = gw_json_object(
        "steps:I stopped_by:s train_loss:f validation_loss:f validation_accuracy:f test_loss:f "
        "test_accuracy:f elapsed_s:f train_s:f wire_bytes:u traffic:o summary:o peak_bytes:o "
        "peak_sum_bytes:o ranks:o straggler:o exchanges_dropped:I energy:o",
        of->steps, of->stopped_by, last->train_loss, last->validation_loss,
        last->validation_accuracy, last->test_loss, last->test_accuracy, t->elapsed_s, r->train_s,
        of->wire_bytes, traffic, recorder_summary(r, of), peak, sum,
        gw_ranks_json(t->by_rank, r->of.ranks), straggler, t->dropped,
        t->energy ? json_incref(t->energy) : json_null());
    snprintf(hash, sizeof hash, "%08x", last->replica_hash);
    return last->epoch > 0 ? gw_json_add(results, "replica_hash:s", hash) : results;
}

/* Adds the members of `more` to the object `to`, and frees `more`. Returns NULL, and frees both, if
 * either is NULL. */
static json_t *recorder_join(json_t *to, json_t *more) {
    bool joined = to && more && json_object_update(to, more) == 0;
    json_decref(more);
    if (!joined)
        json_decref(to);
    return joined ? to : NULL;
}

gw_err gw_recorder_json(const gw_recorder *r, const gw_recorder_report *of, json_t **out) {
    json_t *interruptions = NULL;
    gw_err e = r->of.out ? gw_history_read(r->of.out, &interruptions) : GW_OK;
    json_t *run = gw_json_object(
        "schema:i program:s version:s commit:s command:s started_utc:s options:o seed:I "
        "parameters:I comm:o mpi:o machine:o link:o sources:o interruptions:o results:o",
        GW_RUN_SCHEMA, of->program, GW_VERSION, GW_COMMIT, of->command, of->started_utc,
        gw_recorder_options(of->args), of->seed, of->parameters, of->comm, recorder_mpi(r->of.comm),
        recorder_join(recorder_machine(r, of), of->machine), gw_link_cost_json(&r->total.link_cost),
        recorder_sources(r, of), interruptions ? interruptions : json_null(),
        recorder_join(recorder_results(r, of), of->results));
    run = recorder_join(run, of->more);
    if (e == GW_OK && !run)
        e = gw_fail(GW_ERR_INTERNAL, "run.json: a text in it is not UTF-8");
    GW_OPENED(e, out, run, json_decref);
}
