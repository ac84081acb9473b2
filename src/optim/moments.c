#include "optim/moments.h"

#include "base/clones.h"

#include <math.h>

gw_moments gw_moments_of(const gw_args *args) {
    return (gw_moments){gw_args_real(args, "beta1"), gw_args_real(args, "beta2"),
                        gw_args_real(args, "eps")};
}

const char *const *gw_moments_vectors(const void *self) {
    static const char *const names[] = {"mean", "square", NULL};
    (void)self;
    return names;
}

/* As the loops take them. */
typedef struct factors {
    float scale, b1, r1, b2, r2, eps; /* r: 1 - b */
    float mean, root;                 /* corrections of the mean, and of the square's root */
} factors;

static factors moments_factors(const gw_moments *m, const gw_optimizer_part *x) {
    double t = (double)x->step;
    return (factors){.scale = x->scale,
                     .b1 = (float)m->beta1,
                     .r1 = (float)(1 - m->beta1),
                     .b2 = (float)m->beta2,
                     .r2 = (float)(1 - m->beta2),
                     .eps = (float)m->eps,
                     .mean = (float)(1 / (1 - pow(m->beta1, t))),
                     .root = (float)(1 / sqrt(1 - pow(m->beta2, t)))};
}

GW_CLONES static void moments_direct(const factors *by, const float *restrict g, float *restrict m,
                                     float *restrict v, float *restrict out, size_t n) {
    factors f = *by;
    for (size_t i = 0; i < n; i++) {
        float a = f.scale * g[i];
        m[i] = f.b1 * m[i] + f.r1 * a;
        v[i] = f.b2 * v[i] + f.r2 * (a * a);
        out[i] = f.mean * m[i] / (sqrtf(v[i]) * f.root + f.eps);
    }
}

/* As a whole, since it is memory that an update waits for. */
GW_CLONES static void moments_move(const factors *by, const float *restrict g, float *restrict m,
                                   float *restrict v, float *restrict p, size_t n, float rate,
                                   float keep) {
    factors f = *by;
    rate *= f.mean;
    for (size_t i = 0; i < n; i++) {
        float a = f.scale * g[i];
        m[i] = f.b1 * m[i] + f.r1 * a;
        v[i] = f.b2 * v[i] + f.r2 * (a * a);
        p[i] = keep * p[i] - rate * m[i] / (sqrtf(v[i]) * f.root + f.eps);
    }
}

void gw_moments_direction(const gw_moments *m, const gw_optimizer_part *x, float *out) {
    factors f = moments_factors(m, x);
    moments_direct(&f, x->grad, x->state[0], x->state[1], out, x->n);
}

void gw_moments_descend(const gw_moments *m, const gw_optimizer_part *x, float rate, float decay) {
    factors f = moments_factors(m, x);
    moments_move(&f, x->grad, x->state[0], x->state[1], x->param, x->n, rate, 1 - rate * decay);
}
