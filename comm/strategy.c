#include "comm/strategy.h"

#include "base/mem.h"
#include "comm/algo.h"
#include "mpi/agree.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define X(name) extern const gw_strategy_ops gw_strategy_##name;
#include "comm/strategies.def"
#undef X

static const gw_entry *const entries[] = {
#define X(name) &gw_strategy_##name.head,
#include "comm/strategies.def"
#undef X
    NULL,
};

static const gw_hook needs[] = {GW_HOOK(gw_strategy_ops, open),
                                GW_HOOK(gw_strategy_ops, close),
                                GW_HOOK(gw_strategy_ops, finish),
                                GW_HOOK(gw_strategy_ops, cost),
                                {0}};

const gw_registry gw_strategies = {.kind = "strategy",
                                   .symbol = "gw_strategy_plugin",
                                   .abi = GW_STRATEGY_ABI,
                                   .entries = entries,
                                   .needs = needs};

gw_err gw_exchange_misplaced(const gw_registry *reg, const char *name) {
    static const struct {
        const gw_registry *reg;
        const char *word;
    } all[] = {{&gw_strategies, "--comm "},
               {&gw_codecs, "--compress "},
               {&gw_algos, "--comm allreduce:algo="}};
    int other = -1;
    for (int i = 0; i < 3; i++)
        for (const gw_entry *const *e = all[i].reg->entries; *e; e++) {
            if (strcmp((*e)->name, name) != 0)
                continue;
            if (all[i].reg == reg)
                return GW_OK;
            other = other < 0 ? i : other;
        }
    return other < 0 ? GW_OK
                     : gw_fail(GW_ERR_USAGE, "unknown %s '%s': it is %s %s: write %s%s", reg->kind,
                               name, all[other].reg == &gw_algos ? "an" : "a", all[other].reg->kind,
                               all[other].word, name);
}

gw_err gw_strategy_find(gw_strategy *out, const gw_spec *spec) {
    const gw_entry *entry = NULL;
    GW_TRY(gw_exchange_misplaced(&gw_strategies, spec->name));
    GW_TRY(gw_registry_find(&gw_strategies, spec->name, &entry));
    *out = (gw_strategy){.ops = (const gw_strategy_ops *)entry}; /* head is the first member */
    GW_TRY(gw_args_of(&out->args, entry->opts, entry->name, spec));
    out->plan = (gw_strategy_plan){
        .args = out->args, .polls = out->ops->progress, .agrees = out->ops->agrees};
    if (out->ops->plan)
        out->ops->plan(&out->plan); /* what it refuses is said with algorithm and codec */
    const char *fault = NULL;
    if (!out->ops->gives)
        fault = "does not say what finish() hands out: set `gives`";
    else if (out->ops->shape == GW_SHAPE_BUCKETS && !gw_args_has(out->args, "bucket"))
        fault = "cuts into buckets, but has no option bucket: give it one";
    if (!fault)
        return GW_OK;
    gw_strategy_free(out);
    return gw_fail(GW_ERR_INPUT, "strategy %s: %s", entry->name, fault);
}

const char *gw_strategy_shape_name(const gw_strategy_ops *ops) {
    static const char *const names[] = {[GW_SHAPE_OTHER] = "other",
                                        [GW_SHAPE_WHOLE] = "whole",
                                        [GW_SHAPE_BUCKETS] = "buckets",
                                        [GW_SHAPE_LAYERS] = "layers"};
    return ops->gives == GW_GIVES_PARTS ? "shards"
           : ops->gives == GW_GIVES_OWN ? "parameters"
                                        : names[ops->shape];
}

int gw_strategy_thread_level(const gw_strategy *s) {
    return s->plan.helpers == 0 ? MPI_THREAD_FUNNELED : MPI_THREAD_SERIALIZED;
}

const char *gw_strategy_names(bool (*fits)(const gw_strategy_ops *ops),
                              char text[GW_STRATEGY_NAMES]) {
    int len = 0;
    text[0] = '\0';
    for (const gw_entry *const *e = entries; *e; e++)
        if (fits((const gw_strategy_ops *)*e) && len < GW_STRATEGY_NAMES)
            len += snprintf(text + len, (size_t)(GW_STRATEGY_NAMES - len), "%s%s", len ? ", " : "",
                            (*e)->name);
    return text;
}

void gw_strategy_free(gw_strategy *s) {
    gw_args_free(s->args);
    memset(s, 0, sizeof *s);
}

gw_err gw_strategy_check(const gw_strategy *s, const gw_algo *algo, const gw_codec *codec) {
    gw_strategy_plan plan = {.args = s->args, .algo = algo, .codec = codec};
    const char *why = s->ops->plan ? s->ops->plan(&plan) : NULL;
    return why ? gw_fail(GW_ERR_UNSUPPORTED, "strategy %s: %s", s->ops->head.name, why) : GW_OK;
}

gw_err gw_strategy_open(const gw_strategy *s, const gw_env *env, void **self) {
    void *fresh = NULL;
    GW_TRY(gw_lane_agree(env->grads, gw_alloc(&fresh, 1, s->ops->size)));
    gw_err e = s->ops->open(fresh, env);
    if (e == GW_OK)
        *self = fresh;
    else
        gw_strategy_close(s, fresh);
    return e;
}

void gw_strategy_close(const gw_strategy *s, void *self) {
    if (!self)
        return;
    s->ops->close(self);
    free(self);
}

int64_t gw_strategy_period(const gw_strategy_ops *ops, const void *self, int64_t from) {
    int64_t period = 1;
    if (ops->traits & GW_STRATEGY_VARIES)
        ops->cost(self, from, &period);
    return period;
}

gw_span gw_strategy_owned(const gw_strategy_ops *ops, const gw_lane *lane, gw_span s) {
    if (ops->gives == GW_GIVES_PARTS)
        return gw_span_part(s, gw_lane_rank(lane), gw_lane_size(lane));
    return ops->gives == GW_GIVES_ROOT && gw_lane_rank(lane) > 0 ? (gw_span){s.off, 0} : s;
}

gw_err gw_strategy_finish(const gw_strategy_ops *ops, void *self, const gw_env *env, gw_span s,
                          gw_update *u) {
    *u =
        (gw_update){.grad = env->grad, .own = gw_strategy_owned(ops, env->grads, s), .scale = 1.0f};
    if (ops->gives == GW_GIVES_OWN) { /* the gradient is divided by the global batch */
        u->own.n = env->share > 0 ? s.n : 0;
        u->scale = env->share > 0 ? (float)(1 / env->share) : 0.0f;
    }
    return ops->finish(self, s, u);
}

const char *gw_strategy_plan_exact(gw_strategy_plan *p) {
    if (!p->codec || p->codec->ops->caps & GW_CODEC_IDENTITY) /* in a frame or not */
        return NULL;
    return "it exchanges parameters, which are never compressed: use --compress none";
}
