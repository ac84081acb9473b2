/* Who may have a run's folder, and what gives way to them. */
#include "base/file.h"
#include "train/runfolder.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Files that only the end of a run writes; and those that grow with it. */
static const char *const ends[] = {"run.json", "trace.json", "matrix.csv",
                                   "algo.csv", "paired.csv", "model.gw"};
static const char *const growing[] = {"batches.csv", "epochs.csv", "collectives.csv", "codec.csv"};
enum {
    ENDS = sizeof ends / sizeof *ends,
    GROWING = sizeof growing / sizeof *growing,
    LONGEST = 4200
};

static gw_err make_dirs(const char *dir) {
    char path[4096];
    if (strlen(dir) >= sizeof path)
        return gw_fail(GW_ERR_INPUT, "--out: the path is too long");
    strcpy(path, dir);
    for (char *p = path + 1;; p++) {
        if (*p != '/' && *p != '\0')
            continue;
        char kept = *p;
        *p = '\0';
        if (mkdir(path, 0777) != 0 && errno != EEXIST)
            return gw_fail(GW_ERR_INPUT, "--out %s: cannot make %s: %s", dir, path,
                           strerror(errno));
        *p = kept;
        if (kept == '\0')
            return GW_OK;
    }
}

gw_runfolder_use gw_runfolder_use_of(const char *dir, bool overwrite, const char *resume) {
    char here[PATH_MAX], there[PATH_MAX];
    if (resume && strcmp(resume, "auto") == 0)
        return GW_RUNFOLDER_GO_ON;
    if (resume && realpath(dir, here) && realpath(resume, there)) {
        size_t len = strlen(here);
        if (strncmp(here, there, len) == 0 && (there[len] == '/' || there[len] == '\0'))
            return GW_RUNFOLDER_GO_ON;
    }
    return overwrite ? GW_RUNFOLDER_REPLACE : GW_RUNFOLDER_NEW;
}

/* The first of names[0..n) that the folder has, NULL: none. */
static const char *first_of(const char *dir, const char *const names[], int n, const char *end,
                            char path[LONGEST]) {
    for (int i = 0; i < n; i++) {
        snprintf(path, LONGEST, "%s/%s%s", dir, names[i], end);
        if (access(path, F_OK) == 0)
            return path + strlen(dir) + 1;
    }
    return NULL;
}

/* What tells that a run is in there, and that it is whole. */
static const char *evidence(const char *dir, char path[LONGEST], bool *whole) {
    const char *found = first_of(dir, ends, ENDS, "", path);
    if (!found)
        found = first_of(dir, growing, GROWING, "", path);
    *whole = found;
    return found ? found : first_of(dir, growing, GROWING, ".part", path);
}

gw_err gw_runfolder_claim(const char *dir, gw_runfolder_use use) {
    GW_TRY(make_dirs(dir));
    struct stat st;
    if (stat(dir, &st) != 0 || !S_ISDIR(st.st_mode))
        return gw_fail(GW_ERR_INPUT, "--out %s: not a folder", dir);
    if (access(dir, W_OK | X_OK) != 0)
        return gw_fail(GW_ERR_INPUT, "--out %s: cannot write there: %s", dir, strerror(errno));
    char path[LONGEST];
    bool whole;
    const char *found = evidence(dir, path, &whole);
    if (!found || use != GW_RUNFOLDER_NEW)
        return GW_OK;
    if (whole)
        return gw_fail(GW_ERR_INPUT,
                       "--out %s: holds a run already (%s): name another folder, or give "
                       "--overwrite",
                       dir, found);
    return gw_fail(GW_ERR_INPUT,
                   "--out %s: holds a run that was interrupted (%s): go on with it by --resume "
                   "auto, name another folder, or give --overwrite",
                   dir, found);
}

static gw_err remove_all(const char *dir, const char *const names[], int n, const char *end) {
    for (int i = 0; i < n; i++) {
        char path[LONGEST];
        snprintf(path, sizeof path, "%s/%s%s", dir, names[i], end);
        if (unlink(path) != 0 && errno != ENOENT)
            return gw_fail(GW_ERR_INPUT, "--out %s: cannot remove %s%s: %s", dir, names[i], end,
                           strerror(errno));
    }
    return GW_OK;
}

gw_err gw_runfolder_reopen(const char *dir) {
    GW_TRY(remove_all(dir, ends, ENDS, ""));
    return gw_file_sweep(dir, ends, ENDS);
}

gw_err gw_runfolder_clear(const char *dir, gw_runfolder_use use) {
    (void)use;
    GW_TRY(remove_all(dir, growing, GROWING, ""));
    GW_TRY(remove_all(dir, growing, GROWING, ".part"));
    GW_TRY(gw_file_sweep(dir, growing, GROWING));
    return gw_runfolder_reopen(dir);
}
