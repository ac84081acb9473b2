/** The steady mean: what a step of a run takes when nothing disturbs the machine, computed while
 *  the run goes on, in bounded memory. The steps, in order, are divided into GW_STEADY_BLOCKS
 *  blocks of equal length; the quarter of the blocks with the shortest mean step and the quarter
 *  with the longest are left out; the mean over the steps of the others remains.
 *  docs/measurement.md, "Step time", says why. Fewer steps than blocks: a block each.
 *
 *  A step has several figures. The first, its wall time, says which blocks are left out: the others
 *  are means over the same steps, so parts of a step that every step knows add up to it. */
#ifndef GW_BASE_STEADY_H
#define GW_BASE_STEADY_H

#include "base/err.h"

#include <stdint.h>

/* Up to GW_STEADY_PIECES steps each step is kept, so blocks differ by one step at most. Of longer
 * runs neighbours are merged, and blocks differ by at most a piece, a fiftieth of their length. */
enum { GW_STEADY_BLOCKS = 40, GW_STEADY_PIECES = 4096 };

/** As tools name it beside a figure. */
#define GW_STEADY_NAME "steady mean"

typedef struct gw_steady gw_steady;

/** GW_ERR_NOMEM. */
gw_err gw_steady_open(gw_steady **out, int figures);

/** s may be NULL. */
void gw_steady_free(gw_steady *s);

/** Add a step: all its figures. NaN: not known; the first one always is. Never allocates. */
void gw_steady_add(gw_steady *s, const double *figure);

/** Forget the first n steps; only while there are at most GW_STEADY_PIECES. */
void gw_steady_forget(gw_steady *s, int n);

int64_t gw_steady_steps(const gw_steady *s);

/** Each figure's steady mean to steady[], its mean over all steps to plain[]; NaN: no such step
 *  knows it. */
void gw_steady_means(const gw_steady *s, double *steady, double *plain);

/** Steady mean of x[0..n), n >= 1. GW_ERR_NOMEM. */
gw_err gw_steady_of(const double *x, int n, double *out);

#endif
