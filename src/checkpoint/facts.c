#include "checkpoint/facts.h"

#include "comm/lane_parts.h"
#include "comm/tuning.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Options without which it would be another run. (What --data says may name the same data in
 * another way; the batch may be told by --local-batch.) */
static const char *const same[] = {"layers",     "activation",  "image-scale",
                                   "validation", "data-layout", "seed"};
/* Options that shape what the exchange carries from step to step. */
static const char *const exchange[] = {"comm", "compress", "error-feedback", "update"};
/* Options that may differ, but then steps before and after are not of one kind. */
static const char *const shaping[] = {
    "comm",       "compress",  "error-feedback", "update",       "optimizer",    "lr",
    "lr-scaling", "lr-warmup", "momentum",       "weight-decay", "threads",      "gemm",
    "wire-check", "on-nan",    "profile",        "inject-skew",  "microbatches", "recompute"};
enum {
    SAME = sizeof same / sizeof *same,
    EXCHANGE = sizeof exchange / sizeof *exchange,
    SHAPING = sizeof shaping / sizeof *shaping,
    REASON = 256
};

/* ---- writing ---- */

static json_t *facts_options(const gw_train_config *c) {
    json_t *all = json_object();
    for (const gw_opt *o = gw_args_opts(c->args); o->name; o++) {
        const char *text = gw_args_text(c->args, o->name);
        json_object_set_new(all, o->name, text ? json_string(text) : json_null());
    }
    return all;
}

static json_t *facts_choices(const gw_facts_of *run) {
    const char *rows = run->session->choices;
    char *table = NULL;
    if (*rows && asprintf(&table, GW_TUNING_HEADER "%s", rows) < 0)
        return NULL;
    json_t *all = json_pack("{s:s?, s:s?, s:s?}", "codec", run->codec, "algorithm", run->algo,
                            "table", table);
    free(table);
    return all;
}

json_t *gw_facts_make(const gw_facts_of *run) {
    const gw_session *s = run->session;
    return json_pack("{s:o, s:s, s:I, s:I, s:i, s:i, s:b, s:b, s:b, s:s?, s:o, s:o}", "options",
                     facts_options(run->c), "data_hash", run->data->hash, "training_samples",
                     (json_int_t)run->data->train.n_global, "parameters",
                     (json_int_t)run->parameters, "ranks", run->ranks, "global_batch",
                     run->global_batch, "momentum", run->momentum, "residuals",
                     s->env.grads->store != NULL, "corrected_momentum", s->residuals.corrects,
                     "strategy_state", s->strategy.ops->state ? s->strategy.ops->head.name : NULL,
                     "choices", facts_choices(run), "gemm", gw_products_json(run->products));
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

static const char *facts_option_then(const json_t *facts, const char *name) {
    return facts_text(json_object_get(facts, "options"), name);
}

static const char *facts_option_now(const gw_facts_of *run, const char *name) {
    const char *text = gw_args_text(run->c->args, name);
    return text ? text : "";
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
    if (strcmp(facts_text(facts, "data_hash"), d->hash) != 0 ||
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
    if (facts_number(facts, "parameters") != (int64_t)run->parameters)
        return gw_fail(GW_ERR_INPUT, "--resume %s: a model of %lld parameters, and here it has %zu",
                       from, (long long)facts_number(facts, "parameters"), run->parameters);
    return GW_OK;
}

/* Why what the exchange carried is of no use here; "": it is, each rank has what it had. */
static void facts_reason(const json_t *facts, const gw_facts_of *run, char why[REASON]) {
    int64_t ranks = facts_number(facts, "ranks");
    *why = '\0';
    for (int i = EXCHANGE - 1; i >= 0; i--)
        if (!facts_option_same(facts, run, exchange[i]))
            snprintf(why, REASON, "--%s %.100s then, %.100s now", exchange[i],
                     facts_option_then(facts, exchange[i]), facts_option_now(run, exchange[i]));
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

/* ---- what is lost ---- */

static gw_err facts_exchange_lost(const json_t *facts, const gw_facts_of *run, bool inside,
                                  gw_notes *to) {
    char why[REASON];
    const char *strategy = facts_text(facts, "strategy_state"), *codec, *algo, *table;
    facts_reason(facts, run, why);
    gw_facts_choices(facts, &codec, &algo, &table);
    const struct {
        bool is;
        const char *what;
    } lost[] = {{facts_flag(facts, "residuals"), "residuals of error feedback start anew"},
                {facts_flag(facts, "corrected_momentum"), "each rank's own momentum starts anew"},
                {*table || codec, "codec and algorithm are chosen anew"},
                {inside && strcmp(facts_option_now(run, "data-layout"), "sharded") == 0,
                 "the rest of the epoch visits samples of other shards"}};
    for (size_t i = 0; *why && i < sizeof lost / sizeof *lost; i++)
        if (lost[i].is)
            GW_TRY(gw_notes_add(to, GW_NOTE_DROPPED, "%s: %s", why, lost[i].what));
    return *why && *strategy
               ? gw_notes_add(to, GW_NOTE_DROPPED,
                              "%s: what --comm %.100s carried from step to step is dropped", why,
                              strategy)
               : GW_OK;
}

gw_err gw_facts_dropped(const json_t *facts, const gw_facts_of *run, bool inside, gw_notes *to) {
    GW_TRY(facts_exchange_lost(facts, run, inside, to));
    if (facts_flag(facts, "momentum") && !run->momentum)
        GW_TRY(gw_notes_add(to, GW_NOTE_DROPPED,
                            "the optimizer had momentum and has none now: it is dropped"));
    if (run->momentum && !facts_flag(facts, "momentum"))
        GW_TRY(
            gw_notes_add(to, GW_NOTE_DROPPED, "the optimizer had no momentum: it starts at zero"));
    bool anew = !gw_facts_statistics(facts, run) &&
                strcmp(facts_option_now(run, "compress-stats"), "0") != 0;
    return anew ? gw_notes_add(to, GW_NOTE_DROPPED, "the epoch's samples for codec.csv start anew")
                : GW_OK;
}

gw_err gw_facts_changed(const json_t *facts, const gw_facts_of *run, gw_notes *to) {
    int64_t ranks = facts_number(facts, "ranks");
    for (int i = 0; i < SHAPING; i++)
        if (!facts_option_same(facts, run, shaping[i]))
            GW_TRY(gw_notes_add(to, GW_NOTE_CHANGED, "--%s '%.100s' then, '%.100s' now", shaping[i],
                                facts_option_then(facts, shaping[i]),
                                facts_option_now(run, shaping[i])));
    if (ranks == run->ranks)
        return GW_OK;
    return gw_notes_add(to, GW_NOTE_CHANGED, "%lld rank%s then, %d now%s", (long long)ranks,
                        ranks == 1 ? "" : "s", run->ranks,
                        run->c->lr_linear ? ", and with them the rate (--lr-scaling linear)" : "");
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
