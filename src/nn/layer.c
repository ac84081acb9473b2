#include "nn/layer.h"

#include "base/probe.h"
#include "nn/elementwise.h"
#include "nn/gemm.h"

#include <omp.h>
#include <string.h>

/* Threads get whole cache lines of columns. */
enum { LINE = 16, TILE = 4 * LINE };

/* y = f(z) on rows of `cols`, z = y + b; one function a transfer so that each inner loop is one
 * formula. */
#define FINISH(transfer, f)                                                                        \
    GW_CLONES static void layer_finish_##transfer(float *restrict y, const float *restrict b,      \
                                                  int rows, int cols) {                            \
        for (int i = 0; i < rows; i++, y += cols)                                                  \
            for (int j = 0; j < cols; j++) {                                                       \
                float z = y[j] + b[j];                                                             \
                y[j] = f;                                                                          \
            }                                                                                      \
    }
FINISH(linear, z)
FINISH(relu, z < 0.0f ? 0.0f : z) /* keeps NaN: a diverged run must not look healthy */
FINISH(sigmoid, gw_sigmoidf(z))
FINISH(tanh, gw_tanhf(z))

/* dz = dy * f'(z) in place, f' being a function of y, and db = column sums of dz, on `cols` of the
 * `ld` columns. */
#define START(transfer, descended)                                                                 \
    GW_CLONES static void layer_start_##transfer(float *restrict db, float *restrict dy,           \
                                                 const float *restrict y, int rows, int cols,      \
                                                 size_t ld) {                                      \
        for (int i = 0; i < rows; i++, dy += ld, y += ld)                                          \
            for (int j = 0; j < cols; j++) {                                                       \
                float dz = descended;                                                              \
                dy[j] = dz;                                                                        \
                db[j] += dz;                                                                       \
            }                                                                                      \
    }
START(linear, dy[j])
START(relu, y[j] > 0.0f ? dy[j] : 0.0f)
START(sigmoid, dy[j] * y[j] * (1.0f - y[j]))
START(tanh, dy[j] * (1.0f - y[j] * y[j]))

int gw_layer_threads(int rows, int cols) {
    return (long long)rows * cols < GW_PARALLEL_ELEMENTS ? 1 : omp_get_max_threads();
}

void gw_layer_finish(gw_transfer transfer, float *y, const float *b, int rows, int cols) {
    switch (transfer) {
    case GW_TRANSFER_RELU: layer_finish_relu(y, b, rows, cols); break;
    case GW_TRANSFER_SIGMOID: layer_finish_sigmoid(y, b, rows, cols); break;
    case GW_TRANSFER_TANH: layer_finish_tanh(y, b, rows, cols); break;
    case GW_TRANSFER_LINEAR: layer_finish_linear(y, b, rows, cols); break;
    }
}

void gw_layer_start(gw_transfer transfer, float *db, float *dy, const float *y, int rows, int cols,
                    size_t ld) {
    switch (transfer) {
    case GW_TRANSFER_RELU: layer_start_relu(db, dy, y, rows, cols, ld); break;
    case GW_TRANSFER_SIGMOID: layer_start_sigmoid(db, dy, y, rows, cols, ld); break;
    case GW_TRANSFER_TANH: layer_start_tanh(db, dy, y, rows, cols, ld); break;
    case GW_TRANSFER_LINEAR: layer_start_linear(db, dy, y, rows, cols, ld); break;
    }
}

/* The gradient of the loss by the pre-activations of columns [lo, hi), and the sums of those whose
 * biases the layer holds, added to db; a tile at a time, those of the others are left behind. */
static void layer_enter_columns(const gw_layer *layer, float *db, float *dy, const float *y,
                                int batch, size_t lo, size_t hi) {
    gw_span own = layer->own;
    for (size_t at = lo, end; at < hi; at = end) {
        float others[TILE] = {0};
        bool held = at >= own.off && at < gw_span_end(own);
        end = held ? gw_span_end(own) : at + TILE;
        if (at < own.off && end > own.off)
            end = own.off;
        if (end > hi)
            end = hi;
        if (held || layer->transfer != GW_TRANSFER_LINEAR)
            gw_layer_start(layer->transfer, held ? db + (at - own.off) : others, dy + at, y + at,
                           batch, (int)(end - at), (size_t)layer->out);
    }
}

