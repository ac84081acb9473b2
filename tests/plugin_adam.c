/* adam: D. P. Kingma, J. Ba, "Adam: a method for stochastic optimization", ICLR 2015. Means of the
 * gradient and its square, corrected for their start at 0; param -= lr * mean / sqrt(square). */
#include "optim/optimizer.h"

#include <math.h>

typedef struct self {
    float beta1, beta2;
} self;

static gw_err adam_open(void *p, const gw_args *args) {
    self *me = p;
    me->beta1 = (float)gw_args_real(args, "beta1");
    me->beta2 = (float)gw_args_real(args, "beta2");
    return GW_OK;
}

static const char *const *adam_vectors(const void *p) {
    static const char *const names[] = {"mean", "square", NULL};
    (void)p;
    return names;
}

static void adam_update(const void *p, const gw_optimizer_part *x) {
    float *mean = x->state[0], *square = x->state[1];
    float b1 = ((const self *)p)->beta1, b2 = ((const self *)p)->beta2;
    float c1 = 1 - powf(b1, (float)x->step), c2 = 1 - powf(b2, (float)x->step);
    for (size_t i = 0; i < x->n; i++) {
        float g = x->scale * x->grad[i];
        mean[i] = b1 * mean[i] + (1 - b1) * g;
        square[i] = b2 * square[i] + (1 - b2) * g * g;
        x->param[i] -= x->lr * (mean[i] / c1) / (sqrtf(square[i] / c2) + 1e-8f);
    }
}

static const gw_opt opts[] = {
    {"beta1", GW_OPT_REAL, "0.9", 0, 0.9999, NULL, "X", "decay of the mean"},
    {"beta2", GW_OPT_REAL, "0.999", 0, 0.999999, NULL, "X", "decay of the mean square"},
    {0}};

const gw_optimizer_ops gw_optimizer_plugin = {
    .head = {GW_OPTIMIZER_ABI, "adam", "means of the gradient and its square", opts},
    .size = sizeof(self),
    .open = adam_open,
    .vectors = adam_vectors,
    .update = adam_update,
    .most = 0x1p60f, /* its square is far from the end of binary32 */
};
