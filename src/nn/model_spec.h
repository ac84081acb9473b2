/** What a model is, before any of it exists. Its layers (units) are numbered from 0, in the order
 *  of the forward pass. */
#ifndef GW_NN_MODEL_SPEC_H
#define GW_NN_MODEL_SPEC_H

#include "nn/layer.h"
#include "nn/loss.h"

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

enum { GW_MAX_LAYERS = 64 };

/** Widest layer, and most floats in an arena: indices of either fit an int. */
enum { GW_MAX_WIDTH = 1 << 20 };
#define GW_MAX_PARAMS ((size_t)INT32_MAX)

typedef enum gw_init { GW_INIT_HE, GW_INIT_XAVIER } gw_init;

enum { GW_UNIT_TENSORS = 16, GW_MODEL_TEXT = 128, GW_MODEL_SELF = 8 };

/** How tensor ranks share a tensor: its columns or its rows. And a unit: by its outputs, so that dx
 *  is a sum over ranks; by its inputs, so that y is; or both, with whole rows on either side. */
typedef enum gw_cut { GW_CUT_NONE, GW_CUT_COLUMNS, GW_CUT_ROWS, GW_CUT_BOTH } gw_cut;

/** A unit of a model: what the walk passes through at once. Its tensors lie one behind another, a
 *  vector has rows = 1. */
typedef struct gw_unit {
    int in, out; /* floats of a row: from the unit below, and for the one above */
    int kept;    /* floats of a row that the forward pass leaves for the backward pass, beside its
                    outputs */
    gw_cut cut;  /* of models with GW_MODEL_SHARES: BOTH, or, of the last unit, whose outputs are
                    cut by classes, COLUMNS */
    int n_tensors;
    struct {
        int rows, cols;
        bool tracks;   /* see gw_tensor */
        gw_cut cut;    /* with GW_MODEL_SHARES: COLUMNS or ROWS */
        int pieces;    /* in so many equal pieces, which stay whole; 0: as neurons are */
        bool gathered; /* each rank owns a part and reads all: gw_unit_rows */
    } tensor[GW_UNIT_TENSORS];
} gw_unit;

struct gw_model_ops;

/** Plain data. What is not said of another model are the perceptron's own options. */
typedef struct gw_model_spec {
    const struct gw_model_ops *ops; /* nn/model_ops.h; NULL: the perceptron */
    char text[GW_MODEL_TEXT];       /* as --model has it; "": the perceptron */
    int64_t self[GW_MODEL_SELF];    /* what ops->open made of its options */
    int inputs, classes;            /* of any model, */
    int context; /* of one of texts, by ops->open: tokens of a sample, a target at each; else 0 */
    gw_output output;
    uint64_t seed;
    int n_hidden;
    int hidden[GW_MAX_LAYERS - 1];
    gw_activation activation;
    int n_init; /* 0 or 1: all layers are initialised by init[0]; else each by its own */
    gw_init init[GW_MAX_LAYERS];
} gw_model_spec;

/** A unit's `kept` floats as its number; more than it holds become more than any model may have,
 *  which the checks of a unit refuse. */
static inline int gw_model_spec_kept(size_t floats) {
    return floats < INT_MAX ? (int)floats : INT_MAX;
}

/** Classes that are told of a sample. */
static inline int gw_model_spec_targets(const gw_model_spec *spec) {
    return spec->context > 0 ? spec->context : 1;
}

/** How the perceptron's layer l is initialised. */
static inline gw_init gw_model_spec_init(const gw_model_spec *spec, int l) {
    return spec->init[spec->n_init > 1 ? l : 0];
}

#endif
