#include "base/rows.h"

#include "base/file.h"
#include "base/hold.h"
#include "base/mem.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MOST = 8 };

typedef struct growing {
    const char *name;
    gw_file *file; /* NULL: committed */
} growing;

struct gw_rows {
    char *dir, *from, *by;
    bool parts, lack;
    json_t *marks; /* NULL: nothing to resume */
    growing files[MOST];
    int n;
};

gw_err gw_rows_new(gw_rows **out, const char *dir, bool parts) {
    gw_rows *r = NULL;
    GW_TRY(gw_alloc(&r, 1, sizeof *r));
    r->parts = parts;
    r->dir = strdup(dir);
    gw_err e = r->dir ? GW_OK : gw_fail(GW_ERR_NOMEM, "out of memory");
    GW_OPENED(e, out, r, gw_rows_close);
}

gw_err gw_rows_resume(gw_rows *r, const char *from, const json_t *marks, const char *by) {
    const char *name;
    json_t *bytes;
    if (!json_is_object(marks))
        return gw_fail(GW_ERR_INPUT, "the checkpoint does not say how long the files of rows were");
    json_object_foreach((json_t *)marks, name, bytes) {
        bool file = *name && *name != '.' && !strchr(name, '/'); /* the name becomes a path */
        if (!file || !json_is_integer(bytes) || json_integer_value(bytes) < 0)
            return gw_fail(GW_ERR_INPUT, "the checkpoint marks '%s', which is not a file of rows",
                           name);
    }
    r->marks = json_deep_copy(marks);
    r->from = from ? strdup(from) : NULL;
    r->by = by ? strdup(by) : NULL;
    if (!r->marks || (from && !r->from) || (by && !r->by))
        return gw_fail(GW_ERR_NOMEM, "out of memory");
    json_object_foreach(r->marks, name, bytes) {
        if (!from) /* including those that only gw_rows_finish needs */
            GW_TRY(gw_file_part_check(r->dir, name, json_integer_value(bytes)));
    }
    return GW_OK;
}

/* Return the path of a marked file's rows, DIR/NAME.part or else DIR/NAME; free(). NULL: there is
 * neither, it was not marked, or out of memory. */
static char *rows_source(const gw_rows *r, const char *name) {
    static const char *const ends[] = {".part", ""};
    for (int i = 0; i < 2 && json_object_get(r->marks, name); i++) {
        char *path = NULL;
        if (asprintf(&path, "%s/%s%s", r->from ? r->from : r->dir, name, ends[i]) < 0)
            return NULL;
        if (access(path, F_OK) == 0)
            return path;
        free(path);
    }
    return NULL;
}

bool gw_rows_continue(const gw_rows *r, const char *name) {
    char *path = rows_source(r, name);
    bool there = path != NULL;
    free(path);
    return there;
}

/* *kept: it exists and can be continued. A file that another folder lacks altogether starts empty.
 * Rows under another header would be misread. */
static gw_err rows_look(gw_rows *r, const gw_table *t, bool *kept) {
    const json_t *mark = json_object_get(r->marks, t->file);
    const char *dir = r->from ? r->from : r->dir;
    char *path = rows_source(r, t->file);
    bool lacking = mark && r->from && !path, headed = true;
    FILE *in = NULL;
    size_t len;
    *kept = mark && !lacking;
    r->lack |= lacking;
    gw_err e = *kept ? gw_file_part_check(dir, t->file, json_integer_value(mark)) : GW_OK;
    if (e == GW_OK && path)
        e = gw_file_open(path, &in, &len);
    if (in) {
        headed = gw_table_headed(t, in);
        fclose(in);
    }
    if (!headed && r->by)
        e = gw_fail(GW_ERR_INPUT,
                    "cannot resume %s: gradwire %s wrote it, whose columns are not those of this "
                    "version: resume with that one, or begin a new run in another folder",
                    path, r->by);
    else if (!headed)
        e = gw_fail(GW_ERR_INPUT,
                    "cannot resume %s: its columns are not those of this run: give the options "
                    "(--papi-group, --papi-events, --profile) of the run that it comes from",
                    path);
    free(path);
    return e;
}

