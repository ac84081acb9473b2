#include "folder/runfolder.h"

#include "base/file.h"
#include "base/hold.h"
#include "base/json.h"
#include "folder/history.h"
#include "folder/store.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Files that only the end of a run writes, first the one that says that it has ended; and those
 * that grow with it. */
static const char *const ends[] = {"run.json", "trace.json", "matrix.csv", "algo.csv", "model.gw"};
static const char *const growing[] = {"batches.csv", "epochs.csv", "evaluations.csv",
                                      "collectives.csv", "codec.csv"};
enum {
    ENDS = sizeof ends / sizeof *ends,
    GROWING = sizeof growing / sizeof *growing,
    LONGEST = 4200
};

static const gw_column columns[] = {
    GW_COLUMN(gw_epoch_row, "epoch", INT, epoch),
    GW_COLUMN(gw_epoch_row, "step", I64, step),
    GW_COLUMN_REAL(gw_epoch_row, "train_loss", train_loss, 9),
    GW_COLUMN_REAL(gw_epoch_row, "validation_loss", validation_loss, 9),
    GW_COLUMN_REAL(gw_epoch_row, "validation_accuracy", validation_accuracy, 9),
    GW_COLUMN_REAL(gw_epoch_row, "test_loss", test_loss, 9),
    GW_COLUMN_REAL(gw_epoch_row, "test_accuracy", test_accuracy, 9),
    GW_COLUMN_REAL(gw_epoch_row, "elapsed_s", elapsed_s, 9),
    GW_COLUMN_REAL(gw_epoch_row, "train_s", train_s, 9),
    GW_COLUMN_REAL(gw_epoch_row, "test_s", test_s, 9),
    GW_COLUMN(gw_epoch_row, "wire_bytes", U64, wire_bytes),
    GW_COLUMN(gw_epoch_row, "replica_hash", HASH, replica_hash),
};
const gw_table gw_epochs = GW_TABLE("epochs.csv", gw_epoch_row, columns);

static const gw_column of_evaluations[] = {
    GW_COLUMN(gw_epoch_row, "epoch", INT, epoch),
    GW_COLUMN(gw_epoch_row, "step", I64, step),
    GW_COLUMN_REAL(gw_epoch_row, "test_loss", test_loss, 9),
    GW_COLUMN_REAL(gw_epoch_row, "test_accuracy", test_accuracy, 9),
    GW_COLUMN_REAL(gw_epoch_row, "train_s", train_s, 9),
    GW_COLUMN(gw_epoch_row, "wire_bytes", U64, wire_bytes),
};
const gw_table gw_evaluations = GW_TABLE("evaluations.csv", gw_epoch_row, of_evaluations);

bool gw_runfolder_grows(const char *name) {
    for (int i = 0; i < GROWING; i++)
        if (strcmp(growing[i], name) == 0)
            return true;
    return false;
}

gw_runfolder_use gw_runfolder_use_of(const char *dir, bool overwrite, const char *resume,
                                     const char *found) {
    char own[LONGEST], there[PATH_MAX], here[PATH_MAX];
    snprintf(own, sizeof own, "%s/" GW_STORE_FOLDER, dir);
    if (*found && realpath(found, there) && realpath(own, here)) {
        size_t len = strlen(here); /* a run may lie within the folder of another */
        if (strncmp(there, here, len) == 0 && (there[len] == '/' || there[len] == '\0'))
            return GW_RUNFOLDER_RESUME;
    }
    if (!*found && resume && strcmp(resume, "auto") == 0)
        return GW_RUNFOLDER_AGAIN;
    return overwrite ? GW_RUNFOLDER_REPLACE : GW_RUNFOLDER_NEW;
}

/* The first of names[0..n) that the folder has, NULL: none. */
static const char *folder_first_of(const char *dir, const char *const names[], int n,
                                   const char *end, char path[LONGEST]) {
    for (int i = 0; i < n; i++) {
        snprintf(path, LONGEST, "%s/%s%s", dir, names[i], end);
        if (access(path, F_OK) == 0)
            return path + strlen(dir) + 1;
    }
    return NULL;
}

