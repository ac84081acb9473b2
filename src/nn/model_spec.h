/** What a multilayer perceptron is, before any of it exists. Layers are numbered from 0, in the
 *  order of the forward pass. */
#ifndef GW_NN_MODEL_SPEC_H
#define GW_NN_MODEL_SPEC_H

#include "base/err.h"
#include "nn/layer.h"
#include "nn/loss.h"

#include <stdint.h>

enum { GW_MAX_LAYERS = 64 };

/** Widest layer, and most floats in an arena: indices of either fit an int. */
enum { GW_MAX_WIDTH = 1 << 20 };
#define GW_MAX_PARAMS ((size_t)INT32_MAX)

typedef enum gw_init { GW_INIT_HE, GW_INIT_XAVIER } gw_init;

typedef struct gw_model_spec {
    int inputs, classes;
    int n_hidden;
    int hidden[GW_MAX_LAYERS - 1];
    gw_activation activation;
    gw_output output;
    int n_init; /* 0 or 1: all layers are initialised by init[0]; else each by its own */
    gw_init init[GW_MAX_LAYERS];
    uint64_t seed;
} gw_model_spec;

/** Check widths, counts and the arena's size; set *params to that size in floats. Failures have the
 *  kind `kind` and messages that begin with `where` ("" or "FILE: "). */
gw_err gw_model_spec_check(const gw_model_spec *spec, gw_err kind, const char *where,
                           size_t *params);

static inline int gw_model_spec_layers(const gw_model_spec *spec) {
    return spec->n_hidden + 1;
}

/** Outputs of layer l; of -1: the model's inputs. */
static inline int gw_model_spec_width(const gw_model_spec *spec, int l) {
    return l < 0 ? spec->inputs : l < spec->n_hidden ? spec->hidden[l] : spec->classes;
}

static inline gw_init gw_model_spec_init(const gw_model_spec *spec, int l) {
    return spec->init[spec->n_init > 1 ? l : 0];
}

/** Floating-point operations of layer l for a sample, forward and backward: a product each for the
 *  outputs, the gradient of the weights and, above the first layer, that of the inputs. */
static inline double gw_model_spec_flops(const gw_model_spec *spec, int l) {
    return 2.0 * gw_model_spec_width(spec, l - 1) * gw_model_spec_width(spec, l) * (l > 0 ? 3 : 2);
}

#endif
