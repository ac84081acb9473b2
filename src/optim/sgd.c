/* sgd: g = scale * grad + weight_decay * param; with momentum mu > 0, v = mu * v + g and
 * param -= lr * v, else param -= lr * g (PyTorch's form of Polyak's momentum). With nesterov
 * param -= lr * (g + mu * v) (its form of Nesterov's: I. Sutskever, J. Martens, G. Dahl, G. Hinton,
 * "On the importance of initialization and momentum in deep learning", ICML 2013). */
#include "base/clones.h"
#include "optim/optimizer.h"

typedef struct self {
    float momentum, weight_decay;
    bool nesterov;
} self;

/* Scale and rate are separate factors if velocity or decay comes between them; plain SGD multiplies
 * them first. Updates are memory-bound, so each pass reads and writes every array once. */
GW_CLONES static void sgd_step_plain(float *restrict p, const float *restrict g, size_t n,
                                     float rate) {
    for (size_t i = 0; i < n; i++)
        p[i] -= rate * g[i];
}

GW_CLONES static void sgd_step_decay(float *restrict p, const float *restrict g, size_t n, float lr,
                                     float scale, float decay) {
    for (size_t i = 0; i < n; i++)
        p[i] -= lr * (scale * g[i] + decay * p[i]);
}

GW_CLONES static void sgd_step_momentum(float *restrict p, const float *restrict g,
                                        float *restrict v, size_t n, float lr, float scale,
                                        float decay, float mu) {
    for (size_t i = 0; i < n; i++) {
        float moved = mu * v[i] + (scale * g[i] + decay * p[i]);
        v[i] = moved;
        p[i] -= lr * moved;
    }
}

GW_CLONES static void sgd_step_nesterov(float *restrict p, const float *restrict g,
                                        float *restrict v, size_t n, float lr, float scale,
                                        float decay, float mu) {
    for (size_t i = 0; i < n; i++) {
        float along = scale * g[i] + decay * p[i];
        v[i] = mu * v[i] + along;
        p[i] -= lr * (along + mu * v[i]);
    }
}

static gw_err sgd_open(void *p, const gw_args *args) {
    self *me = p;
    me->momentum = (float)gw_args_real(args, "momentum");
    me->weight_decay = (float)gw_args_real(args, "weight-decay");
    me->nesterov = gw_args_flag(args, "nesterov");
    if (me->nesterov && me->momentum == 0)
        return gw_fail(GW_ERR_USAGE, "sgd: nesterov=1 is a form of momentum, and there is none "
                                     "here: give --momentum, or leave it out");
    return GW_OK;
}

static const char *const *sgd_vectors(const void *p) {
    static const char *const names[] = {"momentum", NULL};
    return ((const self *)p)->momentum > 0 ? names : names + 1;
}

static void sgd_update(const void *p, const gw_optimizer_part *x) {
    const self *me = p;
    if (me->momentum > 0)
        (me->nesterov ? sgd_step_nesterov : sgd_step_momentum)(
            x->param, x->grad, x->state[0], x->n, x->lr, x->scale, me->weight_decay, me->momentum);
    else if (me->weight_decay > 0)
        sgd_step_decay(x->param, x->grad, x->n, x->lr, x->scale, me->weight_decay);
    else
        sgd_step_plain(x->param, x->grad, x->n, x->lr * x->scale);
}

static bool sgd_lists(const void *p) {
    const self *me = p;
    return me->momentum == 0 && me->weight_decay == 0;
}

static void sgd_update_at(const void *me, float *restrict p, const uint32_t *restrict at,
                          const float *restrict g, size_t n, float lr, float scale) {
    float rate = lr * scale;
    (void)me;
    for (size_t i = 0; i < n; i++)
        p[at[i]] -= rate * g[i];
}

static const char *sgd_kernel(const void *p) {
    const self *me = p;
    return me->nesterov           ? "nesterov"
           : me->momentum > 0     ? "momentum"
           : me->weight_decay > 0 ? "decay"
                                  : "plain";
}

static const gw_opt opts[] = {
    {"momentum", GW_OPT_REAL, "0", 0, 0.9999, NULL, "X", "momentum; or --momentum"},
    {"weight-decay", GW_OPT_REAL, "0", 0, 0.9999, NULL, "X", "L2 penalty; or --weight-decay"},
    {"nesterov", GW_OPT_FLAG, NULL, 0, 0, NULL, NULL, "momentum in Nesterov's form"},
    {0}};

const gw_optimizer_ops gw_optimizer_sgd = {
    .head = {GW_OPTIMIZER_ABI, "sgd", "stochastic gradient descent, with momentum", opts},
    .size = sizeof(self),
    .open = sgd_open,
    .vectors = sgd_vectors,
    .update = sgd_update,
    .lists = sgd_lists,
    .update_at = sgd_update_at,
    .kernel = sgd_kernel,
};
