#include "comm/mix.h"

#include "base/mem.h"
#include "base/text.h"
#include "comm/strategy.h"

#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>

#define RULES "layerN=CODEC, PATTERN=CODEC (names of tensors) or min_bytes=BYTES"

/* ---- reading a spec ---- */

static const gw_opt rule_opts[] = {
    {"min_bytes", GW_OPT_BYTES, "0", 0, 0x1p40, NULL, "BYTES", "smaller tensors go exact"}, {0}};

static gw_err mix_add(gw_mix *mix, const gw_spec *spec, int layer) {
    int i = mix->n;
    if (i == GW_MIX_CODECS)
        return gw_fail(GW_ERR_USAGE, "compress: more than %d codecs in one mix", GW_MIX_CODECS);
    GW_TRY(gw_exchange_misplaced(&gw_codecs, spec->name));
    GW_TRY(gw_codec_open(&mix->codec[i], spec));
    if (mix->framed)
        gw_codec_frame(&mix->codec[i]);
    mix->codec[i].partial = i > 0;
    mix->layer[i] = layer;
    mix->n++;
    return GW_OK;
}

/* N of the key "layerN"; -1: it is no such. */
static long mix_layer_of(const char *key) {
    size_t name = strlen("layer"), digits;
    if (strncmp(key, "layer", name) != 0)
        return -1;
    digits = strspn(key + name, "0123456789");
    return digits > 0 && digits < 8 && !key[name + digits] ? strtol(key + name, NULL, 10) : -1;
}

/* A misspelt key is taken for a name: so the line names all that it could be. */
static gw_err mix_pattern(gw_mix *mix, const gw_spec *rule) {
    char why[512];
    for (int i = 1; i < mix->n; i++)
        if (mix->pattern[i] && strcmp(mix->pattern[i], rule->key) == 0)
            return gw_fail(GW_ERR_USAGE, "compress: two rules for %s", rule->key);
    mix->pattern[mix->n] = rule->key;
    gw_err e = mix_add(mix, rule->parts, -1);
    if (e != GW_ERR_USAGE)
        return e;
    gw_text_copy(why, sizeof why, gw_err_text());
    return gw_fail(e, "compress: rule '%s': must be " RULES ": %s", rule->text, why);
}

static gw_err mix_min_bytes(gw_mix *mix, const gw_spec *rule) {
    gw_args *args;
    GW_TRY(gw_args_new(&args, rule_opts));
    gw_err e = gw_args_set(args, "compress rule", rule->key, rule->parts->text);
    mix->min_bytes = gw_args_bytes(args, "min_bytes");
    gw_args_free(args);
    GW_TRY(e);
    if (mix->exact >= 0)
        return gw_fail(GW_ERR_USAGE, "compress: min_bytes is given twice");
    mix->exact = mix->n;
    return mix_add(mix, &gw_codec_exact, -1);
}

static gw_err mix_rule(gw_mix *mix, const gw_spec *rule) {
    if (!rule->key)
        return gw_fail(GW_ERR_USAGE, "compress: rule '%s': must be " RULES, rule->text);
    long layer = mix_layer_of(rule->key);
    for (int i = 1; i < mix->n; i++)
        if (layer >= 0 && mix->layer[i] == layer)
            return gw_fail(GW_ERR_USAGE, "compress: two rules for layer %ld", layer);
    if (layer >= 0)
        return mix_add(mix, rule->parts, (int)layer);
    return strcmp(rule->key, "min_bytes") == 0 ? mix_min_bytes(mix, rule) : mix_pattern(mix, rule);
}

gw_err gw_mix_open(gw_mix *out, const gw_spec *spec, bool framed) {
    const gw_spec *first = spec->parts, *rule = first->next;
    if (strcmp(first->name, "auto") == 0 && !rule) {
        *out = (gw_mix){.framed = framed};
        return GW_OK;
    }
    gw_mix mix;
    GW_TRY(gw_mix_single(&mix, first, framed));
    mix.spec = spec->text;
    gw_err e = GW_OK;
    for (; rule && e == GW_OK; rule = rule->next)
        e = mix_rule(&mix, rule);
    if (e == GW_OK)
        *out = mix;
    else
        gw_mix_close(&mix);
    return e;
}

gw_err gw_mix_single(gw_mix *out, const gw_spec *codec, bool framed) {
    *out = (gw_mix){.spec = codec->text, .exact = -1, .framed = framed};
    return mix_add(out, codec, -1);
}

