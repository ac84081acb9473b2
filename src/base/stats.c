#include "base/stats.h"

#include "base/mem.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

int gw_stats_ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The interval is [x(k), x(n+1-k)], counted from 1, for the largest k such that n fair tosses give
 * fewer than k heads with probability at most 2.5%; 0: none exists. */
static int stats_interval_rank(int n) {
    enum { EXACT = 1000 }; /* 2^-n must be a normal double */
    if (n > EXACT)
        return (int)floor(0.5 * n - 0.98 * sqrt(n));
    double toss = exp2(-n), below = toss; /* P(X = k), P(X <= k) */
    int k = 0;
    while (below <= 0.025) {
        toss *= (double)(n - k) / (k + 1);
        below += toss;
        k++;
    }
    return k;
}

double gw_stats_typical(double *x, int n) {
    qsort(x, (size_t)n, sizeof *x, gw_stats_ascending);
    return x[(n - 1) / 10];
}

double gw_stats_median(double *x, int n) {
    qsort(x, (size_t)n, sizeof *x, gw_stats_ascending);
    return (x[(n - 1) / 2] + x[n / 2]) / 2;
}

gw_stats gw_stats_of(double *x, int n) {
    double median = gw_stats_median(x, n);
    int k = stats_interval_rank(n), p95 = (95 * n + 99) / 100;
    return (gw_stats){.n = n,
                      .min = x[0],
                      .median = median,
                      .p95 = x[p95 - 1],
                      .ci_low = k ? x[k - 1] : NAN,
                      .ci_high = k ? x[n - k] : NAN};
}

double gw_stats_precision(const gw_stats *s) {
    return isnan(s->ci_low) ? INFINITY : (s->ci_high - s->ci_low) / 2 / fabs(s->median);
}

gw_err gw_samples_add(gw_samples *s, double x) {
    GW_TRY(gw_grow(&s->x, &s->room, s->n + 1, sizeof *s->x));
    s->x[s->n++] = x;
    return GW_OK;
}

void gw_samples_free(gw_samples *s) {
    free(s->x);
    *s = (gw_samples){0};
}

gw_err gw_samples_stats(const gw_samples *s, gw_stats *out) {
    double *sorted = NULL;
    GW_TRY(gw_alloc(&sorted, (size_t)s->n, sizeof *sorted));
    memcpy(sorted, s->x, (size_t)s->n * sizeof *sorted);
    *out = gw_stats_of(sorted, s->n);
    free(sorted);
    return GW_OK;
}
