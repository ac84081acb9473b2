#include "comm/mix.h"

#include "base/list.h"
#include "base/mem.h"
#include "base/text.h"
#include "comm/lane_parts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- reading a spec ---- */

static const gw_opt rule_opts[] = {
    {"min_bytes", GW_OPT_BYTES, "0", 0, 0x1p40, NULL, "BYTES", "smaller tensors go exact"}, {0}};

static gw_err add_codec(gw_mix *mix, const char *spec, const char *algo_spec, int layer) {
    int i = mix->n;
    if (i == GW_MIX_CODECS)
        return gw_fail(GW_ERR_USAGE, "compress: more than %d codecs in one mix", GW_MIX_CODECS);
    GW_TRY(gw_codec_open(&mix->codec[i], spec));
    if (mix->framed)
        gw_codec_frame(&mix->codec[i]);
    mix->codec[i].partial = i > 0;
    mix->layer[i] = layer;
    mix->n++;
    return gw_algo_open(&mix->algo[i], algo_spec, &mix->codec[i]);
}

static gw_err read_codec(gw_mix *mix, const char *spec, const char *algo_spec, int layer) {
    size_t len = strlen(spec);
    bool wrapped = len > 1 && spec[0] == '(' && spec[len - 1] == ')';
    char *bare = wrapped ? strndup(spec + 1, len - 2) : strdup(spec);
    gw_err e = bare ? add_codec(mix, bare, algo_spec, layer)
                    : gw_fail(GW_ERR_NOMEM, "compress: out of memory");
    free(bare);
    return e;
}

static gw_err read_layer(gw_mix *mix, const char *rule, const char *algo_spec) {
    char *end;
    long layer = strtol(rule + strlen("layer"), &end, 10);
    if (end == rule + strlen("layer") || *end != '=' || layer < 0 || layer > 1 << 20)
        return gw_fail(GW_ERR_USAGE,
                       "compress: rule '%s': must be layerN=CODEC, N a whole number from 0 on",
                       rule);
    for (int i = 1; i < mix->n; i++)
        if (mix->layer[i] == layer)
            return gw_fail(GW_ERR_USAGE, "compress: two rules for layer %ld", layer);
    return read_codec(mix, end + 1, algo_spec, (int)layer);
}

static gw_err read_rule(gw_mix *mix, const char *rule, const char *algo_spec) {
    if (strncmp(rule, "layer", strlen("layer")) == 0)
        return read_layer(mix, rule, algo_spec);
    gw_args *args;
    GW_TRY(gw_args_new(&args, rule_opts));
    gw_err e = gw_args_spec(args, "compress rule", rule);
    bool again = e == GW_OK && mix->exact >= 0;
    mix->min_bytes = e == GW_OK ? gw_args_bytes(args, "min_bytes") : 0;
    gw_args_free(args);
    GW_TRY(e);
    if (again)
        return gw_fail(GW_ERR_USAGE, "compress: min_bytes is given twice");
    mix->exact = mix->n;
    return add_codec(mix, "none", algo_spec, -1);
}

static gw_err read_all(gw_mix *mix, const gw_list *parts, const char *algo_spec) {
    GW_TRY(add_codec(mix, parts->item[0], algo_spec, -1));
    for (int i = 1; i < parts->n; i++)
        GW_TRY(read_rule(mix, parts->item[i], algo_spec));
    for (int i = 0; i < mix->n && mix->n > 1; i++)
        if (strcmp(mix->algo[i].ops->head.name, "auto") == 0)
            return gw_fail(
                GW_ERR_UNSUPPORTED,
                "compress: algo=auto chooses for one codec, and this is a mix of %d: name "
                "an algorithm, or none for each codec's own",
                mix->n);
    return GW_OK;
}

gw_err gw_mix_open(gw_mix *out, const char *spec, const char *algo_spec, bool framed) {
    gw_mix mix = {.exact = -1, .framed = framed};
    gw_list parts = {0};
    gw_err e = gw_list_read(&parts, "compress", "mix", spec, false);
    if (e == GW_OK)
        e = read_all(&mix, &parts, algo_spec);
    gw_list_free(&parts);
    gw_text_print(mix.spec, sizeof mix.spec, "%s", spec);
    if (e != GW_OK) {
        gw_mix_close(&mix);
        return e;
    }
    *out = mix;
    return GW_OK;
}

void gw_mix_close(gw_mix *mix) {
    for (int i = 0; i < GW_MIX_CODECS; i++) {
        gw_algo_close(&mix->algo[i]);
        gw_codec_close(&mix->codec[i]);
    }
    mix->n = 0;
}

int gw_mix_choice(const gw_mix *mix, const gw_tensor *tensor) {
    for (int i = 1; i < mix->n; i++)
        if (mix->layer[i] == tensor->layer)
            return i;
    bool small = tensor->span.n * sizeof(float) < mix->min_bytes;
    return small && mix->exact >= 0 ? mix->exact : 0;
}

/* ---- on a lane ---- */

static gw_err check_layers(const gw_mix *mix, const gw_tensor *tensors, int n_tensors) {
    int last = n_tensors > 0 ? tensors[n_tensors - 1].layer : -1;
    for (int i = 1; i < mix->n; i++)
        if (mix->layer[i] > last)
            return gw_fail(GW_ERR_USAGE,
                           "compress: rule for layer %d: the model's layers are 0 to %d",
                           mix->layer[i], last);
    return GW_OK;
}

/* Runs of neighbouring tensors with one codec each. */
static int cut(const gw_mix *mix, const gw_lane *by_codec[], const gw_tensor *tensors, int n,
               gw_lane_run *runs) {
    int count = 0, last = -1;
    for (int t = 0; t < n; t++) {
        int i = gw_mix_choice(mix, &tensors[t]);
        if (i == last)
            runs[count - 1].span.n += tensors[t].span.n;
        else
            runs[count++] = (gw_lane_run){tensors[t].span, (gw_lane *)by_codec[i], &mix->algo[i]};
        last = i;
    }
    return count;
}

gw_err gw_mix_apply(const gw_mix *mix, gw_lane *lane, const gw_tensor *tensors, int n_tensors,
                    const bool *feedback) {
    if (mix->n == 1)
        return GW_OK;
    GW_TRY(check_layers(mix, tensors, n_tensors)); /* the same on all ranks */
    const gw_lane *by_codec[GW_MIX_CODECS] = {lane};
    for (int i = 1; i < mix->n; i++) {
        gw_lane *other;
        bool apart = !(mix->algo[i].ops->caps & GW_ALGO_ORDERED);
        GW_TRY(gw_lane_branch(lane, (gw_codec *)&mix->codec[i], apart, feedback[i], &other));
        by_codec[i] = other;
    }
    gw_lane_run *runs = NULL;
    gw_err e = gw_alloc(&runs, (size_t)n_tensors, sizeof *runs);
    if (e == GW_OK)
        e = gw_lane_attach(lane, runs, runs, free);
    GW_TRY(gw_agree(lane->comm, e));
    lane->n_runs = cut(mix, by_codec, tensors, n_tensors, runs);
    lane->runs = runs;
    return GW_OK;
}
