#include "checkpoint/facts.h"

#include "base/text.h"
#include "checkpoint/best.h"
#include "nn/gemm.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Options without which it would be another run. (What --data says may name the same data in
 * another way; the batch may be told by --local-batch.) */
static const char *const same[] = {"model",       "layers",     "activation", "output",
                                   "image-scale", "image-size", "validation", "replicate",
                                   "data-layout", "seed",       "partition"};
/* Options that shape what the exchange carries from step to step. */
static const char *const exchange[] = {"comm", "compress", "error-feedback", "update"};
/* Options that may differ, but then steps before and after are not of one kind. */
static const char *const shaping[] = {"comm",           "compress",     "error-feedback",
                                      "update",         "optimizer",    "lr",
                                      "lr-scaling",     "lr-schedule",  "lr-warmup",
                                      "momentum",       "weight-decay", "clip-norm",
                                      "threads",        "gemm",         "wire-check",
                                      "on-nan",         "profile",      "inject-skew",
                                      "microbatches",   "recompute",    "timetable",
                                      "tensor-chunks",  "tensor-algo",  "compress-activations",
                                      "compress-deltas"};
/* What says which part of the model a rank holds: not as options have it, but what became of
 * them. */
static const char *const layout[] = {"mesh", "stages", "tensor-split"};
enum {
    SAME = sizeof same / sizeof *same,
    EXCHANGE = sizeof exchange / sizeof *exchange,
    SHAPING = sizeof shaping / sizeof *shaping,
    LAYOUT = sizeof layout / sizeof *layout,
    REASON = 256
};

/* The values of `layout`; "": nothing is divided so. */
typedef struct facts_layout {
    char text[LAYOUT][GW_PIPELINE_STAGES];
} facts_layout;

static void facts_layout_now(const gw_facts_of *run, facts_layout *now) {
    const int *size = run->mesh->shape.size;
    memset(now, 0, sizeof *now);
    gw_mesh_text(&run->mesh->shape, now->text[0], sizeof now->text[0]);
    if (size[GW_DIM_PIPE] > 1)
        gw_pipeline_stages(run->pipeline, now->text[1]);
    if (size[GW_DIM_TENSOR] > 1)
        strcpy(now->text[2], run->c->parallel.columns ? "columns" : "pairs");
}

/* ---- writing ---- */

json_t *gw_facts_make(const gw_facts_of *run) {
    gw_inside_facts is = gw_inside_know(run->g);
    const gw_args *args = run->c->args;
    json_t *options = json_object(), *parts = json_object(), *vectors = json_array();
    for (const gw_opt *o = gw_args_opts(args); o->name; o++) {
        const char *text = gw_args_text(args, o->name);
        json_object_set_new(options, o->name, text ? json_string(text) : json_null());
    }
    facts_layout now;
    facts_layout_now(run, &now);
    for (int i = 0; i < LAYOUT; i++)
        json_object_set_new(parts, layout[i], json_string(now.text[i]));
    for (const char *const *name = run->optimizer->names; *name; name++)
        json_array_append_new(vectors, json_string(*name));
    bool alone = gw_mesh_divides(&run->c->parallel.shape); /* of rank 0's replica group */
    char *table = alone ? NULL : gw_inside_choices(run->g);
    json_t *choices = json_pack("{s:s?, s:s?, s:s?}", "codec", run->codec, "algorithm", run->algo,
                                "table", table);
    free(table);
    return json_pack(
        "{s:o, s:o, s:s, s:I, s:i, s:I, s:i, s:i, s:I, s:s, s:o, s:b, s:b, s:s?, s:o, s:o}",
        "options", options, "layout", parts, "data_hash", run->data->hash, "training_samples",
        (json_int_t)run->data->train.n_global, "parts", run->data->divided.parts, "parameters",
        (json_int_t)run->parameters, "ranks", run->ranks, "global_batch", run->global_batch,
        "schedule_end", (json_int_t)run->schedule, "optimizer", run->optimizer->ops->head.name,
        "vectors", vectors, "residuals", is.residual, "corrected_momentum", is.rule != NULL,
        "strategy_state", is.hooks.state ? is.strategy : NULL, "choices", choices, "gemm",
        json_string(gw_gemm_library()));
}