gw_err gw_mix_carry(gw_mix *mix, const gw_spec *algo) {
    for (int i = 0; i < mix->n; i++)
        GW_TRY(gw_algo_open(&mix->algo[i], algo, &mix->codec[i]));
    for (int i = 0; i < mix->n && mix->n > 1; i++)
        if (strcmp(mix->algo[i].ops->head.name, "auto") == 0)
            return gw_fail(
                GW_ERR_UNSUPPORTED,
                "compress: algo=auto chooses for one codec, and this is a mix of %d: name "
                "an algorithm, or none for each codec's own",
                mix->n);
    return GW_OK;
}

bool gw_mix_warms(const gw_mix *mix) {
    unsigned caps = 0;
    for (int i = 0; i < mix->n; i++)
        caps |= mix->codec[i].caps;
    return caps & GW_CODEC_WARMS;
}

void gw_mix_close(gw_mix *mix) {
    for (int i = 0; i < GW_MIX_CODECS; i++) {
        gw_algo_close(&mix->algo[i]);
        gw_codec_close(&mix->codec[i]);
    }
    mix->n = 0;
}

/* ---- on a lane ---- */

static gw_err mix_check_pattern(const char *pattern, const gw_mix_model *m) {
    enum { MOST = 6 }; /* names in the message */
    char names[480] = "", name[64];
    if (!m->names || m->layers > 0)
        return gw_fail(GW_ERR_USAGE,
                       "compress: rule for '%s': this model's tensors have no names: must be "
                       "layerN=CODEC or min_bytes=BYTES",
                       pattern);
    for (int t = 0; t < m->n_tensors; t++)
        if (fnmatch(pattern, m->names[t], 0) == 0)
            return GW_OK;
    for (int t = 0; t < m->n_tensors && t < MOST; t++) {
        size_t at = strlen(names);
        gw_text_plain(name, sizeof name, m->names[t]);
        snprintf(names + at, sizeof names - at, "%s%s", at ? ", " : "", name);
    }
    size_t at = strlen(names);
    if (m->n_tensors > MOST)
        snprintf(names + at, sizeof names - at, ", .. (%d in all)", m->n_tensors);
    return gw_fail(GW_ERR_USAGE, "compress: rule for '%s': no tensor has such a name: there are %s",
                   pattern, names);
}

/* Index of the codec for tensor t. */
static int mix_choice(const gw_mix *mix, const gw_mix_model *m, int t) {
    for (int i = 1; i < mix->n; i++)
        if (mix->pattern[i] ? fnmatch(mix->pattern[i], m->names[t], 0) == 0
                            : mix->layer[i] == m->tensors[t].layer)
            return i;
    bool small = m->tensors[t].span.n * sizeof(float) < mix->min_bytes;
    return small && mix->exact >= 0 ? mix->exact : 0;
}

gw_err gw_mix_apply(const gw_mix *mix, gw_lane *lane, const gw_mix_model *m, const bool *feedback) {
    gw_lane *by_codec[GW_MIX_CODECS] = {lane};
    if (mix->n == 1)
        return GW_OK;
    int last = m->layers > 0      ? m->layers - 1
               : m->n_tensors > 0 ? m->tensors[m->n_tensors - 1].layer
                                  : -1;
    for (int i = 1; i < mix->n; i++) /* the same on all ranks */
        if (mix->layer[i] > last)
            return gw_fail(GW_ERR_USAGE,
                           "compress: rule for layer %d: the model's layers are 0 to %d",
                           mix->layer[i], last);
    for (int i = 1; i < mix->n; i++)
        if (mix->pattern[i])
            GW_TRY(mix_check_pattern(mix->pattern[i], m));
    gw_codings *codings = gw_lane_encoder(lane)->codings;
    for (int i = 1; i < mix->n; i++) {
        bool apart = !(mix->algo[i].ops->caps & GW_ALGO_ORDERED);
        GW_TRY(gw_lane_branch(lane, (gw_codec *)&mix->codec[i], apart, feedback[i], &by_codec[i]));
        gw_lane_encoder(by_codec[i])->codings = codings ? codings + i : NULL;
    }
    gw_lane_run *runs = NULL; /* neighbouring tensors with one codec each */
    gw_err e = gw_alloc(&runs, (size_t)m->n_tensors, sizeof *runs);
    GW_THEN(e, gw_lane_attach(lane, runs, runs, free));
    GW_TRY(gw_lane_agree(lane, e));
    int count = 0;
    for (int t = 0, before = -1; t < m->n_tensors; t++) {
        int i = mix_choice(mix, m, t);
        gw_span span = m->tensors[t].span;
        if (i == before)
            runs[count - 1].span.n += span.n;
        else
            runs[count++] = (gw_lane_run){span, by_codec[i], &mix->algo[i]};
        before = i;
    }
    gw_lane_divide(lane, runs, count);
    return GW_OK;
}
