/* The files of rows of a run, and what a resumed run needs to continue them. */
#include "train/trainer_parts.h"

#include "base/json.h"
#include "folder/history.h"
#include "mpi/wait.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

gw_runfolder_use gw_trainer_use(const gw_trainer *t) {
    return gw_runfolder_use_of(t->c->run.out, t->c->run.overwrite, t->c->keep.resume,
                               t->resume.path);
}

/* The folder of the run that a checkpoint is of, which has it in its model.ckpt.d; free(). */
static gw_err trainer_folder_of(const char *checkpoint, char **folder) {
    char *end;
    *folder = realpath(checkpoint, NULL);
    if (!*folder)
        return gw_fail(GW_ERR_INPUT, "--resume %s: %s", checkpoint, strerror(errno));
    for (int i = 0; i < 2 && (end = strrchr(*folder, '/')) != NULL; i++)
        *end = '\0';
    return GW_OK;
}

/* Names come out of a file, and what they name is cut. */
static gw_err trainer_check_names(const json_t *files, const char *checkpoint) {
    const char *name;
    json_t *mark;
    json_object_foreach((json_t *)files, name, mark) {
        if (!gw_runfolder_grows(name))
            return gw_fail(GW_ERR_INPUT, "%s: marks '%s', which does not grow by rows", checkpoint,
                           name);
    }
    return GW_OK;
}

/* The checkpoint's marks of its run's files. */
static gw_err trainer_rows_resume(gw_trainer *t, bool ours) {
    const json_t *marks = json_object_get(t->resume.manifest.facts, "marks");
    const char *utc = json_string_value(json_object_get(marks, "started_utc"));
    const json_t *clock = json_object_get(marks, "clock_s");
    const json_t *evaluated = json_object_get(marks, "evaluated");
    if (!utc || strlen(utc) >= sizeof t->past.started_utc || !json_is_number(clock) ||
        !(json_number_value(clock) >= 0) || !json_is_integer(evaluated))
        return gw_fail(GW_ERR_INPUT, "%s: lacks marks of its run's folder", t->resume.path);
    snprintf(t->past.started_utc, sizeof t->past.started_utc, "%s", utc);
    t->past.clock_s = json_number_value(clock);
    t->at.evaluated = json_integer_value(evaluated);
    const json_t *files = json_object_get(marks, "files");
    char *from = NULL;
    GW_TRY(trainer_check_names(files, t->resume.path));
    if (!ours)
        GW_TRY(trainer_folder_of(t->resume.path, &from));
    gw_err e = gw_rows_resume(t->rec.rows, from, files, gw_store_other(&t->resume.manifest));
    free(from);
    return e;
}

/* A file that is continued keeps its columns, whatever the mesh is now. */
static bool trainer_mesh_columns(const gw_trainer *t) {
    const json_t *marks = json_object_get(t->resume.manifest.facts, "marks");
    return t->rec.rows && gw_rows_continue(t->rec.rows, GW_BATCHES)
               ? json_is_true(json_object_get(marks, "mesh_columns"))
               : gw_mesh_divides(&t->mesh.shape);
}

static gw_err trainer_find_rows(gw_trainer *t) {
    const gw_train_config *c = t->c;
    bool goes_on = *t->resume.path, keeps = c->keep.every.count > 0 || c->keep.every.s > 0;
    GW_TRY(gw_recorder_rows(&t->rec, t->rank == 0 && (keeps || goes_on)));
    return t->rank == 0 && goes_on
               ? trainer_rows_resume(t, gw_trainer_use(t) == GW_RUNFOLDER_RESUME)
               : GW_OK;
}

gw_err gw_trainer_find_rows(gw_trainer *t) {
    GW_TRY(gw_agree(t->comm, t->c->run.out ? trainer_find_rows(t) : GW_OK));
    t->mesh_columns = trainer_mesh_columns(t);
    return GW_OK;
}

/* Before anything is replaced or cut: whether this start can continue all that it will open.
 */