/* ---- comparing ---- */

static const char *facts_text(const json_t *facts, const char *key) {
    const char *text = json_string_value(json_object_get(facts, key));
    return text ? text : "";
}

static int64_t facts_number(const json_t *facts, const char *key) {
    return (int64_t)json_integer_value(json_object_get(facts, key));
}

static bool facts_flag(const json_t *facts, const char *key) {
    return json_is_true(json_object_get(facts, key));
}

static void facts_layout_then(const json_t *facts, facts_layout *then) {
    const json_t *all = json_object_get(facts, "layout");
    memset(then, 0, sizeof *then);
    for (int i = 0; i < LAYOUT; i++)
        gw_text_copy(then->text[i], sizeof then->text[i], facts_text(all, layout[i]));
}

static const char *facts_option_now(const gw_facts_of *run, const char *name) {
    const char *text = gw_args_text(run->c->args, name);
    return text ? text : "";
}

static const char *facts_option_then(const json_t *facts, const char *name) {
    return facts_text(json_object_get(facts, "options"), name);
}

static bool facts_option_same(const json_t *facts, const gw_facts_of *run, const char *name) {
    return strcmp(facts_option_then(facts, name), facts_option_now(run, name)) == 0;
}

gw_err gw_facts_check(const json_t *facts, const gw_facts_of *run, const char *from) {
    const gw_data *d = run->data;
    for (int i = 0; i < SAME; i++)
        if (!facts_option_same(facts, run, same[i]))
            return gw_fail(GW_ERR_INPUT,
                           "--resume %s: trained with --%s '%.100s', and here it is '%.100s': give "
                           "the same, or begin a new run",
                           from, same[i], facts_option_then(facts, same[i]),
                           facts_option_now(run, same[i]));
    bool read = *d->hash; /* by --check, which looks at no image, it is not */
    if ((read && strcmp(facts_text(facts, "data_hash"), d->hash) != 0) ||
        facts_number(facts, "training_samples") != (int64_t)d->train.n_global)
        return gw_fail(GW_ERR_INPUT,
                       "--resume %s: trained on other data (%.100s, %lld samples, hash %.64s) than "
                       "--data %s (%u samples, hash %s)",
                       from, facts_option_then(facts, "data"),
                       (long long)facts_number(facts, "training_samples"),
                       facts_text(facts, "data_hash"), d->source, d->train.n_global, d->hash);
    if (facts_number(facts, "global_batch") != run->global_batch)
        return gw_fail(GW_ERR_INPUT,
                       "--resume %s: trained in global batches of %lld samples, and here they are "
                       "of %d: give --batch %lld",
                       from, (long long)facts_number(facts, "global_batch"), run->global_batch,
                       (long long)facts_number(facts, "global_batch"));
    if (facts_number(facts, "parts") != d->divided.parts)
        return gw_fail(GW_ERR_INPUT,
                       "--resume %s: --partition divided the samples among %lld ranks, and here "
                       "among %d (0: not at all): start as many as then",
                       from, (long long)facts_number(facts, "parts"), d->divided.parts);
    if (facts_number(facts, "parameters") != (int64_t)run->parameters)
        return gw_fail(GW_ERR_INPUT, "--resume %s: a model of %lld parameters, and here it has %zu",
                       from, (long long)facts_number(facts, "parameters"), run->parameters);
    return GW_OK;
}

