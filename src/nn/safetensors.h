/** A model's parameters as a safetensors file (https://github.com/huggingface/safetensors), which
 *  other programs read by name. */
#ifndef GW_NN_SAFETENSORS_H
#define GW_NN_SAFETENSORS_H

#include "nn/model.h"

/** Write all tensors of a whole model to `path`: tensor I of layer L, counted from 0, is named
 *  "layer.L.I", is float32 and has the shape [rows, cols], a vector [cols]. GW_ERR_IO. */
gw_err gw_safetensors_write(gw_model *m, const char *path);

#endif
