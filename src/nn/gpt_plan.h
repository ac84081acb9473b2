/** What the units of the model gpt are: their shapes, of its options, and a rank's part of them. */
#ifndef GW_NN_GPT_PLAN_H
#define GW_NN_GPT_PLAN_H

#include "nn/shard.h"

typedef enum gw_gpt_kind {
    GW_GPT_EMBEDDING,
    GW_GPT_ATTENTION,
    GW_GPT_PERCEPTRON,
    GW_GPT_HEAD
} gw_gpt_kind;

/** A unit's tensors in the arena's order. Of all but the embedding: norm, the product behind it
 *  with its biases, and the one that leads back. The head has no biases and none that leads back.
 *  Columns of attention's first product are each head's q, k and v. */
enum {
    GW_GPT_GAIN,
    GW_GPT_BIAS,
    GW_GPT_WIDE,
    GW_GPT_WIDE_BIAS,
    GW_GPT_BACK,
    GW_GPT_BACK_BIAS,
    GW_GPT_TENSORS
};
enum { GW_GPT_TABLE, GW_GPT_PLACE };

/** Sizes of a rank's part of a unit. */
typedef struct gw_gpt_form {
    int c, wide,
        inner;   /* floats of a token: of a row, behind the first product, before the second */
    gw_span own; /* of a row, what a rank holds of vectors and embeddings */
    size_t t;    /* tokens of a text */
    size_t heads;
    size_t scores; /* floats of a text's attention */
} gw_gpt_form;

gw_gpt_form gw_gpt_form_of(const gw_model_spec *spec, const gw_shard_layer *u);
gw_gpt_kind gw_gpt_kind_of(const gw_model_spec *spec, int l);

/** What the forward pass leaves, from a call's first row on. d_: gradients, which `enter` leaves
 *  for `weights`. */
typedef struct gw_gpt_kept {
    float *told, *norm, *wide, *inner, *scores, *d_wide, *d_inner, *d_norm, *d_scores;
} gw_gpt_kept;

gw_gpt_kept gw_gpt_kept_of(const gw_model_spec *spec, const gw_shard_layer *u,
                           const gw_unit_rows *r);

/** Where a rank's part of a tensor begins among the unit's parameters. */
size_t gw_gpt_at(const gw_model_spec *spec, const gw_shard_layer *u, int tensor);

/** Of the model's operations. */
extern const gw_opt gw_gpt_opts[];
gw_err gw_gpt_open(gw_model_spec *spec, const gw_args *args);
int gw_gpt_units(const gw_model_spec *spec);
gw_unit gw_gpt_unit(const gw_model_spec *spec, int l);
int gw_gpt_products(const gw_model_spec *spec, const gw_shard_layer *u, int rows,
                    gw_product out[GW_UNIT_PRODUCTS]);
void gw_gpt_initialise(const gw_model_spec *spec, const gw_shard_layer *u, float *w);

#endif
