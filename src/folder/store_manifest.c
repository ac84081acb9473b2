/* The manifest of a checkpoint: text <-> gw_store_manifest. */
#include "base/mem.h"
#include "base/text.h"
#include "folder/store.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

enum { LAST_LINE = 6 + 8 + 1 }; /* "crc32 xxxxxxxx\n" */

void gw_store_rank_name(int rank, char name[GW_STORE_NAME]) {
    snprintf(name, GW_STORE_NAME, "rank-%05d.gw", rank);
}

static void manifest_last_line(const char *text, size_t len, char out[LAST_LINE + 1]) {
    uint32_t crc = (uint32_t)crc32_z(crc32_z(0, NULL, 0), (const Bytef *)text, len);
    snprintf(out, LAST_LINE + 1, "crc32 %08" PRIx32 "\n", crc);
}

/* ---- reading ---- */

static bool manifest_plain_name(const char *name) {
    return *name && *name != '.' && strlen(name) < GW_STORE_NAME &&
           strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") ==
               strlen(name) &&
           strcmp(name, GW_STORE_MANIFEST) != 0;
}

/* What jansson found wrong, with nothing in it that a terminal takes for a command. */
static gw_err manifest_not_as_expected(const char *where, const json_error_t *error) {
    char plain[sizeof error->text];
    gw_text_plain(plain, sizeof plain, error->text);
    return gw_fail(GW_ERR_INPUT, "%s: not a manifest that this gradwire reads: %s", where, plain);
}

static gw_err manifest_read_file(json_t *entry, const char *where, gw_store_file *f) {
    const char *name, *crc;
    json_int_t bytes;
    json_error_t error;
    char plain[GW_STORE_NAME];
    if (json_unpack_ex(entry, &error, JSON_STRICT, "{s:s, s:I, s:s}", "name", &name, "bytes",
                       &bytes, "crc32", &crc) != 0)
        return manifest_not_as_expected(where, &error);
    gw_text_plain(plain, sizeof plain, name);
    if (!manifest_plain_name(name))
        return gw_fail(GW_ERR_INPUT, "%s: '%s' cannot be a checkpoint's file", where, plain);
    if (bytes < 0 || strlen(crc) != 8 || strspn(crc, "0123456789abcdef") != 8)
        return gw_fail(GW_ERR_INPUT, "%s: %s must have 0 bytes or more and a crc32 of 8 digits",
                       where, name);
    gw_text_copy(f->name, sizeof f->name, name);
    f->bytes = (uint64_t)bytes;
    f->crc32 = (uint32_t)strtoul(crc, NULL, 16);
    return GW_OK;
}

static int manifest_by_name(const void *a, const void *b) {
    return strcmp(((const gw_store_file *)a)->name, ((const gw_store_file *)b)->name);
}

/* Sorted by name: a duplicate stands beside its twin, and each rank's files are found quickly. */
static gw_err manifest_read_files(const json_t *list, const char *where, gw_store_manifest *m) {
    size_t n = json_array_size(list);
    if (!json_is_array(list) || n > GW_STORE_MOST_FILES)
        return gw_fail(GW_ERR_INPUT, "%s: 'files' must be a list of at most %d", where,
                       GW_STORE_MOST_FILES);
    GW_TRY(gw_alloc(&m->files, n, sizeof *m->files));
    m->n_files = n;
    for (size_t i = 0; i < n; i++) {
        GW_TRY(manifest_read_file(json_array_get(list, i), where, &m->files[i]));
        if (i > 0 && manifest_by_name(&m->files[i - 1], &m->files[i]) >= 0)
            return gw_fail(GW_ERR_INPUT, "%s: 'files': %s after %s, must be in order", where,
                           m->files[i].name, m->files[i - 1].name);
    }
    for (int rank = 0; rank < m->ranks; rank++) {
        gw_store_file wanted;
        gw_store_rank_name(rank, wanted.name);
        if (!bsearch(&wanted, m->files, n, sizeof wanted, manifest_by_name))
            return gw_fail(GW_ERR_INPUT, "%s: %d ranks, but no file %s", where, m->ranks,
                           wanted.name);
    }
    return GW_OK;
}

static gw_err manifest_read_top(json_t *top, const char *where, gw_store_manifest *m) {
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
        return manifest_not_as_expected(where, &error);
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
    return manifest_read_files(files, where, m);
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
    manifest_last_line(text, len, expected);
    if (memcmp(text + len, expected, LAST_LINE) != 0)
        return gw_fail(GW_ERR_INPUT,
                       "%s: damaged: its last line is not the checksum of what is before", where);
    json_t *top = json_loadb(text, len, JSON_REJECT_DUPLICATES, &error);
    if (!top) {
        char plain[sizeof error.text];
        gw_text_plain(plain, sizeof plain, error.text);
        return gw_fail(GW_ERR_INPUT, "%s: line %d: %s", where, error.line, plain);
    }
    gw_err e = manifest_read_top(top, where, m);
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

/* ---- writing ---- */

static json_t *manifest_files(const gw_store_manifest *m) {
    json_t *list = json_array();
    gw_store_file *sorted = NULL;
    if (gw_alloc(&sorted, m->n_files, sizeof *sorted) == GW_OK) {
        memcpy(sorted, m->files, m->n_files * sizeof *sorted);
        qsort(sorted, m->n_files, sizeof *sorted, manifest_by_name);
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

static char *manifest_dump(const gw_store_manifest *m) {
    json_t *files = manifest_files(m);
    json_t *top = files ? json_pack("{s:i, s:I, s:s, s:s, s:I, s:i, s:I, s:i, s:O, s:o}", "schema",
                                    GW_STORE_SCHEMA, "serial", (json_int_t)m->serial, "utc", m->utc,
                                    "gradwire", m->gradwire, "step", (json_int_t)m->step, "epoch",
                                    m->epoch, "batch", (json_int_t)m->batch, "ranks", m->ranks,
                                    "facts", m->facts, "files", files)
                        : NULL;
    char *text = top ? json_dumps(top, JSON_INDENT(1)) : NULL;
    json_decref(top);
    return text;
}

gw_err gw_store_print(const gw_store_manifest *m, char **text, size_t *len) {
    char line[LAST_LINE + 1];
    gw_store_manifest back;
    if (!json_is_object(m->facts))
        return gw_fail(GW_ERR_INTERNAL, "a checkpoint's facts must be an object");
    char *json = manifest_dump(m), *all = NULL;
    size_t n = json ? strlen(json) + 1 : 0; /* with a '\n' */
    if (!json || gw_alloc(&all, n + LAST_LINE + 1, 1) != GW_OK) {
        free(json);
        return gw_fail(GW_ERR_NOMEM, "out of memory for a checkpoint's manifest");
    }
    memcpy(all, json, n - 1);
    free(json);
    all[n - 1] = '\n';
    manifest_last_line(all, n, line);
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
