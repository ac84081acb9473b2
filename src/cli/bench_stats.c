#include "cli/bench_stats.h"

#include "base/mem.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The interval is [x(k), x(n+1-k)], counted from 1, with the largest k such that a binomial
 * variable of n fair tosses stays below k with probability 2.5% at most; 0: there is none. */
static int interval_rank(int n) {
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

static double middle(const double *sorted, int n) {
    return (sorted[(n - 1) / 2] + sorted[n / 2]) / 2;
}

double gw_bench_median(double *x, int n) {
    qsort(x, (size_t)n, sizeof *x, ascending);
    return middle(x, n);
}

gw_bench_stats gw_bench_summary(double *x, int n) {
    double median = gw_bench_median(x, n);
    int k = interval_rank(n), p95 = (95 * n + 99) / 100;
    return (gw_bench_stats){.n = n,
                            .min = x[0],
                            .median = median,
                            .p95 = x[p95 - 1],
                            .ci_low = k ? x[k - 1] : NAN,
                            .ci_high = k ? x[n - k] : NAN};
}

double gw_bench_precision(const gw_bench_stats *s) {
    return isnan(s->ci_low) ? INFINITY : (s->ci_high - s->ci_low) / 2 / fabs(s->median);
}

gw_err gw_bench_add(gw_bench_samples *s, double x) {
    if (s->n == s->room) {
        int room = s->room ? 2 * s->room : 64;
        double *wide = realloc(s->x, (size_t)room * sizeof *wide);
        if (!wide)
            return gw_fail(GW_ERR_NOMEM, "bench: out of memory");
        s->x = wide;
        s->room = room;
    }
    s->x[s->n++] = x;
    return GW_OK;
}

void gw_bench_samples_free(gw_bench_samples *s) {
    free(s->x);
    *s = (gw_bench_samples){0};
}

gw_err gw_bench_samples_summary(const gw_bench_samples *s, gw_bench_stats *out) {
    double *sorted = NULL;
    GW_TRY(gw_alloc(&sorted, (size_t)s->n, sizeof *sorted));
    memcpy(sorted, s->x, (size_t)s->n * sizeof *sorted);
    *out = gw_bench_summary(sorted, s->n);
    free(sorted);
    return GW_OK;
}
