#include "folder/store.h"

#include "base/file.h"
#include "base/hold.h"
#include "base/io.h"
#include "base/mem.h"
#include "base/text.h"
#include "base/version.h"
#include "folder/history.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <zlib.h>

#define PREFIX "step-"
#define ASIDE  ".old" /* behind the name of one that is being replaced */
enum { DIGITS = 12, MOST_DIGITS = 19, LAST_LINE = 6 + 8 + 1 /* "crc32 xxxxxxxx\n" */ };

/* ---- names ---- */

gw_err gw_store_path(char out[GW_STORE_PATH], const char *dir, const char *name) {
    if (snprintf(out, GW_STORE_PATH, "%s/%s", dir, name) >= GW_STORE_PATH)
        return gw_fail(GW_ERR_INPUT, "%.64s..: this path is too long", dir);
    return GW_OK;
}

static void store_step_name(int64_t step, char out[GW_STORE_NAME]) {
    snprintf(out, GW_STORE_NAME, PREFIX "%0*lld", DIGITS, (long long)step);
}

/* Whether a complete checkpoint may have this name: step-DIGITS or step-DIGITS.old. */
static bool store_is_name(const char *name) {
    size_t digits = 0;
    if (strncmp(name, PREFIX, strlen(PREFIX)) != 0)
        return false;
    name += strlen(PREFIX);
    while (isdigit((unsigned char)name[digits]))
        digits++;
    return digits >= DIGITS && digits <= MOST_DIGITS &&
           (name[digits] == '\0' || strcmp(name + digits, ASIDE) == 0);
}

static gw_err store_temporary_name(const char *name, char out[GW_STORE_NAME]) {
    char token[GW_FILE_TOKEN];
    GW_TRY(gw_file_token(token));
    snprintf(out, GW_STORE_NAME, ".%.40s.%s.tmp", name, token);
    return GW_OK;
}

/* The folder that `path` lies in. */
static void store_parent(const char *path, char out[GW_STORE_PATH]) {
    size_t len = strlen(path);
    while (len > 1 && path[len - 1] == '/')
        len--;
    while (len > 0 && path[len - 1] != '/')
        len--;
    while (len > 1 && path[len - 1] == '/')
        len--;
    snprintf(out, GW_STORE_PATH, "%.*s", len ? (int)len : 1, len ? path : ".");
}

void gw_store_rank_name(int rank, char name[GW_STORE_NAME]) {
    snprintf(name, GW_STORE_NAME, "rank-%05d.gw", rank);
}

static void store_last_line(const char *text, size_t len, char out[LAST_LINE + 1]) {
    uint32_t crc = (uint32_t)crc32_z(crc32_z(0, NULL, 0), (const Bytef *)text, len);
    snprintf(out, LAST_LINE + 1, "crc32 %08" PRIx32 "\n", crc);
}

/* ---- a manifest out of its text ---- */

/* Say what jansson found wrong, with nothing in it that a terminal takes for a command. */
static gw_err store_not_as_expected(const char *where, const json_error_t *error) {
    char plain[sizeof error->text];
    gw_text_plain(plain, sizeof plain, error->text);
    return gw_fail(GW_ERR_INPUT, "%s: not a manifest that this gradwire reads: %s", where, plain);
}