static gw_err trainer_check_rows(gw_trainer *t) {
    const gw_train_config *c = t->c;
    GW_TRY(gw_record_check(t->rec.record, t->rec.rows));
    GW_TRY(gw_rows_check(t->rec.rows, &gw_epochs));
    if (c->eval_every > 0)
        GW_TRY(gw_rows_check(t->rec.rows, &gw_trainer_evaluations));
    if (c->run.compress_stats > 0)
        GW_TRY(gw_rows_check(t->rec.rows, &gw_codec_stats_table));
    if (c->run.collectives)
        GW_TRY(gw_rows_check(t->rec.rows, &gw_waits_collectives));
    return gw_rows_lack(t->rec.rows) ? gw_resume_lacks_rows(&t->resume, c->keep.strict) : GW_OK;
}

static bool trainer_rows_trains(const gw_trainer *t) {
    const gw_store_manifest *at = &t->resume.manifest;
    bool last = at->epoch == t->c->until.epochs && at->batch == gw_sampler_batches(t->sampler);
    return !last && !(t->c->until.steps > 0 && at->step >= t->c->until.steps);
}

/* Rows behind the mark are of steps that this run shall not have had: what tells of them goes. */
static void trainer_look_for_end(gw_trainer *t) {
    const char *dir = t->c->run.out;
    t->past.concludes = !trainer_rows_trains(t) && !gw_rows_beyond(t->rec.rows, GW_BATCHES);
    if (!t->past.concludes)
        return;
    t->rec.has_matrix = gw_matrix_read(dir, &t->past.traffic) == GW_OK;
    t->past.has_trace = gw_runfolder_has(dir, "trace.json");
    t->past.told = gw_runfolder_read(dir);
}

static gw_err trainer_open_rows(gw_trainer *t) {
    const gw_train_config *c = t->c;
    gw_runfolder_use use = gw_trainer_use(t);
    if (*t->resume.path)
        GW_TRY(trainer_check_rows(t));
    if (use == GW_RUNFOLDER_RESUME)
        trainer_look_for_end(t);
    GW_TRY(gw_recorder_replace(&t->rec, use));
    return c->eval_every > 0 ? gw_rows_open(t->rec.rows, &gw_trainer_evaluations,
                                            &t->epochs.evaluations_csv, NULL)
                             : GW_OK;
}

gw_err gw_trainer_open_rows(gw_trainer *t) {
    if (!t->c->run.out)
        return GW_OK;
    GW_TRY(gw_agree(t->comm, t->rank == 0 ? trainer_open_rows(t) : GW_OK));
    double news[] = {t->past.clock_s, t->past.has_trace, (double)t->at.evaluated};
    GW_TRY(gw_bcast(news, 3, MPI_DOUBLE, 0, t->comm));
    t->past.clock_s = news[0];
    t->past.has_trace = news[1] != 0;
    t->at.evaluated = (int64_t)news[2];
    return GW_OK;
}

/* In the folder's history: that the run went on, or that it began again after an interruption that
 * is noted there. */
static gw_err trainer_rows_note(const char *dir, const gw_resume *r, int ranks) {
    char utc[GW_UTC];
    json_t *all = NULL;
    GW_TRY(gw_history_read(dir, &all));
    bool news = *r->path || json_array_size(all) > 0;
    json_decref(all);
    if (!news)
        return GW_OK;
    gw_utc_now(utc);
    return gw_history_add(dir,
                          gw_json_object("event:s utc:s step:I path:t ranks:i changed:o dropped:o",
                                         "resumed", utc, r->manifest.step, r->path, ranks,
                                         gw_notes_json(&r->notes, GW_NOTE_CHANGED),
                                         gw_notes_json(&r->notes, GW_NOTE_DROPPED)));
}

static gw_err trainer_rows_reopen(gw_trainer *t) {
    if (gw_trainer_use(t) == GW_RUNFOLDER_RESUME) {
        GW_TRY(gw_resume_forget_later(&t->resume, t->c->run.out));
        GW_TRY(gw_runfolder_reopen(t->c->run.out, t->past.concludes));
    }
    return trainer_rows_note(t->c->run.out, &t->resume, t->ranks);
}

gw_err gw_trainer_reopened(gw_trainer *t) {
    return gw_agree(t->comm, t->rank == 0 && t->c->run.out ? trainer_rows_reopen(t) : GW_OK);
}
