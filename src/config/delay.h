/** How long a rank is held up in a step (--inject-skew): the same time in each, or drawn. */
#ifndef GW_CONFIG_DELAY_H
#define GW_CONFIG_DELAY_H

#include "base/registry.h"

enum { GW_DELAY_ALL = -1, GW_DELAY_NUMBERS = 3 };

typedef struct gw_delay_law gw_delay_law;

typedef struct gw_delay {
    const gw_delay_law *law;    /* NULL: nobody is held up */
    int rank;                   /* GW_DELAY_ALL: each, by draws of its own */
    double x[GW_DELAY_NUMBERS]; /* the values of its options, in their order */
} gw_delay;

/** The laws of the time, for `gradwire list`; not to be extended by plugins. */
extern const gw_registry gw_delays;

/** Out of RANK:TIME or RANK:LAW:option=value,..; RANK may be `all`. NULL: nobody. GW_ERR_USAGE, in
 *  the name of the command `owner`: it is neither, or the law has no finite mean. */
gw_err gw_delay_read(gw_delay *d, const char *owner, const char *text);

/** GW_ERR_USAGE: it delays a rank that so many ranks have not. */
gw_err gw_delay_suits(const gw_delay *d, const char *owner, int ranks);

/** True if steps are held up for different times. */
bool gw_delay_varies(const gw_delay *d);

/** The u-quantile in seconds, 0 <= u < 1. */
double gw_delay_quantile(const gw_delay *d, double u);

/** Seconds for this rank in this step: a pure function of all four, so that whatever else two runs
 *  do differently, and wherever one resumes, they meet the same delays. */
double gw_delay_draw(const gw_delay *d, uint64_t seed, int rank, int64_t step);

#endif
