#include "roofline/ceilings_file.h"

#include "base/file.h"
#include "base/json.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

enum { MOST_BYTES = 1 << 20 };

/* ---- writing ---- */

static json_t *ceilings_pair(const gw_ceiling_pair *p) {
    return gw_json_object("one:f all:f", p->one, p->all);
}

json_t *gw_ceilings_json(const gw_ceilings *c) {
    json_t *caches = json_array(), *levels = json_array(), *times = json_object();
    for (int l = 0; l < GW_CACHES; l++)
        json_array_append_new(caches,
                              gw_json_object("level:s bytes:I cpus_sharing:i", gw_level_name(l),
                                             c->caches[l].bytes, c->caches[l].sharers));
    for (int l = 0; l < GW_LEVELS; l++)
        json_array_append_new(
            levels,
            gw_json_object("level:s working_set_bytes:I read_bytes_per_s:o update_bytes_per_s:o",
                           gw_level_name(l), c->level[l].bytes, ceilings_pair(&c->level[l].read),
                           ceilings_pair(&c->level[l].update)));
    for (int i = 0; i < c->n_times; i++)
        json_object_set_new(times, c->time[i].name, gw_json_number(c->time[i].seconds));
    return gw_json_object(
        "gradwire_ceilings:i host:s cpu:s kernels:s threads:i all_threads:i oversubscribed:b "
        "measured_at:I caches:o fma_flops_per_s:o copy_bytes_per_s:o levels:o seconds:o",
        GW_CEILINGS_FORMAT, c->host, c->cpu, c->kernels, c->threads, c->all_threads,
        c->oversubscribed, c->measured_at, caches, ceilings_pair(&c->fma), ceilings_pair(&c->copy),
        levels, times);
}

/* ---- reading; the first thing wrong is kept ---- */

typedef struct reader {
    const char *path;
    gw_err e;
} reader;

static void ceilings_wrong(reader *r, const char *key, const char *what) {
    if (r->e == GW_OK)
        r->e = gw_fail(GW_ERR_INPUT,
                       "ceilings %s: key '%s' %s: measure anew (--ceilings auto), or remove it",
                       r->path, key, what);
}

static void ceilings_text(reader *r, const json_t *o, const char *key, char *out, size_t room) {
    const char *s = json_string_value(json_object_get(o, key));
    if (!s || strlen(s) >= room)
        ceilings_wrong(r, key, "is missing or no such text");
    else
        snprintf(out, room, "%s", s);
}

static int64_t ceilings_whole(reader *r, const json_t *o, const char *key, int64_t least,
                              int64_t most) {
    const json_t *v = json_object_get(o, key);
    if (!json_is_integer(v) || json_integer_value(v) < least || json_integer_value(v) > most) {
        ceilings_wrong(r, key, "is missing or no such number");
        return least;
    }
    return json_integer_value(v);
}

/* A rate or a time: positive; null: not measured. */
static double ceilings_positive(reader *r, const json_t *v, const char *key) {
    if (json_is_null(v))
        return NAN;
    double x = json_is_number(v) ? json_number_value(v) : 0;
    if (!(x > 0) || !isfinite(x)) {
        ceilings_wrong(r, key, "holds no positive number");
        return NAN;
    }
    return x;
}

static gw_ceiling_pair ceiling_pair_of(reader *r, const json_t *o, const char *key) {
    const json_t *p = json_object_get(o, key);
    return (gw_ceiling_pair){ceilings_positive(r, json_object_get(p, "one"), key),
                             ceilings_positive(r, json_object_get(p, "all"), key)};
}

static gw_err ceilings_parse(const json_t *root, const char *path, gw_ceilings *c) {
    reader r = {path, GW_OK};
    *c = (gw_ceilings){0};
    if (ceilings_whole(&r, root, "gradwire_ceilings", 0, INT_MAX) != GW_CEILINGS_FORMAT)
        ceilings_wrong(&r, "gradwire_ceilings", "says another format");
    ceilings_text(&r, root, "host", c->host, sizeof c->host);
    ceilings_text(&r, root, "cpu", c->cpu, sizeof c->cpu);
    ceilings_text(&r, root, "kernels", c->kernels, sizeof c->kernels);
    c->threads = (int)ceilings_whole(&r, root, "threads", 1, INT_MAX);
    c->all_threads = (int)ceilings_whole(&r, root, "all_threads", 1, INT_MAX);
    c->oversubscribed = json_is_true(json_object_get(root, "oversubscribed"));
    c->measured_at = ceilings_whole(&r, root, "measured_at", 0, INT64_MAX);
    c->fma = ceiling_pair_of(&r, root, "fma_flops_per_s");
    c->copy = ceiling_pair_of(&r, root, "copy_bytes_per_s");
    const json_t *sizes = json_object_get(root, "caches"), *all = json_object_get(root, "levels");
    if (json_array_size(sizes) != GW_CACHES || json_array_size(all) != GW_LEVELS)
        ceilings_wrong(&r, "levels", "does not list L1, L2, L3 and DRAM");
    for (size_t l = 0; l < GW_CACHES; l++) {
        const json_t *o = json_array_get(sizes, l);
        c->caches[l].bytes = (size_t)ceilings_whole(&r, o, "bytes", 0, INT64_MAX);
        c->caches[l].sharers = (int)ceilings_whole(&r, o, "cpus_sharing", 0, INT_MAX);
    }
    for (size_t l = 0; l < GW_LEVELS; l++) {
        const json_t *o = json_array_get(all, l);
        c->level[l].bytes = (size_t)ceilings_whole(&r, o, "working_set_bytes", 0, INT64_MAX);
        c->level[l].read = ceiling_pair_of(&r, o, "read_bytes_per_s");
        c->level[l].update = ceiling_pair_of(&r, o, "update_bytes_per_s");
    }
    json_t *times = json_object_get(root, "seconds");
    if (!json_is_object(times) || json_object_size(times) > GW_CEILING_TIMES)
        ceilings_wrong(&r, "seconds", "is not an object, or has too many times");
    for (void *at = json_object_iter(times); at; at = json_object_iter_next(times, at)) {
        const char *key = json_object_iter_key(at);
        double seconds = ceilings_positive(&r, json_object_iter_value(at), key);
        if (strlen(key) >= GW_CEILING_NAME)
            ceilings_wrong(&r, key, "is too long");
        else if (isfinite(seconds))
            gw_ceilings_keep(c, key, seconds);
    }
    return r.e;
}

