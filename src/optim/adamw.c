/* adamw: I. Loshchilov, F. Hutter, "Decoupled weight decay regularization", ICLR 2019. The weight
 * decay acts on the parameters directly and does not enter the gradient's means. */
#include "base/norm.h"
#include "optim/moments.h"

typedef struct self {
    gw_moments moments;
    float decay;
} self;

static gw_err adamw_open(void *p, const gw_args *args) {
    *(self *)p = (self){gw_moments_of(args), (float)gw_args_real(args, "weight-decay")};
    return GW_OK;
}

static void adamw_update(const void *p, const gw_optimizer_part *x) {
    const self *me = p;
    gw_moments_descend(&me->moments, x, x->lr, me->decay);
}

static const gw_opt opts[] = {
    GW_MOMENTS_OPTS("1e-8"),
    {"weight-decay", GW_OPT_REAL, "0.01", 0, 0.9999, NULL, "X",
     "fraction of a parameter that is subtracted at rate 1; or --weight-decay"},
    {0}};

const gw_optimizer_ops gw_optimizer_adamw = {
    .head = {GW_OPTIMIZER_ABI, "adamw", "means of the gradient and its square, decoupled decay",
             opts},
    .size = sizeof(self),
    .open = adamw_open,
    .vectors = gw_moments_vectors,
    .update = adamw_update,
    .most = GW_SQUARES_MOST,
};
