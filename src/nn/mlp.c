/* mlp: dense layers, each a unit, with an activation between them. */
#include "base/rng.h"
#include "nn/shard.h"

#include <math.h>

#define INIT_STREAM 0x696e6974u /* the seed's stream for initial weights */

static int mlp_units(const gw_model_spec *spec) {
    return spec->n_hidden + 1;
}

static gw_unit mlp_unit(const gw_model_spec *spec, int l) {
    int in = l > 0 ? spec->hidden[l - 1] : spec->inputs;
    int out = l < spec->n_hidden ? spec->hidden[l] : spec->classes;
    return (gw_unit){
        .in = in, .out = out, .n_tensors = 2, .tensor = {{.rows = in, .cols = out}, {1, out}}};
}

static int mlp_products(const gw_model_spec *spec, const gw_shard_layer *u, int rows,
                        gw_product out[GW_UNIT_PRODUCTS]) {
    (void)spec;
    int in = u->layer.in, width = u->layer.out;
    out[0] = (gw_product){.m = rows, .n = width, .k = in};
    out[1] = (gw_product){.ta = true, .m = in, .n = width, .k = rows};
    out[2] = (gw_product){.tb = true, .m = rows, .n = in, .k = width};
    return u->number > 0 ? 3 : 2;
}

/* He: N(0, 2/in); Xavier: N(0, 2/(in+out)) (He et al., ICCV 2015; Glorot and Bengio, AISTATS 2010);
 * biases 0. A weight depends on its place in the whole model alone. */
static void mlp_initialise(const gw_model_spec *spec, const gw_shard_layer *u, float *w) {
    uint64_t key = gw_rng_key(gw_rng_key(spec->seed, INIT_STREAM), (uint64_t)u->number);
    gw_unit whole = mlp_unit(spec, u->number);
    bool he = gw_model_spec_init(spec, u->number) == GW_INIT_HE;
    double sigma = sqrt(2.0 / (he ? whole.in : whole.in + whole.out));
#pragma omp parallel for schedule(static)
    for (size_t i = 0; i < u->in.n; i++)
        for (size_t j = 0; j < u->out.n; j++) {
            uint64_t at = (u->in.off + i) * (uint64_t)whole.out + u->out.off + j;
            w[i * u->out.n + j] = (float)(sigma * gw_rng_normal(key, at));
        }
}

static void mlp_product(const gw_model_spec *spec, const gw_shard_layer *u, const float *params,
                        const gw_unit_rows *r) {
    (void)spec;
    gw_layer_product(&u->layer, params, r->x, r->y, r->n);
}

static void mlp_transfer(const gw_model_spec *spec, const gw_shard_layer *u, const float *params,
                         const gw_unit_rows *r) {
    const float *biases = params + (size_t)u->layer.in * (size_t)u->layer.out;
    (void)spec;
    gw_layer_transfer(&u->layer, u->layer.partial ? r->zeros : biases, r->y, r->n);
}

static void mlp_enter(const gw_model_spec *spec, const gw_shard_layer *u, const float *params,
                      float *grads, bool add, const gw_unit_rows *r) {
    (void)spec, (void)params;
    gw_layer_enter(&u->layer, grads, add, r->y, r->dy, r->n);
}

static void mlp_descend(const gw_model_spec *spec, const gw_shard_layer *u, const float *params,
                        const gw_unit_rows *r) {
    (void)spec;
    gw_layer_descend(&u->layer, params, r->dy, r->dx, r->n);
}

static void mlp_weights(const gw_model_spec *spec, const gw_shard_layer *u, float *grads, bool add,
                        const gw_unit_rows *r) {
    (void)spec;
    gw_layer_weights(&u->layer, grads, add, r->x, r->dy, r->n);
}

const gw_model_ops gw_model_mlp = {
    .head = {GW_MODEL_ABI, "mlp", "dense layers: --layers, --activation, --init", NULL},
    .traits = GW_MODEL_DENSE,
    .units = mlp_units,
    .unit = mlp_unit,
    .products = mlp_products,
    .initialise = mlp_initialise,
    .product = mlp_product,
    .transfer = mlp_transfer,
    .enter = mlp_enter,
    .descend = mlp_descend,
    .weights = mlp_weights,
};
