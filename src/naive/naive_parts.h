/** What the files of the naive backend share. Nobody else includes this. */
#ifndef GW_NAIVE_NAIVE_PARTS_H
#define GW_NAIVE_NAIVE_PARTS_H

#include "naive/naive.h"

/** W (out, in) at params[off], then the biases (out). */
typedef struct gw_naive_layer {
    int in, out;
    gw_transfer transfer;
    size_t off;
} gw_naive_layer;

/** A thread's own. Rows are samples of a part. */
typedef struct gw_naive_net {
    float *pixels; /* (rows, inputs), as gathered; then in doubles: */
    double *x;
    uint8_t *labels;           /* (rows) */
    double *y[GW_MAX_LAYERS];  /* outputs of each layer (rows, out) */
    double *dy[GW_MAX_LAYERS]; /* d(loss)/d of these; on the way back, of what precedes f */
    double *grad;              /* of the part, or of all parts so far */
    bool begun;                /* `grad` holds something of this step */
    double loss;               /* sum of this step */
    uint64_t wait, held;       /* clock ticks before and in critical sections, of all steps */
} gw_naive_net;

struct gw_naive {
    gw_naive_setup setup;
    int n_layers, rank, ranks;
    gw_naive_layer layer[GW_MAX_LAYERS];
    int rows; /* of a part, at most */
    size_t size;
    double *param, *grad; /* the rank's */
    gw_naive_net *net;    /* one a thread */
    int64_t steps;
    double wait_s, held_s; /* gw_naive_collect */
};

/** Parts of `local` samples: each sample; or runs of GW_NAIVE_ROWS at most, as many a thread.
 *  gw_naive_rows: samples of the longest part of so many, or fewer. */
enum { GW_NAIVE_ROWS = 1024 };
int gw_naive_parts(const gw_naive_options *o, int threads, int local);
int gw_naive_rows(const gw_naive_options *o, int threads, int local);

/** Forward pass of the first `rows` rows of net->x. */
void gw_naive_forward(const gw_naive *n, gw_naive_net *net, int rows);

/** Loss of one sample from its outputs y (classes): returns it, and sets dy to scale * d(loss)/dy.
 *  Softmax cross-entropy: log(sum exp y) - y[label], and scale * (softmax(y) - onehot(label)); log
 *  loss of sigmoids: sum log(1 + exp y) - y[label], and scale * (sigmoid(y) - onehot(label)). */
double gw_naive_loss(gw_output output, const double *y, double *dy, int label, int classes,
                     double scale);

/** Backward pass from net->dy of the last layer; the sum over the rows is written to net->grad or
 *  (`add`) added to it. */
void gw_naive_backward(const gw_naive *n, gw_naive_net *net, int rows, bool add);

#endif
