/** Looks for values in a step's loss and gradients that are not finite, or so large that exchange
 *  or update would make them so. It looks at a layer's gradient (in the library: a tensor's) as
 *  soon as it is there, before it is exchanged, updates anything, or is kept as a residual or
 *  momentum.
 *  From the first bad value on, this rank's gradients of the step are set to zero, so that the
 *  exchange continues on all ranks and nobody waits for a rank that stopped. Then
 *
 *  stop  the run ends when the ranks next agree (gw_guard_check), with the first fault of all;
 *  skip  no rank updates its parameters in this step. If replicas agree after each step, the ranks
 *        decide together, by an allreduce of 4 bytes per step; else each rank skips its own update;
 *  keep  nobody looks. */
#ifndef GW_MPI_GUARD_H
#define GW_MPI_GUARD_H

#include "base/span.h"
#include "mpi/agree.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

enum { GW_GUARD_LOSS = -1 /* in place of a layer */ };

/** The values of --on-nan. */
typedef enum gw_on_nan { GW_ON_NAN_STOP, GW_ON_NAN_SKIP, GW_ON_NAN_KEEP } gw_on_nan;

/** The first value of a step on a rank that was not finite. */
typedef struct gw_fault {
    int64_t step;      /* 0: there was none */
    int rank;          /* in the first fault of all ranks, -1: there was none */
    int layer;         /* or GW_GUARD_LOSS */
    int64_t at, count; /* of the layer's floats: the first that is not finite, and how many */
    double value;      /* that value or, if count is 0, the greatest: NaN, infinite or too large */
} gw_fault;

typedef struct gw_guard {
    /* set by the caller */
    MPI_Comm comm;
    int rank;
    gw_on_nan how; /* the caller acts on it */
    bool together; /* all ranks leave out the same steps */
    const gw_span *layers;
    int n_layers;
    const int *number;        /* of the layers in the whole model; NULL: these are all */
    const char *const *names; /* these are tensors with such names, not layers; or NULL */
    float most;   /* the greatest magnitude that exchange and update carry; 0: any finite one */
    int64_t step; /* the present one, from 1 on; in a rehearsal 0 */
    /* what is found */
    bool bad;              /* something in this step of this rank is not finite */
    bool given_up;         /* the program gives up this step; once agreed: on some rank */
    bool out;              /* this step is left out */
    gw_fault first;        /* on this rank, since this start of the run */
    gw_fault earlier;      /* on this rank, in earlier starts */
    int64_t bad_steps;     /* of this rank, with those of earlier starts */
    int64_t out_steps;     /* likewise; if ranks leave them out together, rank 0 counts */
    int64_t counted, left; /* the last such steps: a step may be taken twice */
} gw_guard;

/** Report a step's loss, before its backward pass. */
void gw_guard_loss(gw_guard *g, double loss);

/** Look at the n floats at x, layer l's gradient, which were just written; it may zero them. OpenMP
 *  threads share large gradients. */
void gw_guard_values(gw_guard *g, float *x, size_t n, int l);

/** The same for grad[layers[l]]. */
static inline void gw_guard_layer(gw_guard *g, float *grad, int l) {
    gw_guard_values(g, grad + g->layers[l].off, g->layers[l].n, l);
}

/** As gw_guard_values, given the greatest magnitude; changes no gradient. */
void gw_guard_most(gw_guard *g, uint32_t most, int l);

/** Decide g->out, after the backward pass and before any update. Collective if ranks leave steps
 *  out together; else no message. */
gw_err gw_guard_agree(gw_guard *g);

/** Return this rank's first fault in all starts of the run. */
static inline gw_fault gw_guard_first(const gw_guard *g) {
    return g->earlier.step > 0 ? g->earlier : g->first;
}

/** Return whether `a` is a fault and comes before `b`, which may be none. */
bool gw_fault_before(const gw_fault *a, const gw_fault *b);

/** Return true if this rank knows a reason to end the run. */
static inline bool gw_guard_stops(const gw_guard *g) {
    return g->how == GW_ON_NAN_STOP && g->first.step > 0;
}

/** Check for faults between steps. GW_ERR_DIVERGED on all ranks, with the first fault of all (the
 *  least step; in it the loss before layers, these in backward order; then the least rank), unless
 *  steps are skipped. Collective; without a fault, one small allreduce. */
gw_err gw_guard_check(const gw_guard *g);

/** Return GW_ERR_DIVERGED with this rank's first fault or, if ranks leave steps out together, the
 *  first of all (collective); `advice` is what to do about it. */
gw_err gw_guard_fail(const gw_guard *g, const char *advice);

/** Return GW_ERR_DIVERGED if parameters are not finite; the message names `step` and the layer, by
 *  its number in the whole model (NULL: these are all). */
gw_err gw_guard_params(const float *params, const gw_span *layers, int n_layers, const int *number,
                       int64_t step);

/** Totals over all ranks, for reports. */
typedef struct gw_guard_total {
    gw_on_nan how;
    gw_fault first;
    int64_t *bad_steps; /* per rank, at rank 0 (free()); elsewhere NULL */
    int64_t out_steps;  /* summed, if each rank leaves out its own */
} gw_guard_total;

/** Collect the totals. Collective. */
gw_err gw_guard_collect(const gw_guard *g, int ranks, gw_guard_total *out);

/** For run.json. */
json_t *gw_guard_json(const gw_guard_total *t, int ranks, const char *const *names);

/** Write "step 3, rank 1: the loss is no longer finite (nan)" for people; names: see gw_guard. */
void gw_fault_text(char *out, size_t cap, const gw_fault *f, const char *const *names);

#endif
