/** What the units of the model cnn are: their shapes, of its options. */
#ifndef GW_NN_CNN_PLAN_H
#define GW_NN_CNN_PLAN_H

#include "nn/conv.h"
#include "nn/model_ops.h"

typedef enum gw_cnn_kind {
    GW_CNN_CONVOLUTION,
    GW_CNN_BLOCK,
    GW_CNN_DENSE,
    GW_CNN_HEAD
} gw_cnn_kind;

/** first: of a convolution, or of a block; second, across: of a block, `across` only where
 * the shortcut has to change its shape. */
typedef struct gw_cnn_unit {
    gw_cnn_kind kind;
    gw_conv first, second, across;
    bool norm, pool, crosses; /* of a convolution: normalised, or with biases; then pooled */
    int in, out, places;      /* floats of a row; of the head: of an image */
} gw_cnn_unit;

/** Options of the model, and what is made of them. GW_ERR_USAGE: some are of the other preset. */
extern const gw_opt gw_cnn_opts[];
gw_err gw_cnn_open(gw_model_spec *spec, const gw_args *args);

/** Why samples of spec->inputs cannot be read; NULL: they can. */
const char *gw_cnn_refuses(const gw_model_spec *spec);

int gw_cnn_units(const gw_model_spec *spec);
gw_cnn_unit gw_cnn_plan(const gw_model_spec *spec, int l);

#endif
