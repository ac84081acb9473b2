/** A dense layer: y = f(x W + b), and its backward pass. Pure functions of arrays; the model owns
 *  them all. Shapes: x (batch, in), y (batch, out), W (in, out), b (out), all row-major and dense.
 */
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
    gw_span span; /* W, then b, within the arena */
} gw_layer;

/** The elementwise kernels alone, on one thread. y = f(y + b) on `rows` dense rows of `cols`. */
void gw_layer_finish(gw_transfer transfer, float *y, const float *b, int rows, int cols);

/** dy = dy * f'(z), f' being a function of y, and db += column sums of it, on `cols` of the `ld`
 *  columns of a row. */
void gw_layer_start(gw_transfer transfer, float *db, float *dy, const float *y, int rows, int cols,
                    size_t ld);

/** Threads that these kernels use for a batch of this size: 1, or all. */
int gw_layer_threads(int rows, int cols);

/** y = f(x W + b); `params` holds W, then b. OpenMP threads share large batches. */
void gw_layer_forward(const gw_layer *layer, const float *params, const float *x, float *y,
                      int batch);

/** From dy = d(loss)/dy, which becomes d(loss)/d(x W + b) in place: grads = dW, then db, written or
 *  (`add`) added to what is there. y is what the forward pass left. One thread computes each
 *  sum, so the result depends only on the number of threads. */
void gw_layer_backward(const gw_layer *layer, float *grads, bool add, const float *x,
                       const float *y, float *dy, int batch);

/** dx = d(loss)/dx from the dy that gw_layer_backward left. */
void gw_layer_descend(const gw_layer *layer, const float *params, const float *dy, float *dx,
                      int batch);

#endif
