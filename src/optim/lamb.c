/* lamb: Y. You et al., "Large batch optimization for deep learning: training BERT in 76 minutes",
 * ICLR 2020. AdamW's direction, of each tensor times phi(|param|) / |direction|, where phi(z) is
 * min(z, clip). */
#include "base/clones.h"
#include "base/norm.h"
#include "optim/moments.h"

#include <math.h>

typedef struct self {
    gw_moments moments;
    float decay;
    double clip;
} self;

static gw_err lamb_open(void *p, const gw_args *args) {
    *(self *)p = (self){gw_moments_of(args), (float)gw_args_real(args, "weight-decay"),
                        gw_args_real(args, "clip")};
    return GW_OK;
}

/* For the direction. */
static size_t lamb_work(const void *p, int rows, int cols) {
    (void)p;
    return (size_t)rows * (size_t)cols;
}

/* y += a x */
GW_CLONES static void lamb_add(float *restrict y, const float *restrict x, size_t n, float a) {
    for (size_t i = 0; i < n; i++)
        y[i] += a * x[i];
}

static void lamb_direct(const void *p, const gw_optimizer_part *x, float decay) {
    const self *me = p;
    gw_moments_direction(&me->moments, x, x->work);
    if (decay > 0)
        lamb_add(x->work, x->param, x->n, decay);
}

static void lamb_move(const void *p, const gw_optimizer_part *x, float by) {
    (void)p;
    lamb_add(x->param, x->work, x->n, by);
}

static void lamb_update(const void *p, const gw_optimizer_part *x) {
    const self *me = p;
    gw_optimizer_split(me, x, lamb_direct, me->decay);
    double is = sqrt(gw_norm_squares(x->param, x->n)), by = sqrt(gw_norm_squares(x->work, x->n));
    double trust = is > 0 && by > 0 ? fmin(is, me->clip) / by : 1;
    gw_optimizer_split(me, x, lamb_move, (float)(-(double)x->lr * trust));
}

static const gw_opt opts[] = {
    GW_MOMENTS_OPTS("1e-6"),
    {"weight-decay", GW_OPT_REAL, "0.01", 0, 0.9999, NULL, "X",
     "fraction of a parameter added to its direction; or --weight-decay"},
    {"clip", GW_OPT_REAL, "10", 1e-6, 1e6, NULL, "X", "a tensor's norm counts as at most this"},
    {0}};

const gw_optimizer_ops gw_optimizer_lamb = {
    .head = {GW_OPTIMIZER_ABI, "lamb", "AdamW's direction, scaled to the tensor's norm", opts},
    .traits = GW_OPTIMIZER_TENSORS,
    .size = sizeof(self),
    .open = lamb_open,
    .vectors = gw_moments_vectors,
    .update = lamb_update,
    .work = lamb_work,
    .most = GW_SQUARES_MOST,
};
