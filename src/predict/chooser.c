/* What --compress auto may choose among, read and checked before MPI starts; and how a choice is
 * told. */
#include "predict/chooser.h"

#include "base/json.h"
#include "base/mem.h"
#include "predict/codec.h"
#include "run/residuals.h"
#include "run/session.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const gw_opt opts[] = {
    {"codecs", GW_OPT_SPECS, GW_CHOOSER_CODECS, 0, 0, NULL, "(A;B;..)", "codecs to choose among"},
    {"algos", GW_OPT_SPECS, "", 0, 0, NULL, "(A;B;..)",
     "algorithms to choose among, where the strategy names none"},
    {"budget", GW_OPT_TIME, "3", 1e-3, 3600, NULL, NULL, "time for measuring algorithms"},
    {"margin", GW_OPT_REAL, "0.05", 0, 1, NULL, "X", "compress for a larger gain only"},
    {0}};

/* ---- strategies that are known ---- */

/* Those that exchange gradients by a codec in every step, on ranks that all compute. */
static bool chooser_knows(const gw_strategy_ops *ops) {
    bool known = ops->shape != GW_SHAPE_OTHER || ops->gives == GW_GIVES_PARTS;
    return known && !(ops->traits & GW_STRATEGY_LOSSY);
}

static gw_err chooser_check_known(const gw_chooser *a) {
    const char *feedback = a->config->run.feedback,
               *who = a->named ? "--forecast" : "--compress auto";
    const char *instead = a->named ? "remove --forecast" : "name a codec";
    char names[GW_STRATEGY_NAMES];
    if (!chooser_knows(a->strategy->ops))
        return gw_fail(
            GW_ERR_UNSUPPORTED, "%s: steps are predicted with the strategies %s, not with %s: %s",
            who, gw_strategy_names(chooser_knows, names), a->strategy->ops->head.name, instead);
    if (gw_residuals_ruled(feedback))
        return gw_fail(GW_ERR_UNSUPPORTED, "%s: steps with error-feedback=%s are not predicted: %s",
                       who, feedback, instead);
    return GW_OK;
}

/* ---- reading ---- */

const gw_spec *gw_chooser_named(const gw_chooser *a) {
    return gw_args_spec(a->strategy->args, "algo");
}

/* The strategy's own, or the session's, or those listed, or all that are no choice themselves. */
static void chooser_name_algos(gw_chooser *a) {
    if (gw_chooser_named(a))
        a->algo[a->n_algos++] = *gw_chooser_named(a);
    else if (a->named)
        a->algo[a->n_algos++] = GW_SPEC_NAMED(a->session->mix.algo->ops->head.name);
    for (const gw_spec *s = a->algos; s; s = s->next)
        a->algo[a->n_algos++] = *s;
    for (const gw_entry *const *e = a->n_algos ? NULL : gw_algos.entries; e && *e; e++)
        if (strcmp((*e)->name, "auto") != 0 && a->n_algos < GW_SPEC_ITEMS)
            a->algo[a->n_algos++] = GW_SPEC_NAMED((*e)->name);
}

/* Encodings that drop most values are gathered, unless somebody asked for another way: summed on
 * the way they would be thinned out again at every hop. */
gw_err gw_chooser_combine(const gw_chooser *a, const gw_codec *codec, const gw_spec *spec,
                          bool *ok) {
    bool gathers = codec->caps & GW_CODEC_SPARSE && !gw_chooser_named(a) && !a->algos, fits = true;
    gw_algo algo;
    gw_err e = gw_algo_open(&algo, spec, codec);
    if (e == GW_OK) {
        fits = !gathers || algo.ops->caps & GW_ALGO_ONCE;
        e = gw_strategy_check(a->strategy, &algo, codec);
        gw_algo_close(&algo);
    }
    *ok = e == GW_OK && fits;
    return e == GW_ERR_UNSUPPORTED ? GW_OK : e;
}

