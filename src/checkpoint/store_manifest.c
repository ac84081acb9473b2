/* The manifest of a checkpoint: text <-> gw_store_manifest. */
#include "base/mem.h"
#include "base/text.h"
#include "checkpoint/store.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

enum { LAST_LINE = 6 + 8 + 1 }; /* "crc32 xxxxxxxx\n" */

static const char *const keys[] = {"schema", "serial", "utc",   "gradwire", "step",
                                   "epoch",  "batch",  "ranks", "facts",    "files"};
enum { KEYS = sizeof keys / sizeof *keys };

void gw_store_rank_name(int rank, char name[GW_STORE_NAME]) {
    snprintf(name, GW_STORE_NAME, "rank-%05d.gw", rank);
}

static void last_line(const char *text, size_t len, char out[LAST_LINE + 1]) {
    uint32_t crc = (uint32_t)crc32_z(crc32_z(0, NULL, 0), (const Bytef *)text, len);
    snprintf(out, LAST_LINE + 1, "crc32 %08" PRIx32 "\n", crc);
}

/* ---- reading ---- */

static gw_err get_integer(const json_t *object, const char *where, const char *key,
                          json_int_t least, json_int_t most, json_int_t *out) {
    *out = 0; /* gcc cannot see that a refusal is no GW_OK */
    const json_t *value = json_object_get(object, key);
    if (!json_is_integer(value) || json_integer_value(value) < least ||
        json_integer_value(value) > most)
        return gw_fail(GW_ERR_INPUT,
                       "%s: '%s' must be a whole number from %" JSON_INTEGER_FORMAT
                       " to %" JSON_INTEGER_FORMAT,
                       where, key, least, most);
    *out = json_integer_value(value);
    return GW_OK;
}

static gw_err get_text(const json_t *object, const char *where, const char *key, char *out,
                       size_t room) {
    const char *text = json_string_value(json_object_get(object, key));
    if (!text || strlen(text) >= room)
        return gw_fail(GW_ERR_INPUT, "%s: '%s' must be a text of less than %zu bytes", where, key,
                       room);
    gw_text_plain(out, room, text);
    return GW_OK;
}

static bool plain_name(const char *name) {
    return *name && *name != '.' && strlen(name) < GW_STORE_NAME &&
           strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") ==
               strlen(name) &&
           strcmp(name, GW_STORE_MANIFEST) != 0;
}

static gw_err read_file(const json_t *entry, const char *where, gw_store_file *f) {
    const char *name = json_string_value(json_object_get(entry, "name"));
    const char *crc = json_string_value(json_object_get(entry, "crc32"));
    json_int_t bytes;
    char plain[GW_STORE_NAME];
    gw_text_plain(plain, sizeof plain, name ? name : "");
    if (!name || !plain_name(name))
        return gw_fail(GW_ERR_INPUT, "%s: '%s' cannot be a checkpoint's file", where, plain);
    GW_TRY(get_integer(entry, where, "bytes", 0, INT64_MAX, &bytes));
    if (!crc || strlen(crc) != 8 || strspn(crc, "0123456789abcdef") != 8 ||
        json_object_size(entry) != 3)
        return gw_fail(GW_ERR_INPUT, "%s: %s must have name, bytes and crc32 of 8 digits", where,
                       name);
    gw_text_copy(f->name, sizeof f->name, name);
    f->bytes = (uint64_t)bytes;
    f->crc32 = (uint32_t)strtoul(crc, NULL, 16);
    return GW_OK;
}

static int by_name(const void *a, const void *b) {
    return strcmp(((const gw_store_file *)a)->name, ((const gw_store_file *)b)->name);
}

/* In the order of their names, so that none can come twice and each rank's is found quickly. */
static gw_err read_files(const json_t *list, const char *where, gw_store_manifest *m) {
    size_t n = json_array_size(list);
    if (!json_is_array(list) || n > GW_STORE_MOST_FILES)
        return gw_fail(GW_ERR_INPUT, "%s: 'files' must be a list of at most %d", where,
                       GW_STORE_MOST_FILES);
    GW_TRY(gw_alloc(&m->files, n, sizeof *m->files));
    m->n_files = n;
    for (size_t i = 0; i < n; i++) {
        GW_TRY(read_file(json_array_get(list, i), where, &m->files[i]));
        if (i > 0 && by_name(&m->files[i - 1], &m->files[i]) >= 0)
            return gw_fail(GW_ERR_INPUT, "%s: 'files': %s after %s, must be in order", where,
                           m->files[i].name, m->files[i - 1].name);
    }
    for (int rank = 0; rank < m->ranks; rank++) {
        gw_store_file wanted;
        gw_store_rank_name(rank, wanted.name);
        if (!bsearch(&wanted, m->files, n, sizeof wanted, by_name))
            return gw_fail(GW_ERR_INPUT, "%s: %d ranks, but no file %s", where, m->ranks,
                           wanted.name);
    }
    return GW_OK;
}

