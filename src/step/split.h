/** A batch's computation split into core and memory time; definitions and errors are in
 *  docs/measurement.md. Sources are kept apart and never averaged:
 *
 *  twin   kernels that have a cache-resident twin (biases and activations, the optimizer; the codec
 *         in columns of its own): what they took beyond their twins' time for as many elements.
 *  model  matrix products, which took C seconds. t_flop: the time of the same shapes on hot
 *  operands;
 *         t_bytes: their compulsory traffic, divided by the bandwidth of the level that holds the
 *         step's working set. Memory time lies in [max(0, C - t_flop), min(C, t_bytes)]. If this
 *         interval is empty, both bounds stay blank and the batch is counted as inconsistent. */
#ifndef GW_STEP_SPLIT_H
#define GW_STEP_SPLIT_H

#include "prof/batch_row.h"
#include "roofline/twins.h"

/** How many parameters an optimizer moved, and how. */
typedef struct gw_moved {
    double alone, shared; /* floats by one thread; floats that all threads shared */
    double forks;         /* parallel regions of the latter */
} gw_moved;

static inline gw_moved gw_moved_since(const gw_moved *now, const gw_moved *then) {
    return (gw_moved){now->alone - then->alone, now->shared - then->shared,
                      now->forks - then->forks};
}

typedef struct gw_split {
    const gw_ceilings *c; /* NULL: nothing is split */
    gw_twin_setup of;
    double move_s, fork_s, code_s[GW_CODINGS]; /* twins; NaN: none */
    double forward_s[GW_MAX_LAYERS], backward_s[GW_MAX_LAYERS];
    double flop_s;          /* t_flop of a batch of of.load.batch rows */
    double bandwidth;       /* of this rank, bytes a second */
    int level;              /* that the working set lies in */
    double working_set;     /* bytes of a step */
    int64_t split, flagged; /* batches with a split; of these without an interval */
} gw_split;

/** Prepare for batches of about `of->load.batch` rows. `c` is kept and must outlive m; NULL, or a
 * host with more threads than CPUs, where a time tells nothing of memory: every split stays blank.
 */
void gw_split_open(gw_split *m, const gw_ceilings *c, const gw_twin_setup *of);

/** The split by twins and model of a batch of `local` samples that cost `c`. It stays blank where
 *  no parts were timed or there were no samples; the interval also where the batch's size is more
 *  than 10% off. */
gw_batch_split gw_split_batch(gw_split *m, int local, const gw_moved *moved,
                              const gw_batch_cost *c);

/** Count batches anew: those so far were a rehearsal. */
void gw_split_forget(gw_split *m);

/** The interval alone: products took `c_s` seconds, and would take `flop_s` hot; *lo and *hi are
 * NaN if it is empty. */
void gw_split_interval(double c_s, double flop_s, double bytes_s, double *lo, double *hi);

/** Compulsory bytes of a product: operands read once, and the result, of which each line is fetched
 *  before it is written. */
double gw_split_bytes(const gw_product *p);

/** The same of all times that a step takes the product, a part of its rows at a time. */
double gw_split_load_bytes(const gw_load *l, const gw_product *p);

#endif
