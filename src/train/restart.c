#include "train/restart.h"

#include "base/json.h"
#include "folder/history.h"

#include <math.h>
#include <string.h>

static json_t *restart_step_or_null(int64_t step) {
    return step > 0 ? json_integer((json_int_t)step) : json_null();
}

json_t *gw_checkpoints_json(const gw_train_config *c, const gw_train_result *r) {
    const gw_checkpoint_counts *n = &r->checkpoints;
    if (c->keep.every.count == 0 && !(c->keep.every.s > 0))
        return json_null();
    return gw_json_object(
        "every_steps:o every_s:f keep:i written:I failed:I late:I last_step:o ledger_s:f",
        restart_step_or_null(c->keep.every.count), c->keep.every.s > 0 ? c->keep.every.s : NAN,
        c->keep.most, n->written, n->failed, n->late, restart_step_or_null(n->step),
        r->checkpoint_s);
}

/* What an earlier start had of these went with it, unless it had written them: files, what the
 * first adds up to, and figures that are in run.json alone. */
static const char *const since_resume[] = {"matrix.csv",
                                           "trace.json",
                                           "results.traffic",
                                           "overhead",
                                           "results.ranks",
                                           "results.peak_bytes",
                                           "results.peak_sum_bytes",
                                           "results.simulated",
                                           "results.straggler",
                                           "results.energy",
                                           "results.exchanges_dropped",
                                           "results.summary.memory_s.batches"};
enum { FIGURES = 3, SINCE = sizeof since_resume / sizeof *since_resume };

static json_t *restart_since_json(void) {
    json_t *all = json_array();
    for (int i = 0; i < SINCE; i++)
        json_array_append_new(all, json_string(since_resume[i]));
    return all;
}

/* The object that has the last key of "a.b.key"; *key: that. NULL: there is none. */
static json_t *restart_object_of(const json_t *run, const char *path, const char **key) {
    const json_t *object = run;
    for (*key = path; object && strchr(*key, '.'); *key = strchr(*key, '.') + 1) {
        size_t len = strcspn(*key, ".");
        char name[32] = {0};
        snprintf(name, sizeof name, "%.*s", (int)len, *key);
        object = json_object_get(object, name);
    }
    return (json_t *)object;
}

static bool restart_same_ranks(const json_t *run, const json_t *told) {
    const json_t *mine = json_object_get(json_object_get(run, "machine"), "ranks");
    const json_t *other = json_object_get(json_object_get(told, "machine"), "ranks");
    return json_equal(mine, other);
}

void gw_restart_keep(json_t *run, const json_t *told) {
    if (!restart_same_ranks(run, told))
        return;
    for (int i = FIGURES; i < SINCE; i++) {
        const char *key;
        json_t *object = restart_object_of(run, since_resume[i], &key);
        json_t *kept = json_object_get(restart_object_of(told, since_resume[i], &key), key);
        if (json_is_object(object) && kept)
            json_object_set(object, key, kept);
    }
}

json_t *gw_resumed_json(const gw_resume *r, const char *utc, int64_t counted) {
    if (!*r->path)
        return json_null();
    return gw_json_object("step:I path:s from_ranks:i utc:s dropped:o changed:o passed_over:o "
                          "steps_not_in_summary:I since_resume:o",
                          r->manifest.step, r->path, r->manifest.ranks, utc,
                          gw_notes_json(&r->notes, GW_NOTE_DROPPED),
                          gw_notes_json(&r->notes, GW_NOTE_CHANGED),
                          gw_notes_json(&r->notes, GW_NOTE_PASSED_OVER), r->manifest.step - counted,
                          restart_since_json());
}

gw_err gw_restart_note(const char *dir, const gw_resume *r, int ranks) {
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