static gw_err check_keys(const json_t *top, const char *where) {
    const char *key;
    json_t *value;
    json_int_t schema;
    if (!json_is_object(top))
        return gw_fail(GW_ERR_INPUT, "%s: not a checkpoint's manifest", where);
    GW_TRY(get_integer(top, where, "schema", 1, INT_MAX, &schema));
    if (schema != GW_STORE_SCHEMA)
        return gw_fail(GW_ERR_INPUT, "%s: schema %d, this gradwire reads %d", where, (int)schema,
                       GW_STORE_SCHEMA);
    json_object_foreach((json_t *)top, key, value) {
        size_t i = 0;
        while (i < KEYS && strcmp(key, keys[i]) != 0)
            i++;
        char plain[GW_STORE_NAME];
        gw_text_plain(plain, sizeof plain, key);
        if (i == KEYS)
            return gw_fail(GW_ERR_INPUT, "%s: unknown key '%s'", where, plain);
    }
    return GW_OK;
}

static gw_err read_top(const json_t *top, const char *where, gw_store_manifest *m) {
    json_int_t epoch, ranks, serial, step, batch;
    GW_TRY(check_keys(top, where));
    GW_TRY(get_integer(top, where, "serial", 1, INT64_MAX - 1, &serial));
    GW_TRY(get_text(top, where, "utc", m->utc, sizeof m->utc));
    GW_TRY(get_text(top, where, "gradwire", m->gradwire, sizeof m->gradwire));
    GW_TRY(get_integer(top, where, "step", 0, INT64_MAX, &step));
    GW_TRY(get_integer(top, where, "epoch", 1, INT_MAX, &epoch));
    GW_TRY(get_integer(top, where, "batch", 0, INT64_MAX, &batch));
    GW_TRY(get_integer(top, where, "ranks", 1, GW_STORE_MOST_FILES, &ranks));
    m->serial = serial;
    m->step = step;
    m->epoch = (int)epoch;
    m->batch = batch;
    m->ranks = (int)ranks;
    m->facts = json_object_get(top, "facts");
    if (!json_is_object(m->facts)) {
        m->facts = NULL;
        return gw_fail(GW_ERR_INPUT, "%s: 'facts' must be an object", where);
    }
    json_incref(m->facts);
    return read_files(json_object_get(top, "files"), where, m);
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
    last_line(text, len, expected);
    if (memcmp(text + len, expected, LAST_LINE) != 0)
        return gw_fail(GW_ERR_INPUT,
                       "%s: damaged: its last line is not the checksum of what is before", where);
    json_t *top = json_loadb(text, len, JSON_REJECT_DUPLICATES, &error);
    if (!top) {
        char plain[sizeof error.text];
        gw_text_plain(plain, sizeof plain, error.text);
        return gw_fail(GW_ERR_INPUT, "%s: line %d: %s", where, error.line, plain);
    }
    gw_err e = read_top(top, where, m);
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

static json_t *files_list(const gw_store_manifest *m) {
    json_t *list = json_array();
    gw_store_file *sorted = NULL;
    if (gw_alloc(&sorted, m->n_files, sizeof *sorted) == GW_OK) {
        memcpy(sorted, m->files, m->n_files * sizeof *sorted);
        qsort(sorted, m->n_files, sizeof *sorted, by_name);
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

static char *dump(const gw_store_manifest *m) {
    json_t *files = files_list(m);
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
    char *json = dump(m), *all = NULL;
    size_t n = json ? strlen(json) + 1 : 0; /* with a '\n' */
    if (!json || gw_alloc(&all, n + LAST_LINE + 1, 1) != GW_OK) {
        free(json);
        return gw_fail(GW_ERR_NOMEM, "out of memory for a checkpoint's manifest");
    }
    memcpy(all, json, n - 1);
    free(json);
    all[n - 1] = '\n';
    last_line(all, n, line);
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
