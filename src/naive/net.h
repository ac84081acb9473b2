/** Forward and backward pass of one thread. */
#ifndef GW_NAIVE_NET_H
#define GW_NAIVE_NET_H

#include "naive/products.h"
#include "nn/model_spec.h"

#include <stdint.h>

/** W (out, in) at params[off], then the biases (out). */
typedef struct gw_naive_layer {
    int in, out;
    gw_transfer transfer;
    size_t off;
} gw_naive_layer;

typedef struct gw_naive_chain {
    int n_layers;
    gw_naive_layer layer[GW_MAX_LAYERS];
    gw_naive_loops loops;
    double *param; /* the rank's */
} gw_naive_chain;

/** A thread's own. Rows are samples of a part. */
typedef struct gw_naive_net {
    float *pixels; /* (rows, inputs), as gathered; then in doubles: */
    double *x;
    gw_label *labels;          /* (rows) */
    double *y[GW_MAX_LAYERS];  /* outputs of each layer (rows, out) */
    double *dy[GW_MAX_LAYERS]; /* d(loss)/d of these; on the way back, of what precedes f */
    double *grad;              /* of the part, or of all parts so far */
    bool begun;                /* `grad` holds something of this step */
    double loss;               /* sum of this step */
    uint64_t wait, held;       /* clock ticks before and in critical sections, of all steps */
} gw_naive_net;

/** Forward pass of the first `rows` rows of net->x. */
void gw_naive_forward(const gw_naive_chain *c, gw_naive_net *net, int rows);

/** Loss of one sample from its outputs y (classes): returns it, and sets dy to scale * d(loss)/dy.
 *  Softmax cross-entropy: log(sum exp y) - y[label], and scale * (softmax(y) - onehot(label)); log
 *  loss of sigmoids: sum log(1 + exp y) - y[label], and scale * (sigmoid(y) - onehot(label)). */
double gw_naive_loss(gw_output output, const double *y, double *dy, int label, int classes,
                     double scale);

/** Backward pass from net->dy of the last layer; the sum over the rows is written to net->grad or
 *  (`add`) added to it. */
void gw_naive_backward(const gw_naive_chain *c, gw_naive_net *net, int rows, bool add);

#endif
