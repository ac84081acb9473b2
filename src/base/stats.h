/** What is made of repeated timings: medians with confidence intervals from order
 *  statistics, which assume no distribution (Hoefler, Belli, "Scientific benchmarking of parallel
 *  computing systems", SC 2015; David, Nagaraja, "Order statistics", section 7.1). */
#ifndef GW_BASE_STATS_H
#define GW_BASE_STATS_H

#include "base/err.h"

#include <stdint.h>

enum { GW_STATS_LEAST = 6 }; /* samples below which no 95% interval of a median exists */

typedef struct gw_stats {
    int n;
    double min, median, p95; /* p95: the least sample that at least 95% do not exceed */
    double ci_low, ci_high;  /* 95% interval of the median; NaN below GW_STATS_LEAST samples */
} gw_stats;

/** Statistics of x[0..n), n >= 1, which is sorted. */
gw_stats gw_stats_of(double *x, int n);

/** The same of a series x[0..n), in the order it was measured, whose neighbours depend on each
 * other: the interval is from a moving-block bootstrap of the median (Kuensch, "The jackknife and
 * the bootstrap for general stationary observations", Annals of Statistics, 1989), 1000 resamples
 * in blocks of gw_stats_block(n), the 2.5% and 97.5% quantiles. NaN below GW_STATS_SERIES_LEAST. */
enum { GW_STATS_SERIES_LEAST = 16 }; /* four blocks */
gw_err gw_stats_series(const double *x, int n, uint64_t seed, gw_stats *out);

/** Length of its blocks, ceil(sqrt(n)): longer than what a stir of the machine takes, and still as
 *  many blocks. */
int gw_stats_block(int n);

/** Half the interval's width by the median; infinite where there is no interval. */
double gw_stats_precision(const gw_stats *s);

/** Median of x[0..n), n >= 1, which is sorted. */
double gw_stats_median(double *x, int n);

/** The time that repetitions x[0..n), n >= 1, stand for: their lowest decile, since what disturbs
 * a measurement on a shared machine only ever adds. x is sorted. */
double gw_stats_typical(double *x, int n);

/** A list of samples that grows. */
typedef struct gw_samples {
    double *x;
    int n, room;
} gw_samples;

gw_err gw_samples_add(gw_samples *s, double x);
void gw_samples_free(gw_samples *s);

/** Statistics of the samples, which keep their order; `s` has one at least. */
gw_err gw_samples_stats(const gw_samples *s, gw_stats *out);

#endif
