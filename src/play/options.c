#include "play/options.h"

#include "base/json.h"
#include "base/mem.h"

#include <stdio.h>
#include <string.h>

enum { WORDS = 3 };

static gw_err options_link(const gw_args *args, const char *owner, const char *option,
                           gw_sim_link *link) {
    static const gw_opt parts[] = {{"rate", GW_OPT_TEXT, ""},
                                   {"latency", GW_OPT_TIME, "0", 0, 10},
                                   {"overhead", GW_OPT_TIME, "0", 0, 10},
                                   {0}};
    char text[128], who[64], *rest = text;
    gw_args *of;
    snprintf(text, sizeof text, "%s", gw_args_text(args, option));
    snprintf(who, sizeof who, "%s: --%s", owner, option);
    GW_TRY(gw_args_new(&of, parts));
    gw_err e = GW_OK;
    for (int i = 0; rest && e == GW_OK; i++) {
        const char *word = strsep(&rest, ",");
        e = i < WORDS ? gw_args_set(of, who, parts[i].name, word)
                      : gw_fail(GW_ERR_USAGE, "%s: %s: more than RATE,LATENCY,OVERHEAD", who,
                                gw_args_text(args, option));
    }
    GW_THEN(e, gw_network_rate(who, "rate", gw_args_text(of, "rate"), &link->bytes_per_s));
    link->latency_s = gw_args_real(of, "latency");
    link->overhead_s = gw_args_real(of, "overhead");
    gw_args_free(of);
    return e;
}

gw_err gw_sim_network_read(gw_sim_setup *w, const gw_args *args, const char *owner) {
    if (!gw_args_given(args, "ranks") || !gw_args_given(args, "link"))
        return gw_fail(GW_ERR_USAGE, "%s: --ranks N and --link RATE are needed", owner);
    w->ranks = (int)gw_args_int(args, "ranks");
    w->per_host = (int)gw_args_int(args, "per-host");
    GW_TRY(options_link(args, owner, "link", &w->link));
    GW_TRY(options_link(args, owner, "memory-link", &w->memory));
    int hosts = (w->ranks + w->per_host - 1) / w->per_host;
    return gw_network_open(&w->network, gw_args_spec(args, "network"), hosts, w->link.bytes_per_s);
}

gw_err gw_sim_steps_read(gw_sim_play *p, gw_step_profile *profile, const gw_args *args,
                         const char *owner) {
    const char *path = gw_args_text(args, "profile");
    p->script.profile = profile;
    p->script.sleeps = strcmp(gw_args_text(args, "compute"), "sleep") == 0;
    p->script.speed = gw_args_real(args, "speed");
    p->script.bucket = (size_t)(gw_args_real(args, "bucket-mb") * 0x1p20);
    if (path)
        return gw_step_profile_read(profile, path);
    if (!gw_args_given(args, "bytes"))
        return profile->model
                   ? GW_OK
                   : gw_fail(GW_ERR_USAGE,
                             "%s: nothing to exchange: give --profile or --bytes, or a model, "
                             "as by --layers",
                             owner);
    size_t bytes = gw_args_bytes(args, "bytes"), n = bytes / sizeof(float);
    if (bytes % sizeof(float) != 0)
        return gw_fail(GW_ERR_USAGE, "%s: --bytes %zu: floats take a multiple of %zu bytes", owner,
                       bytes, sizeof(float));
    *profile = (gw_step_profile){.model = "bytes", .batch = 1, .n_tensors = 1, .groups = 1, .n = n};
    GW_TRY(gw_alloc(&profile->tensor, 1, sizeof *profile->tensor));
    *profile->tensor = (gw_step_tensor){.name = "bytes", .n = n, .std = 1};
    return GW_OK;
}

json_t *gw_sim_link_json(const gw_sim_link *l, const char *byte) {
    json_t *o = gw_json_object("bytes_per_s:f latency_s:f overhead_s:f", l->bytes_per_s,
                               l->latency_s, l->overhead_s);
    if (byte)
        json_object_set_new(o, byte, gw_json_number(l->byte_s));
    return o;
}

void gw_sim_coding(gw_codec_price *out, double seconds) {
    *out = (gw_codec_price){0};
    for (gw_coding k = 0; k < GW_CODINGS; k++)
        out->float_s[k] = seconds * (k == GW_CODING_ADOPT ? 2 : 1);
}

gw_err gw_sim_play_open(gw_sim_play *p, const gw_spec *comm, const gw_spec *compress) {
    GW_TRY(gw_codec_open(&p->exact, &gw_codec_exact));
    GW_TRY(gw_codec_open(&p->codec, compress));
    GW_TRY(gw_strategy_find(&p->strategy, comm));
    return gw_sim_algo_open(&p->algo, gw_args_spec(p->strategy.args, "algo"), &p->codec);
}

void gw_sim_play_close(gw_sim_play *p) {
    gw_algo_close(&p->algo);
    gw_strategy_free(&p->strategy);
    gw_codec_close(&p->codec);
    gw_codec_close(&p->exact);
    gw_network_close(p->world.network);
    p->world.network = NULL;
}

gw_err gw_sim_play_check(const gw_sim_play *p) {
    const gw_strategy *s = &p->strategy;
    const char *name = s->ops->head.name, *algo = p->algo.ops->head.name;
    unsigned caps = p->algo.ops->caps;
    bool fixed = p->codec.fixed || p->codec.caps & GW_CODEC_TIGHT;
    bool sized = (fixed && !p->codec.stage) || p->world.coded_bytes > 0;
    if (!sized || s->plan.picks)
        return gw_fail(GW_ERR_UNSUPPORTED,
                       "simulate: --comm %s --compress %s: bytes depend on the data, and a "
                       "simulation has none: use what has a fixed size, as fp16 or qsgd",
                       name, p->codec.spec);
    if (caps & GW_ALGO_SHARED)
        return gw_fail(
            GW_ERR_UNSUPPORTED,
            "simulate: algo=%s may work in memory that ranks share, which simulated ones do "
            "not: name another algorithm, as --comm %s:algo=ring (halving, sra, ..)",
            algo, name);
    if (s->plan.helpers > 0)
        return gw_fail(GW_ERR_UNSUPPORTED,
                       "simulate: --comm %s: simulated ranks have no threads: use progress=poll or "
                       "progress=none",
                       name);
    return gw_strategy_check(s, &p->algo, &p->codec);
}

gw_err gw_sim_play_exact(gw_sim_play *p, const char *comm) {
    gw_sim_setup *w = &p->world;
    gw_spec *spec = NULL;
    w->per_host = 1;
    gw_err e = gw_spec_parse(&spec, "play", "comm", comm, GW_SPEC_ONE);
    GW_THEN(e, gw_sim_play_open(p, spec, &gw_codec_exact));
    GW_THEN(e, gw_network_open(&w->network, NULL, w->ranks, w->link.bytes_per_s));
    GW_THEN(e, gw_sim_play_run(p));
    gw_sim_play_close(p);
    gw_spec_free(spec);
    return e;
}
