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
    if (out->ops->shape != GW_SHAPE_BUCKETS || gw_args_has(out->args, "bucket"))
        return GW_OK;
    gw_strategy_free(out);
    return gw_fail(GW_ERR_INPUT,
                   "strategy %s: cuts into buckets, but has no option bucket: give it one",
                   entry->name);
}

const char *gw_strategy_shape_name(gw_strategy_shape shape) {
    static const char *const names[] = {
        [GW_SHAPE_OTHER] = "other",     [GW_SHAPE_WHOLE] = "whole",
        [GW_SHAPE_BUCKETS] = "buckets", [GW_SHAPE_LAYERS] = "layers",
        [GW_SHAPE_SHARDS] = "shards",   [GW_SHAPE_PARAMETERS] = "parameters",
    };
    return names[shape];
}

int gw_strategy_thread_level(const gw_strategy *s) {
    bool alone = !s->ops->helpers || s->ops->helpers(s->args) == 0;
    return alone ? MPI_THREAD_FUNNELED : MPI_THREAD_SERIALIZED;
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
    const char *why = s->ops->refuses ? s->ops->refuses(s->args, algo, codec) : NULL;
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

gw_err gw_env_find(const gw_env *env, gw_span s, int *i) {
    for (*i = 0; *i < gw_env_spans(env); ++*i) {
        gw_span k = gw_env_span(env, *i);
        if (k.off == s.off && k.n == s.n)
            return GW_OK;
    }
    return gw_fail(GW_ERR_INTERNAL, "%s: span [%zu, %zu) was not announced", env->name, s.off,
                   gw_span_end(s));
}

gw_err gw_env_refuse_tracked(const gw_env *env) {
    for (int i = 0; i < env->n_tensors; i++)
        if (env->tensors[i].tracks)
            return gw_fail(GW_ERR_UNSUPPORTED,
                           "%s: the model's running means have to go exact in each step, and it "
                           "sends of all tensors what it picks, or at times nothing: use another "
                           "--comm, or a model without batch normalisation",
                           env->name);
    return GW_OK;
}

gw_err gw_env_prepare(const gw_env *env, gw_collective *collective) {
    gw_schedule *unused;
    for (int i = 0; i < gw_env_spans(env); i++)
        GW_TRY(gw_collective_get(collective, gw_env_span(env, i), &unused));
    return GW_OK;
}

gw_cost gw_env_cost(const gw_env *env, const gw_collective *collective) {
    gw_cost sum = {0};
    for (int i = 0; i < gw_env_spans(env); i++)
        sum = gw_cost_sum(sum, gw_collective_cost(collective, gw_env_span(env, i)));
    return sum;
}

gw_update gw_env_own_update(const gw_env *env, gw_span s) {
    bool moves = env->share > 0;
    return (gw_update){.grad = env->grad,
                       .own = moves ? s : (gw_span){s.off, 0},
                       .scale = moves ? (float)(1 / env->share) : 0.0f};
}

gw_cost gw_env_messages(const gw_env *env, uint64_t messages, size_t copies) {
    gw_cost sum = {0};
    for (int i = 0; i < gw_env_spans(env); i++)
        sum = gw_cost_sum(sum,
                          gw_cost_messages(env->params, messages, copies * gw_env_span(env, i).n));
    return sum;
}

const char *gw_strategy_refuses_coded(const gw_args *args, const gw_algo *algo,
                                      const gw_codec *codec) {
    (void)args, (void)algo;
    if (codec->ops->caps & GW_CODEC_IDENTITY) /* in a frame or not */
        return NULL;
    return "it exchanges parameters, which are never compressed: use --compress none";
}
