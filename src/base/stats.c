#include "base/stats.h"

#include "base/mem.h"
#include "base/rng.h"

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

static double stats_middle(const double *sorted, int n) {
    return (sorted[(n - 1) / 2] + sorted[n / 2]) / 2;
}

double gw_stats_typical(double *x, int n) {
    qsort(x, (size_t)n, sizeof *x, gw_stats_ascending);
    return x[(n - 1) / 10];
}

double gw_stats_median(double *x, int n) {
    qsort(x, (size_t)n, sizeof *x, gw_stats_ascending);
    return stats_middle(x, n);
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

/* The k-th smallest of x[0..n), from 0: Hoare's selection, which reorders x. */
static double stats_kth(double *x, int n, int k) {
    int low = 0, high = n - 1;
    while (low < high) {
        double pivot = x[low + (high - low) / 2];
        int i = low, j = high;
        while (i <= j) {
            while (x[i] < pivot)
                i++;
            while (x[j] > pivot)
                j--;
            if (i <= j) {
                double t = x[i];
                x[i++] = x[j];
                x[j--] = t;
            }
        }
        if (k <= j)
            high = j;
        else if (k >= i)
            low = i;
        else
            break;
    }
    return x[k];
}

int gw_stats_block(int n) {
    return (int)ceil(sqrt(n));
}

gw_err gw_stats_series(const double *x, int n, uint64_t seed, gw_stats *out) {
    enum { RESAMPLES = 1000, TAIL = 25 }; /* 2.5% of them */
    double *drawn = NULL, medians[RESAMPLES];
    int block = gw_stats_block(n);
    GW_TRY(gw_alloc(&drawn, (size_t)n, sizeof *drawn));
    memcpy(drawn, x, (size_t)n * sizeof *drawn);
    *out = gw_stats_of(drawn, n);
    out->ci_low = out->ci_high = NAN;
    if (n < GW_STATS_SERIES_LEAST) {
        free(drawn);
        return GW_OK;
    }
    for (int r = 0; r < RESAMPLES; r++) {
        uint64_t key = gw_rng_key(seed, (uint64_t)r);
        for (int at = 0; at < n; at += block) {
            int from = (int)(gw_rng_u64(key, (uint64_t)at) % (uint64_t)(n - block + 1));
            int left = n - at < block ? n - at : block;
            memcpy(drawn + at, x + from, (size_t)left * sizeof *drawn);
        }
        medians[r] = (stats_kth(drawn, n, (n - 1) / 2) + stats_kth(drawn, n, n / 2)) / 2;
    }
    free(drawn);
    qsort(medians, RESAMPLES, sizeof *medians, gw_stats_ascending);
    out->ci_low = medians[TAIL - 1];
    out->ci_high = medians[RESAMPLES - TAIL];
    return GW_OK;
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
