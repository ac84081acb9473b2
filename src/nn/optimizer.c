#include "nn/optimizer.h"

#include "base/mem.h"
#include "nn/elementwise.h"

#include <omp.h>
#include <stdbool.h>
#include <stdlib.h>

struct gw_optimizer {
    size_t n;
    float momentum, weight_decay;
    float *velocity; /* NULL without momentum */
};

/* Scale and rate are separate factors if velocity or decay comes between them; plain SGD multiplies
 * them first. Updates are memory-bound, so each pass reads and writes every array once. */
GW_CLONES static void optimizer_step_plain(float *restrict p, const float *restrict g, size_t n,
                                           float rate) {
    for (size_t i = 0; i < n; i++)
        p[i] -= rate * g[i];
}

GW_CLONES static void optimizer_step_decay(float *restrict p, const float *restrict g, size_t n,
                                           float lr, float scale, float decay) {
    for (size_t i = 0; i < n; i++)
        p[i] -= lr * (scale * g[i] + decay * p[i]);
}

GW_CLONES static void optimizer_step_momentum(float *restrict p, const float *restrict g,
                                              float *restrict v, size_t n, float lr, float scale,
                                              float decay, float mu) {
    for (size_t i = 0; i < n; i++) {
        float moved = mu * v[i] + (scale * g[i] + decay * p[i]);
        v[i] = moved;
        p[i] -= lr * moved;
    }
}

static bool optimizer_fraction(double x) {
    return x >= 0.0 && x < 1.0;
}

gw_err gw_optimizer_open(gw_optimizer **out, size_t n, double momentum, double weight_decay) {
    if (!optimizer_fraction(momentum))
        return gw_fail(GW_ERR_USAGE, "momentum %g: must be at least 0 and below 1", momentum);
    if (!optimizer_fraction(weight_decay))
        return gw_fail(GW_ERR_USAGE, "weight decay %g: must be at least 0 and below 1",
                       weight_decay);
    gw_optimizer *o = NULL;
    GW_TRY(gw_alloc(&o, 1, sizeof *o));
    o->n = n;
    o->momentum = (float)momentum;
    o->weight_decay = (float)weight_decay;
    if (momentum > 0.0) {
        gw_err e = gw_alloc(&o->velocity, n, sizeof *o->velocity);
        if (e != GW_OK) {
            free(o);
            return e;
        }
    }
    *out = o;
    return GW_OK;
}

void gw_optimizer_close(gw_optimizer *o) {
    if (!o)
        return;
    free(o->velocity);
    free(o);
}

static void optimizer_update(gw_optimizer *o, float *param, const float *grad, gw_span s, float lr,
                             float scale) {
    float *p = param + s.off;
    const float *g = grad + s.off;
    if (o->velocity)
        optimizer_step_momentum(p, g, o->velocity + s.off, s.n, lr, scale, o->weight_decay,
                                o->momentum);
    else if (o->weight_decay > 0.0f)
        optimizer_step_decay(p, g, s.n, lr, scale, o->weight_decay);
    else
        optimizer_step_plain(p, g, s.n, lr * scale);
}

int gw_optimizer_threads(size_t n) {
    return n < GW_PARALLEL_ELEMENTS ? 1 : omp_get_max_threads();
}

void gw_optimizer_update(gw_optimizer *o, float *param, const float *grad, gw_span s, float lr,
                         float scale) {
    int threads = gw_optimizer_threads(s.n);
    if (threads == 1) {
        optimizer_update(o, param, grad, s, lr, scale);
        return;
    }
#pragma omp parallel for num_threads(threads) schedule(static, 1)
    for (int t = 0; t < threads; t++)
        optimizer_update(o, param, grad, gw_span_part(s, t, threads), lr, scale);
}

bool gw_optimizer_lists(const gw_optimizer *o) {
    return !o->velocity && o->weight_decay == 0;
}

static void optimizer_update_at(float *restrict p, const uint32_t *restrict at,
                                const float *restrict g, size_t n, float rate) {
    for (size_t i = 0; i < n; i++)
        p[at[i]] -= rate * g[i];
}

void gw_optimizer_update_at(gw_optimizer *o, float *param, const uint32_t *at, const float *grad,
                            size_t n, float lr, float scale) {
    int threads = gw_optimizer_threads(n);
    (void)o;
    if (threads == 1) {
        optimizer_update_at(param, at, grad, n, lr * scale);
        return;
    }
#pragma omp parallel for num_threads(threads) schedule(static, 1)
    for (int t = 0; t < threads; t++) {
        gw_span s = gw_span_part((gw_span){0, n}, t, threads);
        optimizer_update_at(param, at + s.off, grad + s.off, s.n, lr * scale);
    }
}

float *gw_optimizer_momentum(gw_optimizer *o) {
    return o->velocity;
}

gw_err gw_optimizer_state(gw_optimizer *o, gw_io *io) {
    float none = 0.0f; /* an empty field still needs an address */
    return gw_io_field(io, "velocity", o->velocity ? o->velocity : &none,
                       o->velocity ? o->n * sizeof *o->velocity : 0);
}
