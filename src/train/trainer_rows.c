/* The files of rows of a run, and what a start of it needs to go on with those of an earlier one.
 */
#include "train/trainer_parts.h"

#include "base/wait.h"

#include <string.h>

/* One look at the checkpoint's marks, on rank 0. */
static gw_err take_up(gw_trainer *t) {
    const char *utc = json_string_value(json_object_get(t->marks, "started_utc"));
    const json_t *clock = json_object_get(t->marks, "clock_s");
    if (!utc || strlen(utc) >= sizeof t->started_utc || !json_is_number(clock) ||
        json_number_value(clock) < 0)
        return gw_fail(GW_ERR_INPUT, "the checkpoint lacks its marks of the run's folder");
    snprintf(t->started_utc, sizeof t->started_utc, "%s", utc);
    t->clock_s = json_number_value(clock);
    return gw_rows_resume(t->rows, t->rows_from, json_object_get(t->marks, "files"));
}

static gw_err open_rows(gw_trainer *t) {
    const gw_train_config *c = t->c;
    bool goes_on = t->marks && !t->rows_from;
    gw_runfolder_use use = gw_runfolder_use_of(c->out, c->overwrite, c->resume);
    if (!goes_on)
        GW_TRY(gw_runfolder_clear(c->out, use));
    GW_TRY(gw_rows_new(&t->rows, c->out, c->checkpoint_steps || c->checkpoint_s > 0 || t->marks));
    if (t->marks)
        GW_TRY(take_up(t));
    return gw_epochs_open(&t->epochs_csv, t->rows);
}

gw_err gw_trainer_open_rows(gw_trainer *t) {
    if (!t->c->out)
        return GW_OK;
    GW_TRY(
        gw_agree(t->comm, t->rank == 0 ? open_rows(t) : gw_rows_new(&t->rows, t->c->out, false)));
    return gw_bcast(&t->clock_s, 1, MPI_DOUBLE, 0, t->comm);
}

gw_err gw_trainer_reopened(gw_trainer *t) {
    bool goes_on = t->marks && !t->rows_from;
    return gw_agree(t->comm, goes_on && t->rows ? gw_runfolder_reopen(t->c->out) : GW_OK);
}

gw_err gw_trainer_marks(const gw_trainer *t, json_t **marks) {
    json_t *files = NULL;
    GW_TRY(gw_rows_mark(t->rows, &files));
    *marks = json_pack("{s:s, s:f, s:o}", "started_utc", t->started_utc, "clock_s", gw_ledger_now(),
                       "files", files);
    return *marks ? GW_OK : gw_fail(GW_ERR_NOMEM, "out of memory");
}
