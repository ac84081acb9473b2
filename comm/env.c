/* Strategies have this in common: the spans of a step, and collectives that run once for each. */
#include "comm/env.h"

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

gw_cost gw_env_messages(const gw_env *env, uint64_t messages, size_t copies) {
    gw_cost sum = {0};
    for (int i = 0; i < gw_env_spans(env); i++)
        sum = gw_cost_sum(sum,
                          gw_cost_messages(env->params, messages, copies * gw_env_span(env, i).n));
    return sum;
}
