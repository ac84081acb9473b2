/** The steady mean: the time of a step when nothing disturbs the machine, computed during a run, in
 *  bounded memory. The steps, in order, are divided into GW_STEADY_BLOCKS blocks of equal length.
 *  The quarter of the blocks with the shortest mean step and the quarter with the longest are left
 *  out; the result is the mean over the steps of the others. docs/measurement.md, "Step time", says
 *  why. With fewer steps than blocks, each step is a block.
 *
 *  Where work repeats only after several steps, blocks consist of whole periods, so that no block
 *  is left out for what its steps do. With fewer than GW_STEADY_FEWEST periods, or none, nothing is
 *  left out: the result is the plain mean over whole periods of the exchange.
 *
 *  A step has several figures. The first, its wall time, decides which blocks are left out. The
 *  others are means over the same steps, so parts that are known in every step add up to it. */
#ifndef GW_BASE_STEADY_H
#define GW_BASE_STEADY_H

#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>

/* Up to GW_STEADY_PIECES steps each step is kept, so blocks differ by at most one step. In longer
 * runs neighbours are merged, and blocks differ by at most a piece, a fiftieth of their length. */
enum { GW_STEADY_BLOCKS = 40, GW_STEADY_PIECES = 4096, GW_STEADY_FEWEST = 4 };

/** After how many steps the work of a run repeats. */
typedef struct gw_repeat {
    int64_t exchange; /* bytes, messages and time of the exchange; 1: all steps are alike */
    int64_t all;      /* also what steps do at times, such as checkpoints: a multiple of
                         `exchange`; 0: never */
} gw_repeat;

/** Return how steps repeat whose exchange does after `period` steps; 0: never. */
gw_repeat gw_repeat_of(int64_t period);

/** Add work that every `every`-th step does, if a step of the first `last` does. */
void gw_repeat_also(gw_repeat *r, int64_t every, int64_t last);

typedef struct gw_steady gw_steady;

/** GW_ERR_NOMEM. Each step is taken to be like the others. */
gw_err gw_steady_open(gw_steady **out, int figures);

/** Say how the steps repeat; only while there are at most GW_STEADY_PIECES. */
void gw_steady_repeat(gw_steady *s, gw_repeat repeat);

/** s may be NULL. */
void gw_steady_free(gw_steady *s);

/** Add all figures of a step. NaN: not known; the first is always known. Never allocates. */
void gw_steady_add(gw_steady *s, const double *figure);

/** Forget the first n steps; only while there are at most GW_STEADY_PIECES. */
void gw_steady_forget(gw_steady *s, int n);

int64_t gw_steady_steps(const gw_steady *s);

/** Which steps a mean is over. */
typedef struct gw_steady_kept {
    int64_t steps;  /* 0: there is not one whole period, and no mean */
    int64_t period; /* they are whole periods of so many steps */
    bool trimmed;   /* the quickest and the slowest blocks are left out */
} gw_steady_kept;

/** "steady mean", "plain mean" or, without steps, "absent": the name in tools, beside a figure.
 *  Static string. */
const char *gw_steady_name(const gw_steady_kept *kept);

/** How far the steady mean of the first figure can be trusted: how steps vary, and whether halves
 *  of the blocks agree. */
typedef struct gw_steady_doubt {
    double p10, p90;    /* percentiles of the steps, within half a percent */
    double odd, even;   /* steady means of every other block, and of the others; */
    double first, last; /* of the first half of the blocks, and of the rest; NaN: fewer than
                           GW_STEADY_HALVES blocks, or nothing is left out */
    double apart;       /* the larger of the two differences over the steady mean */
} gw_steady_doubt;
extern const gw_steady_doubt gw_steady_no_doubt; /* all NaN */

enum { GW_STEADY_HALVES = 16 };
/** Halves disagree beyond this difference; docs/measurement.md gives the rate of false alarms. */
#define GW_STEADY_APART 0.1

/** Requires that at least one step was added. */
gw_steady_doubt gw_steady_look(const gw_steady *s);

/** Return whether halves of the blocks disagree. */
bool gw_steady_doubts(const gw_steady_doubt *d);

/** Write each figure's mean over the steps that count to steady[] and its mean over all steps to
 *  plain[]; NaN: it is known in no such step. Return which steps count. */
gw_steady_kept gw_steady_means(const gw_steady *s, double *steady, double *plain);

/** Set *out to the steady mean of x[0..n), n >= 1. GW_ERR_NOMEM. */
gw_err gw_steady_of(const double *x, int n, double *out);

#endif
