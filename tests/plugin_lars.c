/* lars: Y. You, I. Gitman, B. Ginsburg, "Large batch training of convolutional networks", 2017,
 * without weight decay: the rate of each tensor times 0.02 * |param| / |gradient|, with momentum. A
 * rule that needs norms over whole tensors; vectors are moved by the rate alone. */
#include "optim/optimizer.h"

#include <math.h>

static const char *const *lars_vectors(const void *self) {
    static const char *const names[] = {"velocity", NULL};
    (void)self;
    return names;
}

static float lars_norm(const float *x, size_t n) {
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += (double)x[i] * (double)x[i];
    return (float)sqrt(sum);
}

static void lars_update(const void *self, const gw_optimizer_part *x) {
    float *v = x->state[0], rate = x->lr;
    float moved = lars_norm(x->param, x->n), by = x->scale * lars_norm(x->grad, x->n);
    (void)self;
    if (x->rows > 1 && moved > 0 && by > 0)
        rate *= 0.02f * moved / by;
    for (size_t i = 0; i < x->n; i++) {
        v[i] = 0.9f * v[i] + rate * x->scale * x->grad[i];
        x->param[i] -= v[i];
    }
}

const gw_optimizer_ops gw_optimizer_plugin = {
    .head = {GW_OPTIMIZER_ABI, "lars", "a rate for each tensor", NULL},
    .traits = GW_OPTIMIZER_TENSORS,
    .vectors = lars_vectors,
    .update = lars_update,
};
