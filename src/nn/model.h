/** A multilayer perceptron over one flat arena: dense layers, softmax cross-entropy on top.
 *  The step is exposed layer by layer, so that a trainer can exchange one layer's gradient while
 *  it computes the next. Shapes: B = local batch, in/out = a layer's widths, C = classes. */
#ifndef GW_NN_MODEL_H
#define GW_NN_MODEL_H

#include "base/io.h"
#include "nn/model_spec.h"

#include <stdint.h>

typedef struct gw_model gw_model;

/** Build a model whose activations hold up to `max_batch` samples, parameters initialised
 *  (a pure function of spec: equal on all ranks). He: N(0, 2/in); Xavier: N(0, 2/(in+out))
 *  (He et al., ICCV 2015; Glorot and Bengio, AISTATS 2010); biases 0. Close frees everything. */
gw_err gw_model_open(gw_model **out, const gw_model_spec *spec, int max_batch);
void gw_model_close(gw_model *m);

const gw_model_spec *gw_model_get_spec(const gw_model *m);
int gw_model_layers(const gw_model *m);
/** Layer l's part of the arena: weights (in,out) row-major, then biases (out). */
gw_span gw_model_span(const gw_model *m, int l);
/** All layers' spans in order, and their tensors, two a layer: weights (in,out), biases (1,out).
 *  Owned by the model. */
const gw_span *gw_model_spans(const gw_model *m);
const gw_tensor *gw_model_tensors(const gw_model *m);
int gw_model_tensor_count(const gw_model *m);
size_t gw_model_size(const gw_model *m); /* floats in the arena */
float *gw_model_params(gw_model *m);
float *gw_model_grads(gw_model *m);

/** Use these two arenas of gw_model_size floats from now on. The caller owns them, keeps them while
 *  the model is used, and has put the parameters into `params`. */
void gw_model_lend(gw_model *m, float *params, float *grads);

/** Where the caller puts the batch: (max_batch, inputs). */
float *gw_model_input(gw_model *m);

/** Layer l of the forward pass on the first `batch` rows; layers in order 0..L-1. */
void gw_model_forward(gw_model *m, int l, int batch);

/** Logits after the last forward layer: (batch, C). Overwritten by gw_model_loss. */
const float *gw_model_logits(const gw_model *m);

/** Softmax cross-entropy of the logits against labels[0..batch): returns the SUM of the losses
 *  and prepares the backward pass with d(loss)/d(logit) * grad_scale (1 / global batch for the
 *  mean). *correct (may be NULL) counts right predictions. */
double gw_model_loss(gw_model *m, const uint8_t *labels, int batch, float grad_scale, int *correct);

/** The class of the largest logit (ties: the lowest) of each of the rows of the last loss. */
const uint8_t *gw_model_predictions(const gw_model *m);

/** Layer l of the backward pass: writes (not adds) grads[span(l)]; layers in order L-1..0, and
 *  gw_model_descend between one layer and the next. batch == 0 writes zeros. */
void gw_model_backward(gw_model *m, int l, int batch);

/** The same, but adds to sums[span(l)] of the caller's arena and leaves grads alone. */
void gw_model_backward_onto(gw_model *m, int l, int batch, float *sums);

/** Compute what the backward pass of layer l-1 starts from (nothing for l == 0). Separate, so that
 *  layer l's gradient can be sent meanwhile. */
void gw_model_descend(gw_model *m, int l, int batch);

/** Floating-point operations of one forward and backward pass over `batch` samples. */
double gw_model_flops(const gw_model *m, int batch);

/** Write spec and parameters to DIR/NAME, or open a model from such a file. */
gw_err gw_model_save(gw_model *m, const char *dir, const char *name);
/** The same with `params`, gw_model_size floats, which another thread may be training. Returns the
 *  file's size and checksum as gw_io_close_with does. */
gw_err gw_model_save_as(gw_model *m, const float *params, const char *dir, const char *name,
                        uint64_t *bytes, uint32_t *crc32);
gw_err gw_model_load(gw_model **out, const char *path, int max_batch);

#endif
