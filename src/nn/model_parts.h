/** Inside src/nn: layout and construction of a model. */
#ifndef GW_NN_MODEL_PARTS_H
#define GW_NN_MODEL_PARTS_H

#include "nn/model.h"

struct gw_model {
    gw_model_spec spec;
    int n_layers, max_batch;
    size_t size;
    gw_layer layers[GW_MAX_LAYERS];
    gw_span spans[GW_MAX_LAYERS]; /* of the layers */
    gw_tensor tensors[2 * GW_MAX_LAYERS];
    float *params, *grads;
    bool lent; /* the caller owns these two */
    float *input;
    float *outputs[GW_MAX_LAYERS]; /* (max_batch, out) each; the last holds the logits */
    float *deltas[2];              /* d(loss)/d(output) of hidden layer l: deltas[l % 2] */
    double *losses;                /* one a sample, as best: */
    uint8_t *best;                 /* threads share no sum */
};

/** gw_model_open without the initialisation: all parameters 0. `spec` has been checked. */
gw_err gw_model_build(gw_model **out, const gw_model_spec *spec, int max_batch);

#endif
