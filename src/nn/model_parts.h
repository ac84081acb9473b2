/** Inside src/nn: how a model is laid out, and how one comes to be. */
#ifndef GW_NN_MODEL_PARTS_H
#define GW_NN_MODEL_PARTS_H

#include "nn/model.h"

/** Widest layer, and most floats in an arena: indices of either fit an int. */
enum { GW_MAX_WIDTH = 1 << 20 };
#define GW_MAX_PARAMS ((size_t)INT32_MAX)

struct gw_model {
    gw_model_spec spec;
    int n_layers, max_batch;
    size_t size;
    gw_layer layers[GW_MAX_LAYERS];
    gw_span spans[GW_MAX_LAYERS]; /* of the layers, as others ask for them */
    gw_tensor tensors[2 * GW_MAX_LAYERS];
    float *params, *grads;
    bool lent; /* these two are the caller's */
    float *input;
    float *outputs[GW_MAX_LAYERS]; /* (max_batch, out) each; the last holds the logits */
    float *deltas[2];              /* d(loss)/d(output) of hidden layer l: deltas[l % 2] */
    double *losses;                /* per sample, */
    uint8_t *hits;                 /* so that the threads share no sum */
};

/** Check widths, counts and the arena's size; on success *params is that size in floats. Failures
 *  are of kind `kind`, and the message begins with `where` ("" or "FILE: "). */
gw_err gw_model_check(const gw_model_spec *spec, gw_err kind, const char *where, size_t *params);

/** gw_model_open without the initialisation: all parameters 0. `spec` has been checked. */
gw_err gw_model_build(gw_model **out, const gw_model_spec *spec, int max_batch);

#endif