/* Why what the exchange carried is of no use here; "": it is, each rank has what it had. */
static void facts_reason(const json_t *facts, const gw_facts_of *run, char why[REASON]) {
    int64_t ranks = facts_number(facts, "ranks");
    facts_layout then, now;
    *why = '\0';
    for (int i = EXCHANGE - 1; i >= 0; i--)
        if (!facts_option_same(facts, run, exchange[i]))
            snprintf(why, REASON, "--%s %.100s then, %.100s now", exchange[i],
                     facts_option_then(facts, exchange[i]), facts_option_now(run, exchange[i]));
    facts_layout_then(facts, &then);
    facts_layout_now(run, &now);
    for (int i = LAYOUT - 1; i >= 0; i--)
        if (strcmp(then.text[i], now.text[i]) != 0)
            snprintf(why, REASON, "--%s %.100s then, %.100s now", layout[i], then.text[i],
                     now.text[i]);
    if (ranks != run->ranks)
        snprintf(why, REASON, "%lld rank%s then, %d now", (long long)ranks, ranks == 1 ? "" : "s",
                 run->ranks);
}

bool gw_facts_whole(const json_t *facts, const gw_facts_of *run) {
    char why[REASON];
    facts_reason(facts, run, why);
    return !*why;
}

bool gw_facts_statistics(const json_t *facts, const gw_facts_of *run) {
    return gw_facts_whole(facts, run) && facts_option_same(facts, run, "compress-stats");
}

gw_facts_state gw_facts_vectors(const json_t *facts, const gw_optimizer *o) {
    const json_t *names = json_object_get(facts, "vectors");
    gw_facts_state s = {.same = strcmp(facts_text(facts, "optimizer"), o->ops->head.name) == 0,
                        .count = (int)json_array_size(names)};
    s.count = s.count < GW_OPTIMIZER_VECTORS ? s.count : GW_OPTIMIZER_VECTORS;
    for (int i = 0; i < s.count; i++) {
        const char *name = json_string_value(json_array_get(names, (size_t)i));
        s.name[i] = name ? name : "";
        s.to[i] = s.same ? o->state.count - 1 : -1;
        while (s.to[i] >= 0 && strcmp(s.name[i], o->names[s.to[i]]) != 0)
            s.to[i]--;
    }
    return s;
}

bool gw_facts_best(const json_t *facts, const gw_facts_of *run) {
    return run->c->keep.model != GW_SAVE_BEST || facts_option_same(facts, run, "save-model");
}

/* ---- what is lost ---- */

gw_err gw_facts_dropped(const json_t *facts, const gw_facts_of *run, bool inside, gw_notes *to) {
    const gw_optimizer *o = run->optimizer;
    gw_facts_state s = gw_facts_vectors(facts, o);
    bool found[GW_OPTIMIZER_VECTORS] = {false};
    char why[REASON];
    const char *strategy = facts_text(facts, "strategy_state"), *codec, *algo, *table;
    facts_reason(facts, run, why);
    gw_facts_choices(facts, &codec, &algo, &table);
    const struct {
        bool is;
        const char *what;
    } lost[] = {{facts_flag(facts, "residuals"), "residuals of error feedback start anew"},
                {facts_flag(facts, "corrected_momentum"),
                 "what error feedback keeps beside them starts anew"},
                {*table || codec, "codec and algorithm are chosen anew"},
                {inside && strcmp(facts_option_now(run, "data-layout"), "sharded") == 0,
                 "the rest of the epoch visits samples of other shards"}};
    for (size_t i = 0; *why && i < sizeof lost / sizeof *lost; i++)
        if (lost[i].is)
            GW_TRY(gw_notes_add(to, GW_NOTE_DROPPED, "%s: %s", why, lost[i].what));
    if (*why && *strategy)
        GW_TRY(gw_notes_add(to, GW_NOTE_DROPPED,
                            "%s: what --comm %.100s carried from step to step is dropped", why,
                            strategy));
    for (int i = 0; i < s.count; i++)
        if (s.to[i] >= 0)
            found[s.to[i]] = true;
        else
            GW_TRY(gw_notes_add(to, GW_NOTE_DROPPED,
                                "the optimizer had %.100s and has none now: it is dropped",
                                s.name[i]));
    for (int v = 0; v < o->state.count; v++)
        if (!found[v])
            GW_TRY(gw_notes_add(to, GW_NOTE_DROPPED, "the optimizer had no %s: it starts at zero",
                                o->names[v]));
    if (!json_is_null(json_object_get(facts, GW_BEST_FACT)) && !gw_facts_best(facts, run))
        GW_TRY(gw_notes_add(to, GW_NOTE_DROPPED,
                            "--save-model best: the checkpoint has no model of an epoch before: "
                            "the best is one from here on"));
    bool anew = !gw_facts_statistics(facts, run) &&
                strcmp(facts_option_now(run, "compress-stats"), "0") != 0;
    return anew ? gw_notes_add(to, GW_NOTE_DROPPED, "the epoch's samples for codec.csv start anew")
                : GW_OK;
}

