/** Statistics of repeated timings: medians with confidence intervals from order statistics, which
 *  assume no distribution (Hoefler, Belli, "Scientific benchmarking of parallel computing systems",
 *  SC 2015; David, Nagaraja, "Order statistics", section 7.1). */
#ifndef GW_BASE_STATS_H
#define GW_BASE_STATS_H

#include "base/err.h"

#include <stdint.h>

enum { GW_STATS_LEAST = 6 }; /* fewer samples give no 95% interval of a median */

typedef struct gw_stats {
    int n;
    double min, median, p95; /* p95: the smallest sample that at least 95% do not exceed */
    double ci_low, ci_high;  /* 95% interval of the median; NaN below GW_STATS_LEAST samples */
} gw_stats;

/** Statistics of x[0..n), n >= 1; sorts x. */
gw_stats gw_stats_of(double *x, int n);

/** Return half the interval's width over the median; infinite without an interval. */
double gw_stats_precision(const gw_stats *s);

/** Compare for qsort, of doubles or of structs that begin with one: the smaller first. */
int gw_stats_ascending(const void *a, const void *b);

/** Return the median of x[0..n), n >= 1; sorts x. */
double gw_stats_median(double *x, int n);

/** Return the representative time of repetitions x[0..n), n >= 1: the lowest decile, since
 *  disturbances on a shared machine only add time. Sorts x. */
double gw_stats_typical(double *x, int n);

/** A growing list of samples. */
typedef struct gw_samples {
    double *x;
    int n, room;
} gw_samples;

gw_err gw_samples_add(gw_samples *s, double x);
void gw_samples_free(gw_samples *s);

/** Statistics of at least one sample; keeps their order. */
gw_err gw_samples_stats(const gw_samples *s, gw_stats *out);

#endif
