/* lars: Y. You, I. Gitman, B. Ginsburg, "Large batch training of convolutional networks", 2017. A
 * matrix's gradient, with the weight decay, times trust * |param| / (|gradient| + decay * |param|);
 * then momentum. Vectors are moved as by sgd. As in sgd, the velocity does not
 * contain the rate, so a change of the rate takes effect at once. */
#include "base/clones.h"
#include "base/norm.h"
#include "optim/optimizer.h"

#include <math.h>

typedef struct self {
    float momentum, decay, trust;
} self;

static gw_err lars_open(void *p, const gw_args *args) {
    *(self *)p =
        (self){(float)gw_args_real(args, "momentum"), (float)gw_args_real(args, "weight-decay"),
               (float)gw_args_real(args, "trust")};
    return GW_OK;
}

static const char *const *lars_vectors(const void *p) {
    static const char *const names[] = {"momentum", NULL};
    (void)p;
    return names;
}

GW_CLONES static void lars_loop(float *restrict p, const float *restrict g, float *restrict v,
                                size_t n, float lr, float mu, float by, float decay) {
    for (size_t i = 0; i < n; i++) {
        v[i] = mu * v[i] + (by * g[i] + decay * p[i]);
        p[i] -= lr * v[i];
    }
}

static void lars_move(const void *p, const gw_optimizer_part *x, float local) {
    const self *me = p;
    lars_loop(x->param, x->grad, x->state[0], x->n, x->lr, me->momentum, local * x->scale,
              local * me->decay);
}

static void lars_update(const void *p, const gw_optimizer_part *x) {
    const self *me = p;
    float local = 1;
    if (x->rows > 1) {
        double is = sqrt(gw_norm_squares(x->param, x->n));
        double by = (double)x->scale * sqrt(gw_norm_squares(x->grad, x->n));
        if (is > 0 && by > 0)
            local = (float)((double)me->trust * is / (by + (double)me->decay * is));
    }
    gw_optimizer_split(me, x, lars_move, local);
}

static const gw_opt opts[] = {
    {"momentum", GW_OPT_REAL, "0.9", 0, 0.9999, NULL, "X", "momentum; or --momentum"},
    {"weight-decay", GW_OPT_REAL, "0", 0, 0.9999, NULL, "X", "L2 penalty; or --weight-decay"},
    {"trust", GW_OPT_REAL, "0.001", 1e-9, 1e3, NULL, "X",
     "ratio of a matrix's step to its norm, at rate 1"},
    {0}};

const gw_optimizer_ops gw_optimizer_lars = {
    .head = {GW_OPTIMIZER_ABI, "lars", "momentum, a matrix's step in proportion to its norm", opts},
    .traits = GW_OPTIMIZER_TENSORS,
    .size = sizeof(self),
    .open = lars_open,
    .vectors = lars_vectors,
    .update = lars_update,
};
