#include "cli/show/show.h"

#include "base/file.h"
#include "base/text.h"
#include "train/runfolder.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const int64_t MOST_STEPS = INT64_C(1) << 53; /* a double counts to there */

const char *const gw_show_part_names[GW_SHOW_PARTS] = {
    "data",     "core", "core_or_memory", "memory", "codec", "waiting",
    "transfer", "mpi",  "checkpoint",     "other"};

const json_t *gw_show_json(const gw_show_run *run, const char *path) {
    const json_t *at = run->json;
    while (at && *path) {
        size_t len = strcspn(path, ".");
        char key[64];
        snprintf(key, sizeof key, "%.*s", (int)len, path);
        at = json_object_get(at, key);
        path += len + (path[len] == '.');
    }
    return at;
}

const char *gw_show_text(const gw_show_run *run, const char *path) {
    return json_string_value(gw_show_json(run, path));
}

double gw_show_number(const gw_show_run *run, const char *path) {
    const json_t *at = gw_show_json(run, path);
    return json_is_number(at) ? json_number_value(at) : NAN;
}

bool gw_show_true(const gw_show_run *run, const char *path) {
    return json_is_true(gw_show_json(run, path));
}

static gw_err read_json(gw_show_run *run) {
    enum { LIMIT = 1 << 26 };
    char *path = NULL, *text = NULL;
    size_t len;
    if (asprintf(&path, "%s/run.json", run->dir) < 0)
        return gw_fail(GW_ERR_NOMEM, "show: out of memory");
    gw_err e = gw_file_read(path, LIMIT, &text, &len);
    json_error_t why;
    if (e != GW_OK) {
        char why_not[512];
        snprintf(why_not, sizeof why_not, "%s", gw_err_text());
        e = gw_fail(e, "show: not the folder of a finished run: %s", why_not);
    } else if (!(run->json = json_loadb(text, len, 0, &why)))
        e = gw_fail(GW_ERR_INPUT, "show: %s: not valid JSON: line %d: %s", path, why.line,
                    why.text);
    free(path);
    free(text);
    return e;
}

/* As deep as jansson reads, 2048 levels at most. */
static void make_plain(json_t *value) {
    const char *key;
    json_t *part;
    size_t i;
    json_object_foreach(value, key, part) {
        make_plain(part);
    }
    json_array_foreach(value, i, part) {
        make_plain(part);
    }
    if (!json_is_string(value))
        return;
    char *text = strdup(json_string_value(value));
    if (text)
        gw_text_line(text);
    json_string_set(value, text ? text : "");
    free(text);
}

void gw_show_run_plain(gw_show_run *run) {
    make_plain(run->json);
}

/* What nothing can be shown without. */
static gw_err check(const gw_show_run *run) {
    static const char *const needed[] = {"machine.ranks", "results.steps",
                                         "results.summary.batches"};
    const json_t *schema = gw_show_json(run, "schema");
    json_int_t version = json_integer_value(schema);
    if (!json_is_integer(schema))
        return gw_fail(GW_ERR_INPUT,
                       "show: %s/run.json: has no schema number: not written by gradwire train",
                       run->dir);
    if (version < 1 || version > GW_RUN_SCHEMA)
        return gw_fail(GW_ERR_INPUT,
                       "show: %s/run.json: schema %lld, this version knows 1 to %d: use the "
                       "version that wrote it",
                       run->dir, (long long)version, GW_RUN_SCHEMA);
    for (size_t i = 0; i < sizeof needed / sizeof *needed; i++) {
        const json_t *at = gw_show_json(run, needed[i]);
        json_int_t n = json_integer_value(at);
        if (!json_is_integer(at))
            return gw_fail(GW_ERR_INPUT, "show: %s/run.json: lacks %s: not a whole run's", run->dir,
                           needed[i]);
        if (n < 0 || n > MOST_STEPS)
            return gw_fail(GW_ERR_INPUT, "show: %s/run.json: %s is %lld: damaged", run->dir,
                           needed[i], (long long)n);
    }
    return GW_OK;
}

/* Counters know all of computation, twins and model each some kernels: never mixed. */
static void split_computation(gw_show_run *run) {
    const double *m = run->steps.median;
    run->part[GW_SHOW_PART_EITHER] = m[GW_SHOW_COMPUTE];
    if (!isnan(m[GW_SHOW_MEMORY_CTR])) {
        run->split = "ctr";
        run->part[GW_SHOW_PART_CORE] = m[GW_SHOW_CORE_CTR];
        run->part[GW_SHOW_PART_MEMORY] = m[GW_SHOW_MEMORY_CTR];
        run->part[GW_SHOW_PART_EITHER] = NAN;
    } else if (!isnan(m[GW_SHOW_EITHER])) {
        run->split = "twin+model";
        run->part[GW_SHOW_PART_CORE] = m[GW_SHOW_CORE_LEAST];
        run->part[GW_SHOW_PART_MEMORY] = m[GW_SHOW_MEMORY_LEAST];
        run->part[GW_SHOW_PART_EITHER] = m[GW_SHOW_EITHER];
    }
}

static void derive_parts(gw_show_run *run) {
    const double *m = run->steps.median;
    for (int p = 0; p < GW_SHOW_PARTS; p++)
        run->part[p] = NAN;
    run->part[GW_SHOW_PART_DATA] = m[GW_SHOW_DATA];
    split_computation(run);
    run->part[GW_SHOW_PART_CODEC] = m[GW_SHOW_CODEC];
    bool divided = !isnan(m[GW_SHOW_MPI_REST]);
    run->part[GW_SHOW_PART_WAITING] = divided ? m[GW_SHOW_WAITING] : NAN;
    run->part[GW_SHOW_PART_TRANSFER] = divided ? m[GW_SHOW_TRANSFER] : NAN;
    run->part[GW_SHOW_PART_MPI] = m[divided ? GW_SHOW_MPI_REST : GW_SHOW_EXPOSED];
    run->part[GW_SHOW_PART_CHECKPOINT] = m[GW_SHOW_CHECKPOINT];
    run->part[GW_SHOW_PART_OTHER] = m[GW_SHOW_OTHER];
}

/* A run that was never interrupted has none. */
static int64_t steps_or_0(const gw_show_run *run, const char *path) {
    json_int_t n = json_integer_value(gw_show_json(run, path));
    return n < 0 || n > MOST_STEPS ? 0 : n;
}

gw_err gw_show_run_open(gw_show_run *run, const char *dir) {
    *run = (gw_show_run){.dir = dir};
    GW_TRY(read_json(run));
    GW_TRY(check(run));
    /* The run's own choice of warm-up: the steps that its summary leaves out. */
    double warmup =
        gw_show_number(run, "results.steps") - gw_show_number(run, "results.summary.batches");
    int64_t since = steps_or_0(run, "resumed.step"),
            unknown = steps_or_0(run, "resumed.steps_not_in_summary");
    GW_TRY(gw_show_steps_read(&run->steps, dir, (int64_t)gw_show_number(run, "machine.ranks"),
                              since, (int64_t)warmup - unknown));
    if (run->steps.steps == 0)
        return gw_fail(GW_ERR_INPUT, "show: %s/batches.csv: no step after the %lld of warm-up", dir,
                       (long long)run->steps.warmup);
    derive_parts(run);
    return GW_OK;
}

void gw_show_run_close(gw_show_run *run) {
    json_decref(run->json);
    run->json = NULL;
}
