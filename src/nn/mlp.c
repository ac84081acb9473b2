/* mlp: dense layers, each a unit, with an activation between them. */
#include "base/probe.h"
#include "base/rng.h"
#include "nn/gemm.h"
#include "nn/shard.h"

#include <math.h>
#include <string.h>

#define INIT_STREAM 0x696e6974u /* the seed's stream for initial weights */

/* Threads get whole cache lines of columns. */
enum { LINE = 16, TILE = 4 * LINE };

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

/* z = x W, plus the layer's own biases if it is partial. */
static void mlp_product(const gw_model_spec *spec, const gw_shard_layer *u, const float *params,
                        const gw_unit_rows *r) {
    int in = u->layer.in, out = u->layer.out, own = (int)u->layer.own.n;
    (void)spec;
    gw_gemm(false, false, r->n, out, in, r->x, in, params, out, 0.0f, r->y, out);
    if (!u->layer.partial)
        return;
    const float *biases = params + (size_t)in * (size_t)out;
    float *z = r->y + u->layer.own.off;
    gw_part_begin(GW_PART_FORWARD_POINTWISE);
    int threads = gw_layer_threads(r->n, own);
#pragma omp parallel for num_threads(threads) schedule(static) if (threads > 1)
    for (int i = 0; i < r->n; i++)
        gw_layer_finish(GW_LINEAR, z + (size_t)i * (size_t)out, biases, 1, own);
    gw_part_end(GW_PART_FORWARD_POINTWISE);
}

/* y = f(z + biases) in place; a partial layer's z includes them. */
static void mlp_transfer(const gw_model_spec *spec, const gw_shard_layer *u, const float *params,
                         const gw_unit_rows *r) {
    const gw_layer *layer = &u->layer;
    size_t in = (size_t)layer->in, out = (size_t)layer->out;
    (void)spec;
    if (layer->partial && layer->transfer == GW_LINEAR)
        return;
    const float *biases = layer->partial ? r->zeros : params + in * out;
    gw_part_begin(GW_PART_FORWARD_POINTWISE);
    int threads = gw_layer_threads(r->n, layer->out);
    if (threads == 1) { /* a region of one thread costs more than a small batch */
        gw_layer_finish(layer->transfer, r->y, biases, r->n, layer->out);
    } else {
#pragma omp parallel for num_threads(threads) schedule(static, 1)
        for (int t = 0; t < threads; t++) {
            gw_span rows = gw_span_part((gw_span){0, (size_t)r->n}, t, threads);
            float *y = r->y + rows.off * out;
            gw_layer_finish(layer->transfer, y, biases, (int)rows.n, layer->out);
        }
    }
    gw_part_end(GW_PART_FORWARD_POINTWISE);
}

/* The gradient of the loss by the pre-activations of columns [lo, hi), and the sums of those whose
 * biases the layer holds, added to db; a tile at a time, those of the others are left behind. */
static void mlp_enter_columns(const gw_layer *layer, float *db, const gw_unit_rows *r, size_t lo,
                              size_t hi) {
    gw_span own = layer->own;
    for (size_t at = lo, end; at < hi; at = end) {
        float others[TILE] = {0};
        bool held = at >= own.off && at < gw_span_end(own);
        end = held ? gw_span_end(own) : at + TILE;
        if (at < own.off && end > own.off)
            end = own.off;
        if (end > hi)
            end = hi;
        if (held || layer->transfer != GW_LINEAR)
            gw_layer_start(layer->transfer, held ? db + (at - own.off) : others, r->dy + at,
                           r->y + at, r->n, (int)(end - at), (size_t)layer->out);
    }
}

/* One thread computes each sum, so the result depends only on the number of threads. */
static void mlp_enter(const gw_model_spec *spec, const gw_shard_layer *u, const float *params,
                      float *grads, bool add, const gw_unit_rows *r) {
    size_t out = (size_t)u->layer.out;
    float *db = grads + (size_t)u->layer.in * out;
    (void)spec, (void)params;
    gw_part_begin(GW_PART_BACKWARD_POINTWISE);
    if (!add)
        memset(db, 0, u->layer.own.n * sizeof *db);
    gw_span lines = {0, (out + LINE - 1) / LINE};
    int threads = gw_layer_threads(r->n, u->layer.out);
    if (threads == 1) {
        mlp_enter_columns(&u->layer, db, r, 0, out);
    } else {
#pragma omp parallel for num_threads(threads) schedule(static, 1)
        for (int t = 0; t < threads; t++) {
            gw_span part = gw_span_part(lines, t, threads);
            size_t hi = gw_span_end(part) * LINE;
            mlp_enter_columns(&u->layer, db, r, part.off * LINE, hi < out ? hi : out);
        }
    }
    gw_part_end(GW_PART_BACKWARD_POINTWISE);
}

/* Of a layer that is cut by columns, one term of dx. */
static void mlp_descend(const gw_model_spec *spec, const gw_shard_layer *u, const float *params,
                        const gw_unit_rows *r) {
    int in = u->layer.in, out = u->layer.out;
    (void)spec;
    gw_gemm(false, true, r->n, in, out, r->dy, out, params, out, 0.0f, r->dx, in);
}

static void mlp_weights(const gw_model_spec *spec, const gw_shard_layer *u, float *grads, bool add,
                        const gw_unit_rows *r) {
    int in = u->layer.in, out = u->layer.out;
    (void)spec;
    gw_gemm(true, false, in, out, r->n, r->x, in, r->dy, out, add ? 1.0f : 0.0f, grads, out);
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
