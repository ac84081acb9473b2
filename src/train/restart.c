#include "train/restart.h"

#include "base/json.h"
#include "train/history.h"

#include <string.h>

static json_t *step_or_null(int64_t step) {
    return step > 0 ? json_integer((json_int_t)step) : json_null();
}

json_t *gw_checkpoints_json(const gw_train_config *c, const gw_train_result *r) {
    const gw_checkpoint_counts *n = &r->checkpoints;
    if (c->checkpoint_steps == 0 && !(c->checkpoint_s > 0))
        return json_null();
    return json_pack("{s:o, s:o, s:i, s:I, s:I, s:I, s:o, s:o}", "every_steps",
                     step_or_null(c->checkpoint_steps), "every_s",
                     c->checkpoint_s > 0 ? json_real(c->checkpoint_s) : json_null(), "keep",
                     c->checkpoint_keep, "written", (json_int_t)n->written, "failed",
                     (json_int_t)n->failed, "late", (json_int_t)n->late, "last_step",
                     step_or_null(n->step), "ledger_s", gw_json_number(r->checkpoint_s));
}

/* The lines of `text` that begin with `start`, without it. */
static json_t *lines_of(const char *text, const char *start) {
    json_t *all = json_array();
    while (text && *text) {
        size_t len = strcspn(text, "\n"), skip = strlen(start);
        if (strncmp(text, start, skip) == 0)
            json_array_append_new(all, json_stringn(text + skip, len - skip));
        text += len + (text[len] == '\n');
    }
    return all;
}

json_t *gw_resumed_json(const gw_resume *r, const char *utc, int64_t counted) {
    if (!*r->path)
        return json_null();
    /* What an earlier start had of these went with it. */
    json_t *since = json_pack("[s, s, s, s, s, s, s, s]", "matrix.csv", "trace.json", "overhead",
                              "results.ranks", "results.straggler", "results.traffic",
                              "results.exchanges_dropped", "results.summary.memory_s.batches");
    return json_pack("{s:I, s:s, s:i, s:s, s:o, s:o, s:o, s:I, s:o}", "step",
                     (json_int_t)r->manifest.step, "path", r->path, "from_ranks", r->manifest.ranks,
                     "utc", utc, "dropped", lines_of(r->dropped, "resume: "), "changed",
                     lines_of(r->changed, "resume: changed: "), "passed_over",
                     lines_of(r->notes, GW_RESUME_PASSED_OVER), "steps_not_in_summary",
                     (json_int_t)(r->manifest.step - counted), "since_resume", since);
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
                          json_pack("{s:s, s:s, s:I, s:o, s:i, s:o, s:o}", "event", "resumed",
                                    "utc", utc, "step", (json_int_t)r->manifest.step, "path",
                                    *r->path ? json_string(r->path) : json_null(), "ranks", ranks,
                                    "changed", lines_of(r->changed, "resume: changed: "), "dropped",
                                    lines_of(r->dropped, "resume: ")));
}
