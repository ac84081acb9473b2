/** A dense layer, y = f(x W + b), and its elementwise kernels: pure functions of arrays; the model
 *  owns them all. Shapes: x (batch, in), z and y (batch, out), W (in, out), all row-major and
 *  dense. */
#ifndef GW_NN_LAYER_H
#define GW_NN_LAYER_H

#include "base/span.h"

#include <stdbool.h>

typedef enum gw_activation {
    GW_RELU,
    GW_SIGMOID,
    GW_TANH,
    GW_LINEAR /* the last layer, whose outputs are the logits */
} gw_activation;

typedef struct gw_layer {
    int in, out;
    gw_activation transfer;
    gw_span span; /* W, then the biases that it holds, within the arena */
    gw_span own;  /* outputs whose biases it holds: a part if partial, else all */
    bool partial; /* cut by rows: x W is one term of z, which ranks sum */
} gw_layer;

/** On one thread. y = f(y + b) on `rows` dense rows of `cols`. */
void gw_layer_finish(gw_activation transfer, float *y, const float *b, int rows, int cols);

/** dy = dy * f'(z), f' being a function of y, and db += column sums of it, on `cols` of the `ld`
 *  columns of a row. */
void gw_layer_start(gw_activation transfer, float *db, float *dy, const float *y, int rows,
                    int cols, size_t ld);

/** Threads that these kernels use for a batch of this size: 1, or all. */
int gw_layer_threads(int rows, int cols);

#endif
