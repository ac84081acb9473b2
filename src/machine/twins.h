/** Times that a batch's own times are held against, by name among the ceilings: products of the
 *  model's shapes on hot operands, and cache-resident twins: the very kernels of the model, the
 *  optimizer and the codec on data that fit half of the first-level cache. */
#ifndef GW_MACHINE_TWINS_H
#define GW_MACHINE_TWINS_H

#include "base/probe.h"
#include "compress/codec.h"
#include "machine/ceilings.h"
#include "nn/gemm.h"
#include "nn/model.h"

enum { GW_PRODUCTS = 3 * GW_MAX_LAYERS };

/** The products of one step over `batch` samples: forward, dW, and dX above the first layer.
 *  Returns how many. */
int gw_twin_products(const gw_model_spec *spec, int batch, gw_product out[GW_PRODUCTS]);

/** What the twins are of. */
typedef struct gw_twin_setup {
    const gw_model_spec *spec;
    int batch;   /* local; < 1: none, and no products */
    int threads; /* of this rank */
    double momentum, weight_decay;
    const gw_spec *codec;  /* NULL: none to be timed */
    bool feedback, framed; /* as the session has it */
    int joined;            /* ranks that the codec was told */
} gw_twin_setup;

/** Measure what `c` does not hold yet, and mark all of it as used; *added: how many were measured.
 * Runs with the caller's OpenMP threads. Rule: the best of 9 runs of about 0.25 ms (products: of up
 * to 15), at least one call each. A product whose operands do not fit the memory is left out. Not
 * collective. */
gw_err gw_twins_measure(gw_ceilings *c, const gw_twin_setup *s, int *added);

/** Seconds, NaN where it was not measured: of a product; of an element of layer width `cols`
 *  forward or backward through layer l's biases and activation; of a parameter's update; of a float
 *  coded in that way; of starting and ending a parallel region of all threads. All but products by
 *  one thread. */
double gw_twin_product(const gw_ceilings *c, const gw_product *p);
double gw_twin_pointwise(const gw_ceilings *c, const gw_twin_setup *s, int l, gw_part part);
double gw_twin_update(const gw_ceilings *c, const gw_twin_setup *s);
double gw_twin_coded(const gw_ceilings *c, const gw_twin_setup *s, gw_coding kind);
double gw_twin_fork(const gw_ceilings *c);

#endif