static gw_err folder_check_new(const char *dir) {
    char path[LONGEST];
    const char *found = folder_first_of(dir, ends, ENDS, "", path);
    if (!found)
        found = folder_first_of(dir, growing, GROWING, "", path);
    if (found)
        return gw_fail(GW_ERR_INPUT,
                       "--out %s: holds a run already (%s): name another folder, or give "
                       "--overwrite",
                       dir, found);
    snprintf(path, sizeof path, "%s/" GW_STORE_FOLDER, dir);
    found = gw_store_any(path) ? GW_STORE_FOLDER
                               : folder_first_of(dir, growing, GROWING, ".part", path);
    return found ? gw_fail(GW_ERR_INPUT,
                           "--out %s: holds a run that was interrupted (%s): resume it by "
                           "--resume auto, name another folder, or give --overwrite",
                           dir, found)
                 : GW_OK;
}

gw_err gw_runfolder_check(const char *dir, gw_runfolder_use use) {
    char path[LONGEST];
    GW_TRY(gw_hold_check(dir)); /* what is read below is what is held */
    gw_err e = use == GW_RUNFOLDER_NEW ? folder_check_new(dir) : GW_OK;
    /* A whole run has nothing to begin again for. (Checkpoints that cannot be used were refused
     * when they were looked for.) */
    const char *found =
        use == GW_RUNFOLDER_AGAIN ? folder_first_of(dir, ends, ENDS, "", path) : NULL;
    if (found)
        e = gw_fail(GW_ERR_INPUT,
                    "--resume auto: --out %s holds a run (%s) without a checkpoint to resume from: "
                    "name another folder, or give --overwrite without --resume",
                    dir, found);
    return e == GW_ERR_INPUT && gw_hold_check(dir) != GW_OK ? GW_ERR_LOST : e;
}

static gw_err folder_remove_all(const char *dir, const char *const names[], int n,
                                const char *end) {
    int folder;
    GW_TRY(gw_hold_open(dir, &folder));
    gw_err e = GW_OK;
    for (int i = 0; e == GW_OK && i < n; i++) {
        char name[64];
        snprintf(name, sizeof name, "%s%s", names[i], end);
        e = gw_hold_check(dir); /* each may be another run's by now */
        if (e == GW_OK && unlinkat(folder, name, 0) != 0 && errno != ENOENT)
            e = gw_fail(GW_ERR_INPUT, "--out %s: cannot remove %s: %s", dir, name, strerror(errno));
    }
    close(folder);
    return e;
}

gw_err gw_runfolder_reopen(const char *dir, bool concludes) {
    GW_TRY(folder_remove_all(dir, ends, concludes ? 1 : ENDS, ""));
    return gw_file_sweep(dir, ends, ENDS);
}

bool gw_runfolder_has(const char *dir, const char *name) {
    char path[LONGEST];
    return folder_first_of(dir, &name, 1, "", path) != NULL;
}

json_t *gw_runfolder_read(const char *dir) {
    enum { LIMIT = 1 << 26 };
    char path[LONGEST], *text = NULL;
    size_t len;
    snprintf(path, sizeof path, "%s/%s", dir, ends[0]);
    if (gw_file_read(path, LIMIT, &text, &len) != GW_OK)
        return NULL;
    json_t *run = json_loadb(text, len, 0, NULL);
    free(text);
    return run;
}

gw_err gw_runfolder_write(const char *dir, json_t *run) {
    gw_file *file = NULL;
    gw_err e = gw_file_create(&file, dir, ends[0]);
    if (e == GW_OK)
        return gw_json_commit(file, run, JSON_INDENT(2) | JSON_REAL_PRECISION(9), ends[0]);
    json_decref(run);
    return e;
}

gw_err gw_runfolder_clear(const char *dir, gw_runfolder_use use) {
    static const char *const history[] = {GW_HISTORY};
    char path[LONGEST];
    GW_TRY(gw_runfolder_check(dir, use)); /* whatever came there since without a claim stays */
    snprintf(path, sizeof path, "%s/" GW_STORE_FOLDER, dir);
    GW_TRY(gw_store_clear(path));
    GW_TRY(folder_remove_all(dir, growing, GROWING, ""));
    GW_TRY(folder_remove_all(dir, growing, GROWING, ".part"));
    GW_TRY(gw_file_sweep(dir, growing, GROWING));
    if (use != GW_RUNFOLDER_AGAIN)
        GW_TRY(folder_remove_all(dir, history, 1, ""));
    return gw_runfolder_reopen(dir, false);
}