static void layer_add_biases(const gw_layer *layer, float *z, const float *b, int batch) {
    int threads = gw_layer_threads(batch, (int)layer->own.n);
    z += layer->own.off;
#pragma omp parallel for num_threads(threads) schedule(static) if (threads > 1)
    for (int i = 0; i < batch; i++)
        layer_finish_linear(z + (size_t)i * (size_t)layer->out, b, 1, (int)layer->own.n);
}

void gw_layer_product(const gw_layer *layer, const float *params, const float *x, float *z,
                      int batch) {
    int in = layer->in, out = layer->out;
    gw_gemm(false, false, batch, out, in, x, in, params, out, 0.0f, z, out);
    if (!layer->partial)
        return;
    gw_part_begin(GW_PART_FORWARD_POINTWISE);
    layer_add_biases(layer, z, params + (size_t)in * (size_t)out, batch);
    gw_part_end(GW_PART_FORWARD_POINTWISE);
}

static void layer_finish(const gw_layer *layer, float *y, const float *b, int batch) {
    int out = layer->out, threads = gw_layer_threads(batch, out);
    if (threads == 1) {
        gw_layer_finish(layer->transfer, y, b, batch, out);
        return;
    }
#pragma omp parallel for num_threads(threads) schedule(static, 1)
    for (int t = 0; t < threads; t++) {
        gw_span rows = gw_span_part((gw_span){0, (size_t)batch}, t, threads);
        gw_layer_finish(layer->transfer, y + rows.off * (size_t)out, b, (int)rows.n, out);
    }
}

void gw_layer_transfer(const gw_layer *layer, const float *biases, float *y, int batch) {
    if (layer->partial && layer->transfer == GW_TRANSFER_LINEAR)
        return;
    gw_part_begin(GW_PART_FORWARD_POINTWISE);
    layer_finish(layer, y, biases, batch);
    gw_part_end(GW_PART_FORWARD_POINTWISE);
}

static void layer_enter(const gw_layer *layer, float *db, float *dy, const float *y, int batch) {
    int out = layer->out, threads = gw_layer_threads(batch, out);
    if (threads == 1) {
        layer_enter_columns(layer, db, dy, y, batch, 0, (size_t)out);
        return;
    }
    gw_span lines = {0, ((size_t)out + LINE - 1) / LINE};
#pragma omp parallel for num_threads(threads) schedule(static, 1)
    for (int t = 0; t < threads; t++) {
        gw_span part = gw_span_part(lines, t, threads);
        size_t hi = gw_span_end(part) * LINE;
        layer_enter_columns(layer, db, dy, y, batch, part.off * LINE,
                            hi < (size_t)out ? hi : (size_t)out);
    }
}

void gw_layer_enter(const gw_layer *layer, float *grads, bool add, const float *y, float *dy,
                    int batch) {
    float *db = grads + (size_t)layer->in * (size_t)layer->out;
    gw_part_begin(GW_PART_BACKWARD_POINTWISE);
    if (!add)
        memset(db, 0, layer->own.n * sizeof *db);
    layer_enter(layer, db, dy, y, batch);
    gw_part_end(GW_PART_BACKWARD_POINTWISE);
}

void gw_layer_weights(const gw_layer *layer, float *grads, bool add, const float *x,
                      const float *dz, int batch) {
    int in = layer->in, out = layer->out;
    gw_gemm(true, false, in, out, batch, x, in, dz, out, add ? 1.0f : 0.0f, grads, out);
}

void gw_layer_descend(const gw_layer *layer, const float *params, const float *dz, float *dx,
                      int batch) {
    int in = layer->in, out = layer->out;
    gw_gemm(false, true, batch, in, out, dz, out, params, out, 0.0f, dx, in);
}
