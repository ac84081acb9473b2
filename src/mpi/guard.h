/** Looks for values in a step's loss and gradients that are not finite, or so large that the
 *  exchange would make them so. It looks at a layer's gradient (in the library: a tensor's) as soon
 *  as it is there, before it is exchanged, updates anything, or is kept as a residual or momentum.
 *  From the first bad value on, this rank's gradients of the step are set to zero, so that the
 *  exchange continues on all ranks and nobody waits for a rank that stopped. Then
 *
 *  stop  the run ends where the ranks next agree (gw_guard_check), with the first fault of all;
 *  skip  no rank updates its parameters in this step. Where replicas agree after each step, the
 *        ranks decide together, by an allreduce of 4 bytes a step; elsewhere each rank skips its
 *        own update.
 *  keep  nobody looks. */
#ifndef GW_MPI_GUARD_H
#define GW_MPI_GUARD_H

#include "base/span.h"
#include "mpi/agree.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

enum { GW_GUARD_LOSS = -1 /* in the place of a layer */ };

/** As --on-nan has them. */
typedef enum gw_on_nan { GW_ON_NAN_STOP, GW_ON_NAN_SKIP, GW_ON_NAN_KEEP } gw_on_nan;

/** The first thing of a step on a rank that was not finite. */
typedef struct gw_fault {
    int64_t step;      /* 0: there was none */
    int rank;          /* of all ranks' first one -1: there was none */
    int layer;         /* or GW_GUARD_LOSS */
    int64_t at, count; /* of the layer's floats: the first that is not finite, and how many */
    double value;      /* it, or with a count of 0 the greatest: no number, infinite or too large */
} gw_fault;

typedef struct gw_guard {
    /* set by the caller */
    MPI_Comm comm;
    int rank;
    gw_on_nan how; /* what is done about it is the caller's affair */
    bool stops;    /* it can do nothing else */
    bool together; /* all ranks leave out the same steps */
    const gw_span *layers;
    int n_layers;
    const int *number;        /* of the layers in the whole model; NULL: these are all */
    const char *const *names; /* in the place of layers there are tensors of these names; NULL */
    float most;   /* the greatest magnitude that the exchange carries; 0: any that is finite */
    int64_t step; /* the present one, from 1 on; in a rehearsal 0 */
    /* what is found */
    bool bad;              /* something in this step of this rank is not finite */
    bool given_up;         /* the program gives up this step; once agreed: on some rank */
    bool out;              /* this step is left out */
    gw_fault first;        /* of this start of the run */
    gw_fault earlier;      /* of earlier ones, likewise on this rank */
    int64_t bad_steps;     /* of this rank; those of earlier starts, too */
    int64_t out_steps;     /* likewise; where ranks leave them out together rank 0 counts */
    int64_t counted, left; /* the last steps that were: a step may be taken twice */
} gw_guard;

/** A step's loss is known, its backward pass begins. */
void gw_guard_loss(gw_guard *g, double loss);

/** The n floats at x, the gradient of layer l, were just written; may be zeroed. OpenMP threads
 *  share large ones. */
void gw_guard_values(gw_guard *g, float *x, size_t n, int l);

/** The same of grad[layers[l]]. */
static inline void gw_guard_layer(gw_guard *g, float *grad, int l) {
    gw_guard_values(g, grad + g->layers[l].off, g->layers[l].n, l);
}

/** The greatest magnitude of n floats, by its bits: NaN is above infinity, and this above all
 *  others. One pass, at the speed at which the cache delivers. */
uint32_t gw_guard_greatest(const float *x, size_t n);

/** As gw_guard_values, where someone else has found the greatest magnitude; changes nothing. */
void gw_guard_most(gw_guard *g, uint32_t most, int l);

/** After the backward pass, before anything is updated: settles g->out. Collective where ranks
 *  leave steps out together; no message else. */
gw_err gw_guard_agree(gw_guard *g);

/** This rank's first fault in all starts of the run. */
static inline gw_fault gw_guard_first(const gw_guard *g) {
    return g->earlier.step > 0 ? g->earlier : g->first;
}

/** Whether `a` is a fault and comes before `b`, which may be none. */
bool gw_fault_before(const gw_fault *a, const gw_fault *b);

/** This rank knows a reason to end the run. */
static inline bool gw_guard_stops(const gw_guard *g) {
    return g->how == GW_ON_NAN_STOP && g->first.step > 0;
}

/** Collective, between steps: GW_ERR_DIVERGED on all ranks with the first fault of all (the least
 *  step; in it the loss before layers, these in backward order; then the least rank), unless steps
 *  are skipped. Without a fault one small allreduce. */
gw_err gw_guard_check(const gw_guard *g);

/** GW_ERR_DIVERGED with this rank's first fault or, of ranks that leave steps out together, the
 *  first of all (collective); `advice` is what to do about it. */
gw_err gw_guard_fail(const gw_guard *g, const char *advice);

/** GW_ERR_DIVERGED if parameters are not finite; the message names `step` and the layer, by its
 *  number in the whole model (NULL: these are all). */
gw_err gw_guard_params(const float *params, const gw_span *layers, int n_layers, const int *number,
                       int64_t step);

/** Over all ranks, for reports. */
typedef struct gw_guard_total {
    gw_on_nan how;
    gw_fault first;
    int64_t *bad_steps; /* a rank each, at rank 0 (free()); elsewhere NULL */
    int64_t out_steps;  /* where ranks leave out their own: of all of them */
} gw_guard_total;

/** Collective. */
gw_err gw_guard_collect(const gw_guard *g, int ranks, gw_guard_total *out);

/** For run.json. */
json_t *gw_guard_json(const gw_guard_total *t, int ranks, const char *const *names);

/** "step 3, rank 1: the loss is no longer finite (nan)": for people; `names` as in gw_guard. */
void gw_fault_text(char *out, size_t cap, const gw_fault *f, const char *const *names);

#endif