static bool facts_divides(const char *mesh) {
    return strstr(mesh, "pipe") || strstr(mesh, "tensor");
}

gw_err gw_facts_changed(const json_t *facts, const gw_facts_of *run, gw_notes *to) {
    int64_t ranks = facts_number(facts, "ranks");
    for (int i = 0; i < SHAPING; i++)
        if (!facts_option_same(facts, run, shaping[i]))
            GW_TRY(gw_notes_add(to, GW_NOTE_CHANGED, "--%s '%.100s' then, '%.100s' now", shaping[i],
                                facts_option_then(facts, shaping[i]),
                                facts_option_now(run, shaping[i])));
    const char *libraries = facts_text(facts, "gemm");
    if (strcmp(libraries, gw_gemm_library()) != 0)
        GW_TRY(gw_notes_add(to, GW_NOTE_CHANGED, "products by '%.100s' then, '%.100s' now",
                            libraries, gw_gemm_library()));
    int64_t end = facts_number(facts, "schedule_end");
    if (end > 0 && run->schedule > 0 && end != run->schedule)
        GW_TRY(gw_notes_add(to, GW_NOTE_CHANGED,
                            "--lr-schedule ended with step %lld then, %lld now", (long long)end,
                            (long long)run->schedule));
    facts_layout then, now;
    facts_layout_then(facts, &then);
    facts_layout_now(run, &now);
    /* A mesh of data alone is told by the number of ranks. */
    bool divides = facts_divides(then.text[0]) || facts_divides(now.text[0]);
    for (int i = 0; divides && i < LAYOUT; i++) {
        const char *a = then.text[i], *b = now.text[i];
        if (strcmp(a, b) != 0 && (i == 0 || (*a && *b)))
            GW_TRY(gw_notes_add(to, GW_NOTE_CHANGED, "--%s '%.100s' then, '%.100s' now", layout[i],
                                a, b));
    }
    if (ranks == run->ranks)
        return GW_OK;
    return gw_notes_add(
        to, GW_NOTE_CHANGED, "%lld rank%s then, %d now%s", (long long)ranks, ranks == 1 ? "" : "s",
        run->ranks, run->c->rate.linear ? ", and with them the rate (--lr-scaling linear)" : "");
}

const char *gw_facts_stages(const json_t *facts, const gw_facts_of *run) {
    static const char *const these[] = {"layers", "stages", "timetable"};
    const char *stages = facts_text(json_object_get(facts, "layout"), "stages");
    facts_layout then;
    char mesh[GW_PIPELINE_STAGES];
    facts_layout_then(facts, &then);
    gw_mesh_text(&run->mesh->shape, mesh, sizeof mesh);
    bool again = *stages && strcmp(then.text[0], mesh) == 0;
    for (size_t i = 0; i < sizeof these / sizeof *these; i++)
        again = again && facts_option_same(facts, run, these[i]);
    return again && strcmp(facts_option_now(run, "stages"), "measured") == 0 ? stages : NULL;
}

void gw_facts_choices(const json_t *facts, const char **codec, const char **algo,
                      const char **table) {
    const json_t *all = json_object_get(facts, "choices");
    *codec = json_string_value(json_object_get(all, "codec"));
    *algo = json_string_value(json_object_get(all, "algorithm"));
    *table = facts_text(all, "table");
    if (!*codec || !*algo)
        *codec = *algo = NULL;
}
