/** Inside src/nn: what a model is made of. */
#ifndef GW_NN_MODEL_PARTS_H
#define GW_NN_MODEL_PARTS_H

#include "nn/model.h"

/** Which copy of an area a microbatch uses. */
typedef enum gw_copies { GW_COPIES_ONE, GW_COPIES_SLOT, GW_COPIES_DELTA } gw_copies;

/** Rows of `width` floats in the work arena: copies of `copy` floats from `off` on. */
typedef struct gw_area {
    size_t off, copy;
    int width;
    gw_copies copies;
} gw_area;

/** A layer's. Where nothing is exchanged, or in place, several of them are the same area. */
typedef struct gw_model_areas {
    gw_area below, x; /* what the layer below left here, and what the product reads */
    gw_area y;
    gw_area dy;        /* of the last layer: y, which the loss overwrites */
    gw_area dx, lower; /* what descending writes, and what the layer below enters */
    gw_area kept;
    gw_span gathered; /* tensors that ranks have parts of */
} gw_model_areas;

struct gw_model {
    gw_shard shard;
    gw_model_room room;
    gw_span spans[GW_MAX_LAYERS]; /* of the layers */
    int n_tensors;
    gw_tensor tensors[GW_UNIT_TENSORS * GW_MAX_LAYERS];
    float *params, *grads;
    bool lent; /* the caller owns these two */
    gw_model_areas areas[GW_MAX_LAYERS];
    gw_area blocks, told; /* to be gathered, or reduced and scattered; of the loss */
    size_t work_size;
    float *work;
    int global;     /* samples of the batch, over all ranks; 0: it is only evaluated */
    float *zeros;   /* the biases of outputs that include them */
    double *losses; /* one a target, as best: */
    gw_label *best; /* threads share no sum */
};

/** Lay out the work arena. */
void gw_model_lay_out_work(gw_model *m);

static inline const gw_shard_layer *gw_model_held(const gw_model *m, int l) {
    return &m->shard.layers[l];
}

/** Is l the first layer of its chunk, or the last? */
static inline bool gw_model_begins(const gw_model *m, int l) {
    return l == 0 || gw_model_held(m, l - 1)->chunk != gw_model_held(m, l)->chunk;
}

static inline bool gw_model_ends(const gw_model *m, int l) {
    return l + 1 == m->shard.n_layers || gw_model_begins(m, l + 1);
}

/** Are the outputs of layer l the logits? */
static inline bool gw_model_tops(const gw_model *m, int l) {
    return gw_model_held(m, l)->number + 1 == gw_model_spec_layers(&m->shard.spec);
}

/** Cut by columns below a layer that is cut so, too: the inputs are gathered. */
static inline bool gw_model_gathers(const gw_model *m, int l) {
    const gw_shard_layer *held = gw_model_held(m, l);
    return m->shard.share.split == GW_SPLIT_COLUMNS && held->cut == GW_CUT_COLUMNS &&
           held->number > 0;
}

/** The rows of a microbatch in an area, within the work arena. */
gw_span gw_model_rows(const gw_area *area, gw_micro at);

#endif