static gw_err store_read_file(json_t *entry, const char *where, gw_store_file *f) {
    const char *name, *crc;
    json_int_t bytes;
    json_error_t error;
    char plain[GW_STORE_NAME];
    if (json_unpack_ex(entry, &error, JSON_STRICT, "{s:s, s:I, s:s}", "name", &name, "bytes",
                       &bytes, "crc32", &crc) != 0)
        return store_not_as_expected(where, &error);
    static const char plain_ones[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
    gw_text_plain(plain, sizeof plain, name);
    if (!*name || *name == '.' || strlen(name) >= GW_STORE_NAME || name[strspn(name, plain_ones)] ||
        strcmp(name, GW_STORE_MANIFEST) == 0)
        return gw_fail(GW_ERR_INPUT, "%s: '%s' cannot be a checkpoint's file", where, plain);
    if (bytes < 0 || strlen(crc) != 8 || strspn(crc, "0123456789abcdef") != 8)
        return gw_fail(GW_ERR_INPUT, "%s: %s must have 0 bytes or more and a crc32 of 8 digits",
                       where, name);
    gw_text_copy(f->name, sizeof f->name, name);
    f->bytes = (uint64_t)bytes;
    f->crc32 = (uint32_t)strtoul(crc, NULL, 16);
    return GW_OK;
}

static int store_by_name(const void *a, const void *b) {
    return strcmp(((const gw_store_file *)a)->name, ((const gw_store_file *)b)->name);
}

/* Sorted by name: a duplicate stands beside its twin, and each rank's files are found quickly. */
static gw_err store_read_files(const json_t *list, const char *where, gw_store_manifest *m) {
    size_t n = json_array_size(list);
    if (!json_is_array(list) || n > GW_STORE_MOST_FILES)
        return gw_fail(GW_ERR_INPUT, "%s: 'files' must be a list of at most %d", where,
                       GW_STORE_MOST_FILES);
    GW_TRY(gw_alloc(&m->files, n, sizeof *m->files));
    m->n_files = n;
    for (size_t i = 0; i < n; i++) {
        GW_TRY(store_read_file(json_array_get(list, i), where, &m->files[i]));
        if (i > 0 && store_by_name(&m->files[i - 1], &m->files[i]) >= 0)
            return gw_fail(GW_ERR_INPUT, "%s: 'files': %s after %s, must be in order", where,
                           m->files[i].name, m->files[i - 1].name);
    }
    for (int rank = 0; rank < m->ranks; rank++) {
        gw_store_file wanted;
        gw_store_rank_name(rank, wanted.name);
        if (!bsearch(&wanted, m->files, n, sizeof wanted, store_by_name))
            return gw_fail(GW_ERR_INPUT, "%s: %d ranks, but no file %s", where, m->ranks,
                           wanted.name);
    }
    return GW_OK;
}

static gw_err store_read_top(json_t *top, const char *where, gw_store_manifest *m) {
    json_int_t schema, serial, step, epoch, batch, ranks;
    const char *utc, *gradwire;
    json_t *facts, *files;
    json_error_t error;
    if (json_unpack(top, "{s:I}", "schema", &schema) == 0 && schema != GW_STORE_SCHEMA)
        return gw_fail(GW_ERR_INPUT, "%s: schema %lld, this gradwire reads %d", where,
                       (long long)schema, GW_STORE_SCHEMA);
    if (json_unpack_ex(top, &error, JSON_STRICT,
                       "{s:I, s:I, s:s, s:s, s:I, s:I, s:I, s:I, s:o, s:o}", "schema", &schema,
                       "serial", &serial, "utc", &utc, "gradwire", &gradwire, "step", &step,
                       "epoch", &epoch, "batch", &batch, "ranks", &ranks, "facts", &facts, "files",
                       &files) != 0)
        return store_not_as_expected(where, &error);
    if (serial < 1 || serial == INT64_MAX || step < 0 || epoch < 1 || epoch > INT_MAX ||
        batch < 0 || ranks < 1 || ranks > GW_STORE_MOST_FILES)
        return gw_fail(GW_ERR_INPUT,
                       "%s: serial %lld, step %lld, epoch %lld, batch %lld, %lld ranks: one is out "
                       "of range",
                       where, (long long)serial, (long long)step, (long long)epoch,
                       (long long)batch, (long long)ranks);
    if (!json_is_object(facts))
        return gw_fail(GW_ERR_INPUT, "%s: 'facts' must be an object", where);
    *m = (gw_store_manifest){.serial = serial,
                             .step = step,
                             .epoch = (int)epoch,
                             .batch = batch,
                             .ranks = (int)ranks,
                             .facts = json_incref(facts)};
    gw_text_plain(m->utc, sizeof m->utc, utc);
    gw_text_plain(m->gradwire, sizeof m->gradwire, gradwire);
    return store_read_files(files, where, m);
}

gw_err gw_store_parse(const char *text, size_t len, const char *where, gw_store_manifest *m) {
    char expected[LAST_LINE + 1];
    json_error_t error;
    *m = (gw_store_manifest){0};
    if (len > GW_STORE_MOST_BYTES)
        return gw_fail(GW_ERR_INPUT, "%s: %zu bytes, a manifest has at most %zu", where, len,
                       GW_STORE_MOST_BYTES);
    if (len < LAST_LINE)
        return gw_fail(GW_ERR_INPUT, "%s: damaged: only %zu bytes", where, len);
    len -= LAST_LINE;
    store_last_line(text, len, expected);
    if (memcmp(text + len, expected, LAST_LINE) != 0)
        return gw_fail(GW_ERR_INPUT,
                       "%s: damaged: its last line is not the checksum of what is before", where);
    json_t *top = json_loadb(text, len, JSON_REJECT_DUPLICATES, &error);
    if (!top) {
        char plain[sizeof error.text];
        gw_text_plain(plain, sizeof plain, error.text);
        return gw_fail(GW_ERR_INPUT, "%s: line %d: %s", where, error.line, plain);
    }
    gw_err e = store_read_top(top, where, m);
    json_decref(top);
    if (e != GW_OK)
        gw_store_manifest_free(m);
    return e;
}

void gw_store_manifest_free(gw_store_manifest *m) {
    json_decref(m->facts);
    free(m->files);
    *m = (gw_store_manifest){0};
}

/* ---- and back ---- */

static json_t *store_files_json(const gw_store_manifest *m) {
    json_t *list = json_array();
    gw_store_file *sorted = NULL;
    if (gw_alloc(&sorted, m->n_files, sizeof *sorted) == GW_OK) {
        memcpy(sorted, m->files, m->n_files * sizeof *sorted);
        qsort(sorted, m->n_files, sizeof *sorted, store_by_name);
    }
    int bad = !list || !sorted;
    for (size_t i = 0; !bad && i < m->n_files; i++) {
        char crc[9];
        snprintf(crc, sizeof crc, "%08" PRIx32, sorted[i].crc32);
        bad = json_array_append_new(list,
                                    json_pack("{s:s, s:I, s:s}", "name", sorted[i].name, "bytes",
                                              (json_int_t)sorted[i].bytes, "crc32", crc)) != 0;
    }
    free(sorted);
    if (bad) {
        json_decref(list);
        return NULL;
    }
    return list;
}

gw_err gw_store_print(const gw_store_manifest *m, char **text, size_t *len) {
    char line[LAST_LINE + 1];
    gw_store_manifest back;
    if (!json_is_object(m->facts))
        return gw_fail(GW_ERR_INTERNAL, "a checkpoint's facts must be an object");
    json_t *files = store_files_json(m);
    json_t *top = files ? json_pack("{s:i, s:I, s:s, s:s, s:I, s:i, s:I, s:i, s:O, s:o}", "schema",
                                    GW_STORE_SCHEMA, "serial", (json_int_t)m->serial, "utc", m->utc,
                                    "gradwire", m->gradwire, "step", (json_int_t)m->step, "epoch",
                                    m->epoch, "batch", (json_int_t)m->batch, "ranks", m->ranks,
                                    "facts", m->facts, "files", files)
                        : NULL;
    char *json = top ? json_dumps(top, JSON_INDENT(1)) : NULL, *all = NULL;
    json_decref(top);
    size_t n = json ? strlen(json) + 1 : 0; /* with a '\n' */
    if (!json || gw_alloc(&all, n + LAST_LINE + 1, 1) != GW_OK) {
        free(json);
        return gw_fail(GW_ERR_NOMEM, "out of memory for a checkpoint's manifest");
    }
    memcpy(all, json, n - 1);
    free(json);
    all[n - 1] = '\n';
    store_last_line(all, n, line);
    memcpy(all + n, line, LAST_LINE);
    gw_err e = gw_store_parse(all, n + LAST_LINE, "the manifest to be written", &back);
    if (e != GW_OK) {
        free(all);
        return e == GW_ERR_INPUT ? gw_fail(GW_ERR_INTERNAL, "%s", gw_err_text()) : e;
    }
    gw_store_manifest_free(&back);
    *text = all;
    *len = n + LAST_LINE;
    return GW_OK;
}

/* ---- removing ---- */

/* A checkpoint's folder, complete or not. Without its manifest nobody takes the rest for one. */
static gw_err store_remove_folder(const char *ckpt_dir, const char *name) {
    return gw_hold_remove(ckpt_dir, name, GW_STORE_MANIFEST);
}

/* Removes a complete checkpoint: it is hidden first, so that no half of one is ever seen. */
static gw_err store_discard(const char *ckpt_dir, const char *name) {
    char temporary[GW_STORE_NAME];
    int why;
    GW_TRY(store_temporary_name(name, temporary));
    gw_err e = gw_hold_rename(ckpt_dir, name, temporary, &why);
    if (why != 0)
        return why == ENOENT ? GW_OK : e;
    GW_TRY(store_remove_folder(ckpt_dir, temporary));
    return e;
}

void gw_store_abandon(const char *temp) {
    char ckpt_dir[GW_STORE_PATH];
    store_parent(temp, ckpt_dir);
    if (*temp)
        store_remove_folder(ckpt_dir, strrchr(temp, '/') + 1);
}

/* Whether `entry` is .step-DIGITS.TOKEN.tmp. */
static bool store_left_over(const char *entry) {
    char name[GW_STORE_NAME];
    if (entry[0] != '.' || strlen(entry) >= sizeof name)
        return false;
    gw_text_copy(name, sizeof name, entry + 1);
    for (int cut = 0; cut < 2; cut++) { /* ".tmp", then the token */
        char *dot = strrchr(name, '.');
        if (!dot)
            return false;
        *dot = '\0';
    }
    return store_is_name(name) && gw_file_left_over(entry, name);
}

/* All that a folder has under names that `is` knows; no folder, nothing. */
static gw_err store_each(const char *ckpt_dir, bool (*is)(const char *name),
                         gw_err (*one)(void *ctx, const char *ckpt_dir, const char *name),
                         void *ctx) {
    DIR *folder = NULL;
    gw_err e = gw_file_list(ckpt_dir, &folder);
    if (e == GW_ERR_INPUT && errno == ENOENT)
        return GW_OK;
    for (struct dirent *entry; e == GW_OK && folder && (entry = readdir(folder)) != NULL;)
        if (is(entry->d_name))
            e = one(ctx, ckpt_dir, entry->d_name);
    if (folder)
        closedir(folder);
    return e;
}

static gw_err store_sweep_away(void *none, const char *ckpt_dir, const char *name) {
    (void)none;
    gw_err e = store_remove_folder(ckpt_dir, name);
    return e == GW_ERR_IO ? gw_fail(GW_ERR_INPUT, "%s", gw_err_text()) : e;
}

gw_err gw_store_sweep(const char *ckpt_dir) {
    return store_each(ckpt_dir, store_left_over, store_sweep_away, NULL);
}

/* ---- reading ---- */

static gw_err store_read_manifest(const char *path, gw_store_manifest *m) {
    char manifest[GW_STORE_PATH];
    char *text = NULL;
    size_t len;
    *m = (gw_store_manifest){0};
    GW_TRY(gw_store_path(manifest, path, GW_STORE_MANIFEST));
    GW_TRY(gw_file_read(manifest, GW_STORE_MOST_BYTES, &text, &len));
    gw_err e = gw_store_parse(text, len, manifest, m);
    free(text);
    return e;
}

/* Whether all files are there with their sizes: what can be seen without reading them. `e` is the
 * error otherwise. */
static gw_err store_check_sizes(const char *path, const gw_store_manifest *m, gw_err e) {
    for (size_t i = 0; i < m->n_files; i++) {
        char file[GW_STORE_PATH];
        struct stat st;
        GW_TRY(gw_store_path(file, path, m->files[i].name));
        if (stat(file, &st) != 0)
            return gw_fail(e, "%s: %s", file, strerror(errno));
        if (!S_ISREG(st.st_mode))
            return gw_fail(e, "%s: not a regular file", file);
        if ((uint64_t)st.st_size != m->files[i].bytes)
            return gw_fail(e, "%s: damaged: %lld bytes, written were %llu", file,
                           (long long)st.st_size, (unsigned long long)m->files[i].bytes);
    }
    return GW_OK;
}

gw_err gw_store_open(const char *path, gw_store_manifest *m) {
    GW_TRY(store_read_manifest(path, m));
    gw_err e = store_check_sizes(path, m, GW_ERR_INPUT);
    for (size_t i = 0; e == GW_OK && i < m->n_files; i++) {
        char file[GW_STORE_PATH];
        e = gw_store_path(file, path, m->files[i].name);
        GW_THEN(e, gw_io_check(file, m->files[i].bytes, m->files[i].crc32));
    }
    if (e != GW_OK)
        gw_store_manifest_free(m);
    return e;
}

/* ---- all of a folder ---- */

typedef struct found {
    char name[GW_STORE_NAME];
    int64_t serial, step; /* -1: its manifest cannot be read */
    bool whole;           /* by names and sizes */
} found;

typedef struct listing {
    found *all;
    size_t n;
    int room;
} listing;

/* Damaged ones first, then the newest; by step where copying made two of a serial. */
static int store_newest_first(const void *a, const void *b) {
    const found *x = a, *y = b;
    if (x->whole != y->whole)
        return x->whole ? 1 : -1;
    if (x->serial != y->serial)
        return x->serial < y->serial ? 1 : -1;
    if (x->step != y->step)
        return x->step < y->step ? 1 : -1;
    return strcmp(x->name, y->name);
}

static gw_err store_add(void *to, const char *ckpt_dir, const char *name) {
    listing *l = to;
    GW_TRY(gw_grow(&l->all, &l->room, (int)l->n + 1, sizeof *l->all));
    char path[GW_STORE_PATH];
    gw_store_manifest m;
    found *f = &l->all[l->n];
    *f = (found){.serial = -1, .step = -1};
    gw_text_copy(f->name, sizeof f->name, name);
    GW_TRY(gw_store_path(path, ckpt_dir, name));
    gw_err e = store_read_manifest(path, &m);
    if (e == GW_OK) {
        f->serial = m.serial;
        f->step = m.step;
        f->whole = store_check_sizes(path, &m, GW_ERR_INPUT) == GW_OK;
        gw_store_manifest_free(&m);
    }
    l->n++;
    return e == GW_ERR_INPUT ? GW_OK : e;
}

/* All complete checkpoints in order, sought by name and taken as `whole` by their manifests; no
 * folder, none. free(l->all) in any case. */
static gw_err store_list(listing *l, const char *ckpt_dir) {
    *l = (listing){0};
    gw_err e = store_each(ckpt_dir, store_is_name, store_add, l);
    if (l->n > 0)
        qsort(l->all, l->n, sizeof *l->all, store_newest_first);
    return e;
}

bool gw_store_any(const char *ckpt_dir) {
    listing l;
    store_list(&l, ckpt_dir);
    free(l.all);
    return l.n > 0;
}

gw_err gw_store_clear(const char *ckpt_dir) {
    char parent[GW_STORE_PATH];
    listing l;
    GW_TRY(gw_store_sweep(ckpt_dir));
    gw_err e = store_list(&l, ckpt_dir);
    for (size_t i = 0; e == GW_OK && i < l.n; i++)
        e = store_discard(ckpt_dir, l.all[i].name);
    free(l.all);
    store_parent(ckpt_dir, parent);
    GW_THEN(e, gw_hold_remove(parent, strrchr(ckpt_dir, '/') + 1, NULL));
    return e;
}

gw_err gw_store_forget_later(const char *ckpt_dir, int64_t serial, int *removed) {
    listing l;
    *removed = 0;
    gw_err e = store_list(&l, ckpt_dir);
    for (size_t i = 0; e == GW_OK && i < l.n; i++) {
        char path[GW_STORE_PATH];
        gw_store_manifest m;
        if (l.all[i].serial <= serial || gw_store_path(path, ckpt_dir, l.all[i].name) != GW_OK ||
            gw_store_open(path, &m) != GW_OK)
            continue;
        gw_store_manifest_free(&m);
        e = store_discard(ckpt_dir, l.all[i].name);
        *removed += e == GW_OK;
    }
    free(l.all);
    return e;
}

gw_err gw_store_newest(const char *ckpt_dir, gw_store_manifest *m, char path[GW_STORE_PATH],
                       char *skipped, size_t room) {
    listing l;
    bool open = false;
    *m = (gw_store_manifest){0};
    path[0] = skipped[0] = '\0';
    gw_err e = store_list(&l, ckpt_dir);
    for (size_t i = 0; e == GW_OK && !open && i < l.n; i++) {
        e = gw_store_path(path, ckpt_dir, l.all[i].name);
        GW_THEN(e, gw_store_open(path, m));
        open = e == GW_OK;
        if (e == GW_ERR_INPUT) {
            size_t len = strlen(skipped);
            if (len > 0 && len + 1 < room)
                skipped[len++] = '\n';
            gw_text_copy(skipped + len, room - len, gw_err_text());
            e = GW_OK;
        }
    }
    free(l.all);
    if (!open)
        path[0] = '\0';
    return e;
}

/* ---- writing ---- */

gw_err gw_store_begin(const char *ckpt_dir, int64_t step, char temp[GW_STORE_PATH]) {
    char name[GW_STORE_NAME], temporary[GW_STORE_NAME], parent[GW_STORE_PATH];
    store_step_name(step, name);
    store_parent(ckpt_dir, parent);
    GW_TRY(store_temporary_name(name, temporary));
    GW_TRY(gw_store_path(temp, ckpt_dir, temporary));
    GW_TRY(gw_hold_make(parent, strrchr(ckpt_dir, '/') + 1));
    return gw_hold_make(ckpt_dir, temporary);
}

static gw_err store_write_manifest(const char *temp, const gw_store_manifest *m) {
    char *text = NULL;
    size_t len;
    gw_file *f = NULL;
    GW_TRY(store_check_sizes(temp, m, GW_ERR_IO));
    GW_TRY(gw_store_print(m, &text, &len));
    gw_err e = gw_file_create(&f, temp, GW_STORE_MANIFEST);
    if (e == GW_OK && fwrite(text, 1, len, gw_file_stream(f)) != len) {
        e = gw_fail(GW_ERR_IO, "cannot write %s/%s: %s", temp, GW_STORE_MANIFEST, strerror(errno));
        gw_file_abandon(f);
    } else if (e == GW_OK) {
        e = gw_file_commit(&f);
    }
    free(text);
    return e;
}

/* Makes way at `name`. A complete checkpoint is set aside under a name by which it is still found;
 * a damaged one has nothing to lose. */
static gw_err store_make_way(const char *ckpt_dir, const char *name, const char *path) {
    char old[GW_STORE_NAME];
    struct stat st;
    int why;
    gw_store_manifest m;
    if (lstat(path, &st) != 0)
        return GW_OK;
    gw_err e = gw_store_open(path, &m);
    if (e == GW_ERR_INPUT)
        return store_remove_folder(ckpt_dir, name);
    GW_TRY(e);
    gw_store_manifest_free(&m);
    snprintf(old, sizeof old, "%.40s" ASIDE, name);
    GW_TRY(store_discard(ckpt_dir, old)); /* what is at `path` replaced it long ago */
    return gw_hold_rename(ckpt_dir, name, old, &why);
}

static const char *const version = GW_VERSION " (" GW_COMMIT ")";

const char *gw_store_other(const gw_store_manifest *m) {
    return strcmp(m->gradwire, version) == 0 ? NULL : m->gradwire;
}

/* Removes all but the `keep` written last, and what was set aside for the last of all. */
static gw_err store_prune(const char *ckpt_dir, int64_t step, int keep) {
    char name[GW_STORE_NAME], old[GW_STORE_NAME];
    listing l;
    int kept = 0;
    store_step_name(step, name);
    snprintf(old, sizeof old, "%.40s" ASIDE, name);
    GW_TRY(store_discard(ckpt_dir, old));
    gw_err e = store_list(&l, ckpt_dir);
    for (size_t i = 0; e == GW_OK && i < l.n; i++)
        if (l.all[i].whole && kept++ >= keep)
            e = store_discard(ckpt_dir, l.all[i].name);
    free(l.all);
    return e;
}

gw_err gw_store_commit(const char *temp, const gw_store_manifest *m, int keep,
                       char final[GW_STORE_PATH]) {
    char ckpt_dir[GW_STORE_PATH], name[GW_STORE_NAME], path[GW_STORE_PATH];
    gw_store_manifest whole = *m;
    listing l;
    int why = -1; /* it has no name yet */
    final[0] = '\0';
    store_step_name(m->step, name);
    store_parent(temp, ckpt_dir);
    gw_err e = store_list(&l, ckpt_dir);
    whole.serial = 1;
    for (size_t i = 0; i < l.n; i++)
        if (l.all[i].serial >= whole.serial)
            whole.serial = l.all[i].serial + 1;
    free(l.all);
    gw_utc_now(whole.utc);
    gw_text_copy(whole.gradwire, sizeof whole.gradwire, version);
    GW_THEN(e, store_write_manifest(temp, &whole));
    GW_THEN(e, gw_store_path(path, ckpt_dir, name));
    GW_THEN(e, store_make_way(ckpt_dir, name, path));
    GW_THEN(e, gw_hold_rename(ckpt_dir, strrchr(temp, '/') + 1, name, &why));
    if (why == 0)
        gw_text_copy(final, GW_STORE_PATH, path);
    GW_THEN(e, store_prune(ckpt_dir, m->step, keep > 1 ? keep : 1));
    if (!final[0]) {
        char text[1024];
        gw_text_copy(text, sizeof text, gw_err_text());
        gw_store_abandon(temp);
        gw_fail(e, "%s", text); /* what abandoning failed at is of no interest */
    }
    return e == GW_ERR_INPUT ? gw_fail(GW_ERR_IO, "%s", gw_err_text()) : e;
}
