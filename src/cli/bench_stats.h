/** What the benchmarks make of repeated timings: medians with confidence intervals from order
 *  statistics, which assume no distribution (Hoefler, Belli, "Scientific benchmarking of parallel
 *  computing systems", SC 2015; David, Nagaraja, "Order statistics", section 7.1). */
#ifndef GW_CLI_BENCH_STATS_H
#define GW_CLI_BENCH_STATS_H

#include "base/err.h"

enum { GW_BENCH_LEAST = 6 }; /* samples below which no 95% interval of a median exists */

typedef struct gw_bench_stats {
    int n;
    double min, median, p95; /* p95: the least sample that at least 95% do not exceed */
    double ci_low, ci_high;  /* 95% interval of the median; NaN below GW_BENCH_LEAST samples */
} gw_bench_stats;

/** Statistics of x[0..n), n >= 1, which is sorted. */
gw_bench_stats gw_bench_summary(double *x, int n);

/** Half the interval's width by the median; infinite where there is no interval. */
double gw_bench_precision(const gw_bench_stats *s);

/** Median of x[0..n), n >= 1, which is sorted. */
double gw_bench_median(double *x, int n);

/** A list of samples that grows. */
typedef struct gw_bench_samples {
    double *x;
    int n, room;
} gw_bench_samples;

gw_err gw_bench_add(gw_bench_samples *s, double x);
void gw_bench_samples_free(gw_bench_samples *s);

/** Statistics of the samples, which keep their order; `s` has one at least. */
gw_err gw_bench_samples_summary(const gw_bench_samples *s, gw_bench_stats *out);

#endif
