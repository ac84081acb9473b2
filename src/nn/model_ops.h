/** The model seam: a chain of units, each with its own parameters. The walk (mesh/pipeline.h)
 *  passes through them, exchanges one unit's gradient while it computes the next, and cuts a model
 *  between units over the stages of a pipe.
 *
 *  To add one: ONE new file src/nn/NAME.c that defines `const gw_model_ops gw_model_NAME` and ONE
 *  line X(NAME) in models.def. Out of tree: a shared object that exports `gw_model_plugin`, given
 *  by path: --model ./libmine.so
 *
 *  A unit maps rows of `in` floats, one per sample, to rows of `out` floats. The first unit takes
 *  the samples, the last one gives a logit for each class. Arrays of rows are row-major and dense.
 *  The rows of a batch may come all at once, or a microbatch at a time. */
#ifndef GW_NN_MODEL_OPS_H
#define GW_NN_MODEL_OPS_H

#include "base/registry.h"
#include "nn/gemm.h"
#include "nn/layer.h"
#include "nn/loss.h"

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

/* ---- what a model is, before any of it exists; its layers (units) are numbered from 0, in the
 * order of the forward pass ---- */

enum { GW_MAX_LAYERS = 64 };

/** Widest layer, and most floats in an arena: indices of either fit an int. */
enum { GW_MAX_WIDTH = 1 << 20 };
#define GW_MAX_PARAMS ((size_t)INT32_MAX)

typedef enum gw_init { GW_INIT_HE, GW_INIT_XAVIER } gw_init;

enum { GW_UNIT_TENSORS = 16, GW_MODEL_TEXT = 128, GW_MODEL_SELF = 8 };

/** Tensor ranks share a tensor by its columns or by its rows. They share a unit by its outputs, so
 *  that dx is a sum over ranks; by its inputs, so that y is; or by both, with whole rows on either
 *  side. */
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

