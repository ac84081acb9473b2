/** The model seam: a chain of units, each with its own parameters. The walk (mesh/pipeline.h)
 *  passes through them, exchanges one unit's gradient while it computes the next, and cuts a model
 *  between units over the stages of a pipe.
 *
 *  To add one: ONE new file src/nn/NAME.c that defines `const gw_model_ops gw_model_NAME` and ONE
 *  line X(NAME) in models.def. Out of tree: a shared object that exports `gw_model_plugin`, given
 *  by path: --model ./libmine.so
 *
 *  A unit maps rows, one a sample, of `in` floats to rows of `out` floats. The first one takes the
 *  samples, the last one gives a logit for each class. Arrays of rows are row-major and dense. All
 *  rows of a batch may come at once, or a microbatch at a time. */
#ifndef GW_NN_MODEL_OPS_H
#define GW_NN_MODEL_OPS_H

#include "base/registry.h"
#include "nn/gemm.h"
#include "nn/model_spec.h"

#define GW_MODEL_ABI 3
enum { GW_UNIT_PRODUCTS = 9 }; /* at most */

/** A unit as a rank holds it (nn/shard.h). */
typedef struct gw_shard_layer gw_shard_layer;

/** Where a unit's rows lie. What one call writes is there for those that follow it. */
typedef struct gw_unit_rows {
    int n;
    const float *x; /* (n, in) */
    float *y;       /* (n, out) */
    float *dy;      /* (n, out): d(loss)/dy. Of the last unit it is y, which the loss overwrites */
    float *dx;      /* (n, in): d(loss)/dx; NULL: nothing is below */
    float *kept;    /* (room, kept): of all rows of the microbatch, of which these begin at `first`;
                       tensor ranks may compute them in several calls */
    int first, room;
    const float *zeros;    /* (out), where tensor ranks share the unit */
    const float *gathered; /* its gathered tensors, one behind another; NULL: they are whole in the
                              parameters */
    float share; /* of the global batch, that these rows are; 0: they are only evaluated */
} gw_unit_rows;

enum {
    /* Its units are dense layers (nn/layer.h), as the shard has them: tensor ranks may share them,
     * and their elementwise kernels have twins. */
    GW_MODEL_DENSE = 1,
    GW_MODEL_SHARES = 2 /* its units say how tensor ranks share them */
};

typedef struct gw_model_ops {
    gw_entry head;
    unsigned traits;
    /** Read the options into spec->self. Inputs and classes are not known yet. GW_ERR_USAGE: they
     *  do not go together. Optional. */
    gw_err (*open)(gw_model_spec *spec, const gw_args *args);
    /** Why it cannot have spec->inputs or spec->classes, as a sentence about samples; NULL: it can.
     *  Optional. */
    const char *(*refuses)(const gw_model_spec *spec);
    /** Of the whole model: how many units there are, and unit l. Any numbers may come out: they are
     *  checked. */
    int (*units)(const gw_model_spec *spec);
    gw_unit (*unit)(const gw_model_spec *spec, int l);
    /** The matrix products that `rows` rows take, forward and backward: out[0..n). Returns n. They
     *  are a unit's cost where a model is cut, and what its times are held against. Those of the
     *  forward pass transpose nothing, those of weights' gradients the first operand, those of the
     *  inputs' gradients the second. k where the first one is transposed, else m, is a multiple of
     *  `rows`. */
    int (*products)(const gw_model_spec *spec, const gw_shard_layer *u, int rows,
                    gw_product out[GW_UNIT_PRODUCTS]);
    /** Set a unit's parameters, which are 0: a function of spec and unit alone. */
    void (*initialise)(const gw_model_spec *spec, const gw_shard_layer *u, float *params);
    /** Forward, y from x; in two halves if tensor ranks share it: they sum y between them. */
    void (*product)(const gw_model_spec *spec, const gw_shard_layer *u, const float *params,
                    const gw_unit_rows *r);
    void (*transfer)(const gw_model_spec *spec, const gw_shard_layer *u, const float *params,
                     const gw_unit_rows *r); /* optional */
    /** Backward, in three calls, enter first. Gradients of parameters are written to `grads`, the
     *  unit's own, or (`add`) added to it: each by one of the two calls that have it. `descend`
     *  gives dx, and is left out where nothing is below. `weights` may come before or after it. */
    void (*enter)(const gw_model_spec *spec, const gw_shard_layer *u, const float *params,
                  float *grads, bool add, const gw_unit_rows *r);
    void (*descend)(const gw_model_spec *spec, const gw_shard_layer *u, const float *params,
                    const gw_unit_rows *r);
    void (*weights)(const gw_model_spec *spec, const gw_shard_layer *u, float *grads, bool add,
                    const gw_unit_rows *r);
    /** Where tensor ranks share the unit dx is a term when `descend` has written it, and here their
     *  sum, which becomes d(loss)/dx. Gradients of gathered tensors, each rank's part, are added to
     *  `grads`, where `enter` has made room. Optional. */
    void (*arrive)(const gw_model_spec *spec, const gw_shard_layer *u, float *grads,
                   const gw_unit_rows *r);
    /** As gw_loss_whole, of the last unit's y, which has spec->classes logits for each of the
     *  `rows` targets. Optional: by --output. */
    void (*loss)(const gw_model_spec *spec, float *y, const gw_label *labels, int rows, float scale,
                 double *losses, gw_label *best);
} gw_model_ops;

extern const gw_registry gw_models;
extern const gw_model_ops gw_model_mlp;

/** The operations of a model. */
static inline const gw_model_ops *gw_model_ops_of(const gw_model_spec *spec) {
    return spec->ops ? spec->ops : &gw_model_mlp;
}

/** Make it the model that `model` names (NULL: the perceptron), with the options that it has there.
 *  GW_ERR_USAGE: no such model or option, or text longer than spec.text; gw_registry_find's. */
gw_err gw_model_spec_choose(gw_model_spec *spec, const gw_spec *model);

/** Check units, widths and the arena's size; set *params to that size in floats. Failures have the
 *  kind `kind` and messages that begin with `where` ("" or "FILE: "). */
gw_err gw_model_spec_check(const gw_model_spec *spec, gw_err kind, const char *where,
                           size_t *params);

/** The units of the whole model, which messages call layers; and one of them. */
int gw_model_spec_layers(const gw_model_spec *spec);
gw_unit gw_model_spec_unit(const gw_model_spec *spec, int l);
size_t gw_unit_params(const gw_unit *u);

/** Outputs of layer l; of -1: the model's inputs. */
int gw_model_spec_width(const gw_model_spec *spec, int l);

/** Are its units dense layers, as those of the perceptron are? */
bool gw_model_spec_dense(const gw_model_spec *spec);

#endif
