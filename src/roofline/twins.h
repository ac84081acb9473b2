/** Times that a batch's own times are held against, by name among the ceilings: products of the
 *  shapes that a rank computes, on hot operands, and cache-resident twins: the very kernels of the
 *  model, the optimizer and the codec on data that fit half of the first-level cache. */
#ifndef GW_ROOFLINE_TWINS_H
#define GW_ROOFLINE_TWINS_H

#include "base/probe.h"
#include "compress/codec.h"
#include "nn/gemm.h"
#include "nn/model.h"
#include "optim/optimizer.h"
#include "roofline/ceilings.h"

enum { GW_PRODUCTS = GW_UNIT_PRODUCTS * GW_MAX_LAYERS };

/** What a rank computes in a step. */
typedef struct gw_load {
    const gw_shard *shard; /* of a whole model, too: gw_model_shard */
    int batch;             /* rows; < 1: none */
    int micro;             /* parts in which they pass the layers, one after another; 0: 1 */
    int held;              /* parts whose outputs are kept at a time; 0: 1 */
    bool repeats;          /* each forward pass a second time, before the backward pass */
} gw_load;

static inline int gw_load_parts(const gw_load *l) {
    return l->micro > 1 ? l->micro : 1;
}

/** Rows of a part, at most. */
static inline int gw_load_rows(const gw_load *l) {
    return (l->batch + gw_load_parts(l) - 1) / gw_load_parts(l);
}

/** How often a part takes a product. */
static inline int gw_load_times(const gw_load *l, const gw_product *p) {
    return !p->ta && !p->tb && l->repeats ? 2 : 1;
}

/** The products of `rows` rows through a shard's layers, or through held layer l, forward and
 *  backward. Returns how many. */
int gw_twin_products(const gw_shard *shard, int rows, gw_product out[GW_PRODUCTS]);
int gw_twin_products_of(const gw_shard *shard, int l, int rows, gw_product out[GW_UNIT_PRODUCTS]);

/** Time a product on matrices of its own: the best of up to 15, some milliseconds in all, after one
 *  that warms up. GW_ERR_NOMEM: its operands do not fit. */
gw_err gw_twin_time_product(const gw_product *of, double *seconds);

/** What the twins are of. */
typedef struct gw_twin_setup {
    gw_load load;
    int threads;                   /* of this rank */
    const gw_optimizer *optimizer; /* NULL: its update is not timed */
    const gw_spec *codec;          /* NULL: none to be timed */
    bool feedback, framed;         /* as the session has it */
    int joined;                    /* ranks that the codec was told */
} gw_twin_setup;

/** Measure what `c` does not hold yet, and mark all of it as used; *added: how many were measured.
 * Runs with the caller's OpenMP threads. Rule: the best of 9 runs of about 0.25 ms (products: of up
 * to 15), at least one call each. A product whose operands do not fit the memory is left out. Not
 * collective. */
gw_err gw_twins_measure(gw_ceilings *c, const gw_twin_setup *s, int *added);

/** Seconds, NaN where it was not measured: of a product; of an element of layer width `cols`
 *  forward or backward through dense layer l's biases and activation; of a parameter's update; of a
 *  float coded in that way; of starting and ending a parallel region of all threads. All but
 *  products by one thread. */
double gw_twin_product(const gw_ceilings *c, const gw_product *p);
double gw_twin_pointwise(const gw_ceilings *c, const gw_twin_setup *s, int l, gw_part part);
double gw_twin_update(const gw_ceilings *c, const gw_twin_setup *s);
double gw_twin_coded(const gw_ceilings *c, const gw_twin_setup *s, gw_coding kind);
double gw_twin_fork(const gw_ceilings *c);

#endif