/** Plain data. What is not said of another model are the perceptron's own options. */
typedef struct gw_model_spec {
    const struct gw_model_ops *ops; /* NULL: the perceptron */
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

/** Return the initialisation of the perceptron's layer l. */
static inline gw_init gw_model_spec_init(const gw_model_spec *spec, int l) {
    return spec->init[spec->n_init > 1 ? l : 0];
}

/* ---- what it does ---- */

#define GW_MODEL_ABI 3
enum { GW_UNIT_PRODUCTS = 9 }; /* at most */

/** A unit as a rank holds it (nn/shard.h). */
typedef struct gw_shard_layer gw_shard_layer;

/** Where a unit's rows lie. What one call writes, later calls can read. */
typedef struct gw_unit_rows {
    int n;
    const float *x; /* (n, in) */
    float *y;       /* (n, out) */
    float *dy;      /* (n, out): d(loss)/dy. For the last unit it is y, which the loss overwrites */
    float *dx;      /* (n, in): d(loss)/dx; NULL: there is no unit below */
    float *kept;    /* (room, kept): for all rows of the microbatch; the n rows begin at `first`,
                       since tensor ranks may compute a microbatch in several calls */
    int first, room;
    const float *zeros;    /* (out), if tensor ranks share the unit */
    const float *gathered; /* its gathered tensors, one behind another; NULL: the parameters have
                              them whole */
    float share;           /* these rows' share of the global batch; 0: they are only evaluated */
} gw_unit_rows;

enum {
    /* Its units are dense layers (nn/layer.h), as in the shard: tensor ranks may share them, and
     * their elementwise kernels have twins. */
    GW_MODEL_DENSE = 1,
    GW_MODEL_SHARES = 2 /* its units say how tensor ranks share them */
};

typedef struct gw_model_ops {
    gw_entry head;
    unsigned traits;
    /** Optional: read the options into spec->self. Inputs and classes are not known yet.
     *  GW_ERR_USAGE: the options do not go together. */
    gw_err (*open)(gw_model_spec *spec, const gw_args *args);
    /** Optional: return why it cannot have spec->inputs or spec->classes, as a sentence about
     *  samples; NULL: it can. */
    const char *(*refuses)(const gw_model_spec *spec);
    /** Return the number of units of the whole model, and unit l. Any numbers may come out: they
     *  are checked. */
    int (*units)(const gw_model_spec *spec);
    gw_unit (*unit)(const gw_model_spec *spec, int l);
    /** Write to out[0..n) the matrix products that `rows` rows take, forward and backward; return
     *  n. They are a unit's cost when a model is cut, and its times are compared with them. Forward
     *  products transpose nothing, those of weights' gradients the first operand, those of inputs'
     *  gradients the second. k if the first operand is transposed, else m, is a multiple of
     *  `rows`. */
    int (*products)(const gw_model_spec *spec, const gw_shard_layer *u, int rows,
                    gw_product out[GW_UNIT_PRODUCTS]);
    /** Set a unit's parameters, which are 0: a function of spec and unit alone. */
    void (*initialise)(const gw_model_spec *spec, const gw_shard_layer *u, float *params);
    /** Forward, y from x, in two halves. Tensor ranks that share the unit sum y between them. */
    void (*product)(const gw_model_spec *spec, const gw_shard_layer *u, const float *params,
                    const gw_unit_rows *r);
    void (*transfer)(const gw_model_spec *spec, const gw_shard_layer *u, const float *params,
                     const gw_unit_rows *r); /* optional */
    /** Backward, in three calls, enter first. The gradient of each parameter is written (`add`:
     *  added) to `grads`, the unit's own, by `enter` or by `weights`. `descend` gives dx, and is
     *  left out if there is no unit below. `weights` may come before or after it. */
    void (*enter)(const gw_model_spec *spec, const gw_shard_layer *u, const float *params,
                  float *grads, bool add, const gw_unit_rows *r);
    void (*descend)(const gw_model_spec *spec, const gw_shard_layer *u, const float *params,
                    const gw_unit_rows *r);
    void (*weights)(const gw_model_spec *spec, const gw_shard_layer *u, float *grads, bool add,
                    const gw_unit_rows *r);
    /** Optional: if tensor ranks share the unit, `descend` writes one term of dx; here dx is the
     *  sum of these terms: make it d(loss)/dx. Add the gradients of gathered tensors, this rank's
     *  part of each, to `grads`, where `enter` has made room. */
    void (*arrive)(const gw_model_spec *spec, const gw_shard_layer *u, float *grads,
                   const gw_unit_rows *r);
    /** Optional: as gw_loss_whole, for the last unit's y, which has spec->classes logits for each
     *  of the `rows` targets. NULL: by --output. */
    void (*loss)(const gw_model_spec *spec, float *y, const gw_label *labels, int rows, float scale,
                 double *losses, gw_label *best);
} gw_model_ops;

extern const gw_registry gw_models;
extern const gw_model_ops gw_model_mlp;

/** Return the operations of a model. */
static inline const gw_model_ops *gw_model_ops_of(const gw_model_spec *spec) {
    return spec->ops ? spec->ops : &gw_model_mlp;
}

/** Make *spec the model and options that `model` names (NULL: the perceptron). GW_ERR_USAGE: no
 *  such model or option, or a text longer than spec.text; errors of gw_registry_find. */
gw_err gw_model_spec_choose(gw_model_spec *spec, const gw_spec *model);

/** Check units, widths and the arena's size; set *params to that size in floats. Failures return
 *  `kind`, with messages that begin with `where` ("" or "FILE: "). */
gw_err gw_model_spec_check(const gw_model_spec *spec, gw_err kind, const char *where,
                           size_t *params);

/** Return the number of units of the whole model, which messages call layers; and unit l. */
int gw_model_spec_layers(const gw_model_spec *spec);
gw_unit gw_model_spec_unit(const gw_model_spec *spec, int l);
size_t gw_unit_params(const gw_unit *u);

/** Return the number of outputs of layer l; l = -1: of the model's inputs. */
int gw_model_spec_width(const gw_model_spec *spec, int l);

/** Return true if its units are dense layers, as in the perceptron. */
bool gw_model_spec_dense(const gw_model_spec *spec);

#endif