static gw_err chooser_read_all(gw_chooser *a, const gw_args *args) {
    const gw_spec *algos = gw_args_spec(args, "algos");
    bool any = false;
    a->budget_s = gw_args_real(args, "budget");
    a->margin = gw_args_real(args, "margin");
    a->default_codecs = !gw_args_given(args, "codecs");
    for (const gw_spec *s = gw_args_spec(args, "codecs")->parts; s; s = s->next)
        a->codec[a->n_codecs++] = *s;
    if (algos && gw_chooser_named(a))
        return gw_fail(GW_ERR_USAGE,
                       "auto: algos=%s: the strategy names its algorithm already (%s): give one "
                       "of the two",
                       algos->text, gw_chooser_named(a)->text);
    a->algos = algos ? algos->parts : NULL;
    chooser_name_algos(a);
    for (int i = 0; i < a->n_codecs; i++) {
        gw_mix mix;
        GW_TRY(gw_mix_single(&mix, &a->codec[i], a->config->run.wire_check));
        gw_err e = GW_OK;
        for (int k = 0; e == GW_OK && k < a->n_algos; k++) {
            bool ok;
            e = gw_chooser_combine(a, mix.codec, &a->algo[k], &ok);
            any |= ok;
        }
        gw_mix_close(&mix);
        GW_TRY(e);
    }
    if (any)
        return GW_OK;
    char last[512];
    snprintf(last, sizeof last, "%s", gw_err_text());
    return gw_fail(GW_ERR_UNSUPPORTED, "auto: codecs=%s: nothing of it can be combined; %s",
                   gw_args_text(args, "codecs"), last);
}

gw_err gw_chooser_open(gw_chooser **out, gw_session *session, const gw_train_config *c,
                       const gw_args *args, bool forecast) {
    int codecs = session->mix.n;
    if (codecs > 0 && !forecast)
        return GW_OK;
    if (codecs > 1)
        return gw_fail(GW_ERR_UNSUPPORTED,
                       "--forecast: steps are predicted with one codec for all tensors, not with "
                       "--compress '%s': remove --forecast",
                       c->run.compress->text);
    gw_chooser *a = NULL;
    GW_TRY(gw_alloc(&a, 1, sizeof *a));
    *out = a;
    a->session = session;
    a->strategy = &session->strategy;
    a->config = c;
    a->named = codecs > 0;
    a->measured_s = NAN;
    a->chosen = a->plain = -1;
    GW_TRY(chooser_check_known(a));
    if (!a->named && !args)
        GW_TRY(gw_args_of(&a->args, opts, "auto", c->run.compress->parts));
    if (!a->named)
        return chooser_read_all(a, args ? args : a->args);
    a->budget_s = 1; /* one way is measured, so little time does */
    a->codec[a->n_codecs++] = *c->run.compress->parts;
    chooser_name_algos(a);
    return GW_OK;
}

bool gw_chooser_chooses(const gw_chooser *a) {
    return a && !a->named;
}

const gw_candidate *gw_chooser_choice(const gw_chooser *a) {
    return gw_chooser_chooses(a) && a->chosen >= 0 ? &a->candidate[a->chosen] : NULL;
}

void gw_chooser_free(gw_chooser *a) {
    if (!a)
        return;
    gw_args_free(a->args);
    free(a->candidate);
    json_decref(a->link);
    json_decref(a->memory);
    free(a);
}

/* ---- what was predicted, and from what ---- */

static json_t *chooser_points(const gw_curve *c) {
    json_t *points = c->n > 0 ? json_array() : json_null();
    for (int i = 0; i < c->n; i++)
        json_array_append_new(points,
                              gw_json_object("bytes:f time_s:f", c->bytes[i], c->time_s[i]));
    return points;
}

static json_t *chooser_json_candidate(const gw_candidate *c) {
    return gw_json_object(
        "codec:s algorithm:s error_feedback:b step_s:f local_s:f codec_s:f exposed_s:f "
        "wire_bytes:f bytes_per_float:f seconds_per_float:o exchange:o measured_step_s:f",
        c->codec, c->algo, c->feedback, c->step_s, c->local_s, c->codec_s, c->exposed_s, c->sent,
        c->bytes, gw_codec_price_json(c->price), chooser_points(&c->exchange), c->measured_s);
}

json_t *gw_chooser_json(const gw_chooser *a) {
    json_t *all = json_array();
    for (int i = 0; i < a->n; i++)
        json_array_append_new(all, chooser_json_candidate(&a->candidate[i]));
    const gw_candidate *c = &a->candidate[a->chosen];
    json_t *out = gw_json_object(
        "codec:s algorithm:s error_feedback:b how:s why:s margin:f predicted_step_s:f local_s:f "
        "codec_s:f exposed_s:f measured_step_s:f ratio:f ranks:i nodes:i",
        c->codec, c->algo, c->feedback,
        "simulated: local + codec + exposed of a played step (docs/benchmarks.md, plan), out of "
        "parts measured before the first step",
        a->named ? NULL : a->why, a->named ? NAN : a->margin, c->step_s, c->local_s, c->codec_s,
        c->exposed_s, a->measured_s, c->step_s / a->measured_s, a->ranks, a->nodes);
    gw_json_add(out, "local:o links:o memory:o candidates:o", gw_layers_json(&a->times),
                json_incref(a->link), json_incref(a->memory), all);
    return out;
}
