/** A dense layer, y = f(x W + b), forward and backward, each in two halves: where ranks hold parts
 *  of a layer, sums over them come between. Pure functions of arrays; the model owns them all.
 *  Shapes: x (batch, in), z and y (batch, out), W (in, out), all row-major and dense. */
#ifndef GW_NN_LAYER_H
#define GW_NN_LAYER_H

#include "base/span.h"

#include <stdbool.h>

typedef enum gw_activation { GW_RELU, GW_SIGMOID, GW_TANH } gw_activation;

typedef enum gw_transfer {
    GW_TRANSFER_RELU = GW_RELU,
    GW_TRANSFER_SIGMOID = GW_SIGMOID,
    GW_TRANSFER_TANH = GW_TANH,
    GW_TRANSFER_LINEAR /* the last layer, whose outputs are the logits */
} gw_transfer;

typedef struct gw_layer {
    int in, out;
    gw_transfer transfer;
    gw_span span; /* W, then the biases that it holds, within the arena */
    gw_span own;  /* outputs whose biases it holds: a part if partial, else all */
    bool partial; /* cut by rows: x W is one term of z, which ranks sum */
} gw_layer;

/** The elementwise kernels alone, on one thread. y = f(y + b) on `rows` dense rows of `cols`. */
void gw_layer_finish(gw_transfer transfer, float *y, const float *b, int rows, int cols);

/** dy = dy * f'(z), f' being a function of y, and db += column sums of it, on `cols` of the `ld`
 *  columns of a row. */
void gw_layer_start(gw_transfer transfer, float *db, float *dy, const float *y, int rows, int cols,
                    size_t ld);

/** Threads that these kernels use for a batch of this size: 1, or all. */
int gw_layer_threads(int rows, int cols);

/** z = x W, plus the layer's own biases if it is partial. `params` holds W, then the biases. */
void gw_layer_product(const gw_layer *layer, const float *params, const float *x, float *z,
                      int batch);

/** y = f(z + biases) in place, `biases` being those of all outputs: zeros if the layer is partial,
 *  for then z includes them. OpenMP threads share large batches. */
void gw_layer_transfer(const gw_layer *layer, const float *biases, float *y, int batch);

/** dy = d(loss)/dy becomes dz = d(loss)/dz in place, and the gradient of the layer's own biases is
 *  written to its place in `grads` or (`add`) added to what is there. y is what the forward pass
 *  left. One thread computes each sum, so the result depends only on the number of threads. */
void gw_layer_enter(const gw_layer *layer, float *grads, bool add, const float *y, float *dy,
                    int batch);

/** The gradient of W from dz, written to or added to its place in `grads`. */
void gw_layer_weights(const gw_layer *layer, float *grads, bool add, const float *x,
                      const float *dz, int batch);

/** dx = d(loss)/dx from dz; of a layer that is cut by columns, one term of it. */
void gw_layer_descend(const gw_layer *layer, const float *params, const float *dz, float *dx,
                      int batch);

#endif
