#include "comm/mix.h"

#include "base/mem.h"
#include "comm/lane_parts.h"

#include <stdlib.h>
#include <string.h>

/* ---- reading a spec ---- */

static const gw_opt rule_opts[] = {
    {"min_bytes", GW_OPT_BYTES, "0", 0, 0x1p40, NULL, "BYTES", "smaller tensors go exact"}, {0}};

static gw_err mix_add(gw_mix *mix, const gw_spec *spec, int layer) {
    int i = mix->n;
    if (i == GW_MIX_CODECS)
        return gw_fail(GW_ERR_USAGE, "compress: more than %d codecs in one mix", GW_MIX_CODECS);
    GW_TRY(gw_codec_open(&mix->codec[i], spec));
    if (mix->framed)
        gw_codec_frame(&mix->codec[i]);
    mix->codec[i].partial = i > 0;
    mix->layer[i] = layer;
    mix->n++;
    return GW_OK;
}

static gw_err mix_layer(gw_mix *mix, const gw_spec *rule) {
    char *end;
    const char *number = rule->key + strlen("layer");
    long layer = strtol(number, &end, 10);
    if (end == number || *end || layer > 1 << 20)
        return gw_fail(GW_ERR_USAGE,
                       "compress: rule '%s': must be layerN=CODEC, N a whole number from 0 on",
                       rule->text);
    for (int i = 1; i < mix->n; i++)
        if (mix->layer[i] == layer)
            return gw_fail(GW_ERR_USAGE, "compress: two rules for layer %ld", layer);
    return mix_add(mix, rule->parts, (int)layer);
}

static gw_err mix_rule(gw_mix *mix, const gw_spec *rule) {
    gw_args *args;
    if (!rule->key)
        return gw_fail(GW_ERR_USAGE, "compress: rule '%s': must be layerN=CODEC or min_bytes=BYTES",
                       rule->text);
    if (strncmp(rule->key, "layer", strlen("layer")) == 0)
        return mix_layer(mix, rule);
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

void gw_mix_close(gw_mix *mix) {
    for (int i = 0; i < GW_MIX_CODECS; i++) {
        gw_algo_close(&mix->algo[i]);
        gw_codec_close(&mix->codec[i]);
    }
    mix->n = 0;
}

/* ---- on a lane ---- */

static gw_err mix_check_layers(const gw_mix *mix, int layers, const gw_tensor *tensors,
                               int n_tensors) {
    int last = layers > 0 ? layers - 1 : n_tensors > 0 ? tensors[n_tensors - 1].layer : -1;
    for (int i = 1; i < mix->n; i++)
        if (mix->layer[i] > last)
            return gw_fail(GW_ERR_USAGE,
                           "compress: rule for layer %d: the model's layers are 0 to %d",
                           mix->layer[i], last);
    return GW_OK;
}

/* Index of the codec for a tensor. */
static int mix_choice(const gw_mix *mix, const gw_tensor *tensor) {
    for (int i = 1; i < mix->n; i++)
        if (mix->layer[i] == tensor->layer)
            return i;
    bool small = tensor->span.n * sizeof(float) < mix->min_bytes;
    return small && mix->exact >= 0 ? mix->exact : 0;
}

/* Runs of neighbouring tensors with one codec each. */
static int mix_cut(const gw_mix *mix, const gw_lane *by_codec[], const gw_tensor *tensors, int n,
                   gw_lane_run *runs) {
    int count = 0, last = -1;
    for (int t = 0; t < n; t++) {
        int i = mix_choice(mix, &tensors[t]);
        if (i == last)
            runs[count - 1].span.n += tensors[t].span.n;
        else
            runs[count++] = (gw_lane_run){tensors[t].span, (gw_lane *)by_codec[i], &mix->algo[i]};
        last = i;
    }
    return count;
}

gw_err gw_mix_apply(const gw_mix *mix, gw_lane *lane, int layers, const gw_tensor *tensors,
                    int n_tensors, const bool *feedback) {
    if (mix->n == 1)
        return GW_OK;
    GW_TRY(mix_check_layers(mix, layers, tensors, n_tensors)); /* the same on all ranks */
    const gw_lane *by_codec[GW_MIX_CODECS] = {lane};
    for (int i = 1; i < mix->n; i++) {
        gw_lane *other;
        bool apart = !(mix->algo[i].ops->caps & GW_ALGO_ORDERED);
        GW_TRY(gw_lane_branch(lane, (gw_codec *)&mix->codec[i], apart, feedback[i], &other));
        by_codec[i] = other;
    }
    gw_lane_run *runs = NULL;
    gw_err e = gw_alloc(&runs, (size_t)n_tensors, sizeof *runs);
    GW_THEN(e, gw_lane_attach(lane, runs, runs, free));
    GW_TRY(gw_agree(lane->comm, e));
    lane->n_runs = mix_cut(mix, by_codec, tensors, n_tensors, runs);
    lane->runs = runs;
    return GW_OK;
}