gw_err gw_rows_check(gw_rows *r, const gw_table *t) {
    bool kept;
    return rows_look(r, t, &kept);
}

gw_err gw_rows_open(gw_rows *r, const gw_table *t, FILE **to, bool *kept) {
    gw_file *file = NULL;
    bool old;
    int64_t bytes = json_integer_value(json_object_get(r->marks, t->file));
    if (r->n == MOST)
        return gw_fail(GW_ERR_INTERNAL, "%s: too many files of rows", t->file);
    GW_TRY(rows_look(r, t, &old)); /* before truncating */
    if (!r->parts)
        GW_TRY(gw_file_create(&file, r->dir, t->file));
    else if (!old)
        GW_TRY(gw_file_create_part(&file, r->dir, t->file));
    else if (r->from)
        GW_TRY(gw_file_copy_part(&file, r->dir, r->from, t->file, bytes));
    else
        GW_TRY(gw_file_resume_part(&file, r->dir, t->file, bytes));
    r->files[r->n++] = (growing){t->file, file};
    *to = gw_file_stream(file);
    if (kept)
        *kept = old;
    if (!old)
        gw_table_header(t, *to);
    return GW_OK;
}

bool gw_rows_beyond(const gw_rows *r, const char *name) {
    const json_t *mark = json_object_get(r->marks, name);
    char *path = rows_source(r, name);
    struct stat st;
    bool beyond = path && stat(path, &st) == 0 && st.st_size > json_integer_value(mark);
    free(path);
    return beyond;
}

bool gw_rows_lack(const gw_rows *r) {
    return r->lack;
}

static bool rows_was_opened(const gw_rows *r, const char *name) {
    for (int i = 0; i < r->n; i++)
        if (strcmp(r->files[i].name, name) == 0)
            return true;
    return false;
}

gw_err gw_rows_mark(gw_rows *r, json_t **marks) {
    const char *name;
    json_t *all = json_object(), *mark;
    bool bad = !all;
    json_object_foreach(r->from ? NULL : r->marks, name, mark) {
        if (!rows_was_opened(r, name)) /* this start does not use it: a later one may */
            bad |= json_object_set(all, name, mark) != 0;
    }
    gw_err e = GW_OK;
    for (int i = 0; e == GW_OK && i < r->n; i++) {
        int64_t bytes = 0;
        if (!r->files[i].file)
            continue;
        e = gw_file_mark(r->files[i].file, &bytes);
        bad |= json_object_set_new(all, r->files[i].name, json_integer(bytes)) != 0;
    }
    if (e == GW_OK && bad)
        e = gw_fail(GW_ERR_NOMEM, "out of memory");
    GW_OPENED(e, marks, all, json_decref);
}

gw_err gw_rows_sync(gw_rows *r) {
    for (int i = 0; i < r->n; i++)
        if (r->files[i].file)
            GW_TRY(gw_file_sync(r->files[i].file));
    return GW_OK;
}

gw_err gw_rows_held(const gw_rows *r) {
    return gw_hold_check(r->dir);
}

gw_err gw_rows_commit(gw_rows *r, const gw_table *t) {
    for (int i = 0; i < r->n; i++)
        if (r->files[i].file && strcmp(r->files[i].name, t->file) == 0)
            return gw_file_commit(&r->files[i].file);
    return GW_OK;
}

gw_err gw_rows_finish(gw_rows *r) {
    const char *name;
    json_t *mark;
    if (r->from)
        return GW_OK;
    json_object_foreach(r->marks, name, mark) {
        gw_file *file = NULL;
        if (rows_was_opened(r, name))
            continue;
        GW_TRY(gw_file_resume_part(&file, r->dir, name, json_integer_value(mark)));
        GW_TRY(gw_file_commit(&file));
    }
    return GW_OK;
}

void gw_rows_close(gw_rows *r) {
    if (!r)
        return;
    for (int i = 0; i < r->n; i++)
        gw_file_abandon(r->files[i].file);
    json_decref(r->marks);
    free(r->dir);
    free(r->from);
    free(r->by);
    free(r);
}
