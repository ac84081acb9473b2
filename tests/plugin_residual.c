/* residual: K. He et al., "Deep residual learning for image recognition", CVPR 2016, without
 * convolutions: a dense unit into `width` features, `blocks` units y = x + tanh(x W + b), and a
 * dense one for the classes. */
#include "base/rng.h"
#include "nn/shard.h"

#include <math.h>

typedef struct self {
    int64_t width, blocks;
} self;

static gw_err residual_open(gw_model_spec *spec, const gw_args *args) {
    self *me = (self *)spec->self;
    me->width = gw_args_int(args, "width");
    me->blocks = gw_args_int(args, "blocks");
    return GW_OK;
}

static int residual_units(const gw_model_spec *spec) {
    return (int)((const self *)spec->self)->blocks + 2;
}

static bool residual_is_block(const gw_model_spec *spec, int l) {
    return l > 0 && l <= ((const self *)spec->self)->blocks;
}

static gw_unit residual_unit(const gw_model_spec *spec, int l) {
    int width = (int)((const self *)spec->self)->width;
    int in = l == 0 ? spec->inputs : width, last = residual_units(spec) - 1;
    int out = l == last ? spec->classes : width;
    return (gw_unit){.in = in,
                     .out = out,
                     .kept = residual_is_block(spec, l) ? out : 0, /* tanh, then its gradient */
                     .n_tensors = 2,
                     .tensor = {{in, out}, {1, out}}};
}

static int residual_products(const gw_model_spec *spec, const gw_shard_layer *u, int rows,
                             gw_product out[GW_UNIT_PRODUCTS]) {
    int in = u->layer.in, width = u->layer.out;
    (void)spec;
    out[0] = (gw_product){.m = rows, .n = width, .k = in};
    out[1] = (gw_product){.ta = true, .m = in, .n = width, .k = rows};
    out[2] = (gw_product){.tb = true, .m = rows, .n = in, .k = width};
    return u->number > 0 ? 3 : 2;
}

static void residual_initialise(const gw_model_spec *spec, const gw_shard_layer *u, float *w) {
    size_t n = u->in.n * u->out.n;
    uint64_t key = gw_rng_key(spec->seed, (uint64_t)u->number);
    for (size_t i = 0; i < n; i++)
        w[i] = (float)(gw_rng_normal(key, i) / sqrt((double)u->in.n));
}

static void residual_product(const gw_model_spec *spec, const gw_shard_layer *u, const float *w,
                             const gw_unit_rows *r) {
    int in = u->layer.in, out = u->layer.out;
    bool block = residual_is_block(spec, u->number);
    float *z = block ? r->kept : r->y;
    gw_gemm(false, false, r->n, out, in, r->x, in, w, out, 0, z, out);
    const float *b = w + (size_t)in * (size_t)out;
    for (size_t i = 0; i < (size_t)r->n * (size_t)out; i++) {
        z[i] += b[i % (size_t)out];
        if (block)
            r->y[i] = r->x[i] + (z[i] = tanhf(z[i]));
    }
}

static float *residual_dz(const gw_model_spec *spec, const gw_shard_layer *u,
                          const gw_unit_rows *r) {
    return residual_is_block(spec, u->number) ? r->kept : r->dy;
}

static void residual_enter(const gw_model_spec *spec, const gw_shard_layer *u, const float *params,
                           float *grads, bool add, const gw_unit_rows *r) {
    size_t out = (size_t)u->layer.out;
    float *dz = residual_dz(spec, u, r), *db = grads + (size_t)u->layer.in * out;
    (void)params;
    for (size_t j = 0; j < out && !add; j++)
        db[j] = 0;
    for (size_t i = 0; i < (size_t)r->n * out; i++) {
        if (dz != r->dy)
            dz[i] = r->dy[i] * (1 - dz[i] * dz[i]);
        db[i % out] += dz[i];
    }
}

static void residual_descend(const gw_model_spec *spec, const gw_shard_layer *u, const float *w,
                             const gw_unit_rows *r) {
    int in = u->layer.in, out = u->layer.out;
    const float *dz = residual_dz(spec, u, r);
    gw_gemm(false, true, r->n, in, out, dz, out, w, out, 0, r->dx, in);
    for (size_t i = 0; i < (size_t)r->n * (size_t)in && dz != r->dy; i++)
        r->dx[i] += r->dy[i];
}

static void residual_weights(const gw_model_spec *spec, const gw_shard_layer *u, float *grads,
                             bool add, const gw_unit_rows *r) {
    int in = u->layer.in, out = u->layer.out;
    gw_gemm(true, false, in, out, r->n, r->x, in, residual_dz(spec, u, r), out, add ? 1 : 0, grads,
            out);
}

static const gw_opt opts[] = {
    {"width", GW_OPT_INT, "32", 1, GW_MAX_WIDTH, NULL, "N", "features of a block"},
    {"blocks", GW_OPT_INT, "2", 0, GW_MAX_LAYERS - 2, NULL, "N", "blocks"},
    {0}};

const gw_model_ops gw_model_plugin = {
    .head = {GW_MODEL_ABI, "residual", "blocks y = x + tanh(x W + b)", opts},
    .open = residual_open,
    .units = residual_units,
    .unit = residual_unit,
    .products = residual_products,
    .initialise = residual_initialise,
    .product = residual_product,
    .enter = residual_enter,
    .descend = residual_descend,
    .weights = residual_weights,
};
