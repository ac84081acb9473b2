#include "comm/adam.h"

#include "base/clones.h"
#include "base/mem.h"

#include <math.h>
#include <stdlib.h>

gw_err gw_adam_open(gw_adam *a, const gw_env *env) {
    *a = (gw_adam){.env = env,
                   .beta1 = (float)gw_args_real(env->args, "beta1"),
                   .beta2 = (float)gw_args_real(env->args, "beta2"),
                   .eps = (float)gw_args_real(env->args, "eps")};
    gw_err e = gw_alloc(&a->m, env->n, sizeof *a->m);
    GW_THEN(e, gw_alloc(&a->v, env->n, sizeof *a->v));
    GW_THEN(e, gw_algo_open(&a->plain, NULL, gw_lane_codec(env->params)));
    GW_TRY(gw_lane_agree(env->grads, e));
    a->dense = (gw_collective){.algo = &a->plain, .lane = env->params, .base = env->grad};
    a->coded = (gw_collective){.algo = env->algo, .lane = env->grads, .base = env->grad};
    GW_TRY(gw_env_prepare(env, &a->dense));
    return gw_env_prepare(env, &a->coded);
}

void gw_adam_close(gw_adam *a) {
    gw_collective_clear(&a->dense);
    gw_collective_clear(&a->coded);
    gw_algo_close(&a->plain);
    free(a->m);
    free(a->v);
}

GW_CLONES static void adam_learn(const float *restrict g, float *restrict m, float *restrict v,
                                 float b1, float b2, size_t n) {
    for (size_t i = 0; i < n; i++) {
        m[i] = b1 * m[i] + (1 - b1) * g[i];
        v[i] = b2 * v[i] + (1 - b2) * g[i] * g[i];
    }
}

GW_CLONES static void adam_blend(float *restrict g, const float *restrict m, float b1, float share,
                                 size_t n) {
    for (size_t i = 0; i < n; i++)
        g[i] = share * b1 * m[i] + (1 - b1) * g[i];
}

GW_CLONES static void adam_take(const float *restrict g, float *restrict m, const float *restrict v,
                                float by, size_t n) {
    for (size_t i = 0; i < n; i++)
        m[i] = v[i] > 0 ? by * g[i] : 0;
}

GW_CLONES static void adam_direct(float *restrict g, const float *restrict m,
                                  const float *restrict v, float by, float root, float eps,
                                  size_t n) {
    for (size_t i = 0; i < n; i++)
        g[i] = by * m[i] / (root * sqrtf(v[i]) + eps);
}

void gw_adam_learn(const gw_adam *a, gw_span s) {
    adam_learn(a->env->grad + s.off, a->m + s.off, a->v + s.off, a->beta1, a->beta2, s.n);
}

void gw_adam_blend(const gw_adam *a, gw_span s, float share) {
    adam_blend(a->env->grad + s.off, a->m + s.off, a->beta1, share, s.n);
}

void gw_adam_take(const gw_adam *a, gw_span s, int64_t steps) {
    adam_take(a->env->grad + s.off, a->m + s.off, a->v + s.off, 1 / (float)steps, s.n);
}

void gw_adam_direct(const gw_adam *a, gw_span s, int64_t steps, int64_t first, int64_t second) {
    float by = (float)((double)steps / (1 - pow(a->beta1, (double)first)));
    float root = (float)(1 / sqrt(1 - pow(a->beta2, (double)second)));
    adam_direct(a->env->grad + s.off, a->m + s.off, a->v + s.off, by, root, a->eps, s.n);
}

gw_err gw_adam_state(gw_adam *a, gw_io *io) {
    size_t bytes = a->env->n * sizeof(float);
    GW_TRY(gw_io_field(io, "m", a->m, bytes));
    return gw_io_field(io, "v", a->v, bytes);
}