gw_err gw_ceilings_load(gw_ceilings *out, const char *path) {
    char *data = NULL;
    size_t len;
    GW_TRY(gw_file_read(path, MOST_BYTES, &data, &len));
    json_error_t where;
    json_t *root = json_loadb(data, len, JSON_REJECT_DUPLICATES, &where);
    free(data);
    if (!root)
        return gw_fail(GW_ERR_INPUT,
                       "ceilings %s: line %d: %s: measure anew (--ceilings auto), or remove it",
                       path, where.line, where.text);
    gw_err e = ceilings_parse(root, path, out);
    json_decref(root);
    return e;
}

static gw_err ceilings_differs(const char *path, const char *what, const char *got,
                               const char *want) {
    return gw_fail(GW_ERR_INPUT,
                   "ceilings %s: measured with %s '%s', here it is '%s': use --ceilings auto", path,
                   what, got, want);
}

gw_err gw_ceilings_fit(const gw_ceilings *got, const gw_ceilings *want, bool any_host,
                       const char *path) {
    if (!any_host && strcmp(got->host, want->host) != 0)
        return ceilings_differs(path, "host", got->host, want->host);
    if (strcmp(got->cpu, want->cpu) != 0)
        return ceilings_differs(path, "cpu", got->cpu, want->cpu);
    if (strcmp(got->kernels, want->kernels) != 0)
        return ceilings_differs(path, "kernels", got->kernels, want->kernels);
    char a[48], b[48];
    snprintf(a, sizeof a, "%d of %d%s", got->threads, got->all_threads,
             got->oversubscribed ? ", oversubscribed" : "");
    snprintf(b, sizeof b, "%d of %d%s", want->threads, want->all_threads,
             want->oversubscribed ? ", oversubscribed" : "");
    return strcmp(a, b) == 0 ? GW_OK
                             : ceilings_differs(path, "threads of a rank of all on the host", a, b);
}

/* ---- the cache ---- */

void gw_ceilings_cache(const gw_ceilings *want, char path[GW_CEILINGS_PATH]) {
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    bool given = cache && *cache == '/'; /* relative ones are to be ignored, says the standard */
    char key[512];
    snprintf(key, sizeof key, "%d|%s|%s|%s|%d|%d|%d", GW_CEILINGS_FORMAT, want->host, want->cpu,
             want->kernels, want->threads, want->all_threads, want->oversubscribed);
    unsigned hash = (unsigned)crc32_z(0, (const Bytef *)key, strlen(key));
    *path = '\0';
    if (!given && !(home && *home == '/'))
        return;
    int len = snprintf(path, GW_CEILINGS_PATH, "%s%s/gradwire/ceilings-%08x.json",
                       given ? cache : home, given ? "" : "/.cache", hash);
    if (len >= GW_CEILINGS_PATH)
        *path = '\0';
}

gw_err gw_ceilings_store(const gw_ceilings *c, const char *path) {
    char folder[GW_CEILINGS_PATH];
    const char *slash = strrchr(path, '/');
    bool made;
    if (!slash)
        return gw_fail(GW_ERR_INTERNAL, "ceilings: '%s' has no folder", path);
    snprintf(folder, sizeof folder, "%.*s", (int)(slash - path), path);
    GW_TRY(gw_file_make_folder(folder, &made));
    json_t *all = gw_ceilings_json(c);
    if (!all)
        return gw_fail(GW_ERR_INPUT, "ceilings: host, CPU or kernels are not UTF-8: not kept");
    gw_file *file = NULL;
    gw_err e = gw_file_create_at(&file, path);
    if (e == GW_OK)
        return gw_json_commit(file, all, JSON_INDENT(1), path);
    json_decref(all);
    return e;
}
