/* lion: X. Chen et al., "Symbolic discovery of optimization algorithms", NeurIPS 2023. All
 * parameters move by the rate, in the direction that momentum and gradient have together. */
#include "base/clones.h"
#include "optim/optimizer.h"

typedef struct self {
    double beta1, beta2;
    float decay;
} self;

static gw_err lion_open(void *p, const gw_args *args) {
    *(self *)p = (self){gw_args_real(args, "beta1"), gw_args_real(args, "beta2"),
                        (float)gw_args_real(args, "weight-decay")};
    return GW_OK;
}

static const char *const *lion_vectors(const void *p) {
    static const char *const names[] = {"momentum", NULL};
    (void)p;
    return names;
}

/* w: of the gradient in the direction and in the momentum; b: of the momentum. */
GW_CLONES static void lion_move(float *restrict p, const float *restrict g, float *restrict m,
                                size_t n, float lr, float keep, float b1, float w1, float b2,
                                float w2) {
    for (size_t i = 0; i < n; i++) {
        float to = b1 * m[i] + w1 * g[i]; /* 0 and NaN stay what they are */
        m[i] = b2 * m[i] + w2 * g[i];
        p[i] = keep * p[i] - (to > 0 ? lr : to < 0 ? -lr : to);
    }
}

static void lion_update(const void *p, const gw_optimizer_part *x) {
    const self *me = p;
    double scale = (double)x->scale;
    lion_move(x->param, x->grad, x->state[0], x->n, x->lr, 1 - x->lr * me->decay, (float)me->beta1,
              (float)((1 - me->beta1) * scale), (float)me->beta2, (float)((1 - me->beta2) * scale));
}

static const gw_opt opts[] = {
    {"beta1", GW_OPT_REAL, "0.9", 0, 0.9999, NULL, "X", "weight of the momentum in the direction"},
    {"beta2", GW_OPT_REAL, "0.99", 0, 0.9999, NULL, "X", "decay of the momentum"},
    {"weight-decay", GW_OPT_REAL, "0", 0, 0.9999, NULL, "X",
     "fraction of a parameter that is subtracted at rate 1; or --weight-decay"},
    {0}};

const gw_optimizer_ops gw_optimizer_lion = {
    .head = {GW_OPTIMIZER_ABI, "lion", "the sign of momentum and gradient together", opts},
    .size = sizeof(self),
    .open = lion_open,
    .vectors = lion_vectors,
    .update = lion_update,
};
