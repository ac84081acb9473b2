#include "base/stats.h"

#include "base/rng.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { N = 200, SERIES = 200 };

static void test_median_and_interval(void **state) {
    (void)state;
    /* Binomial tables: of 10 fair tosses at most 1 is heads with probability 1.1%, so the second
     * least and the second largest bound the median. */
    double x[] = {9, 1, 8, 2, 7, 3, 6, 4, 5, 10};
    gw_stats s = gw_stats_of(x, 10);
    assert_true(s.median == 5.5 && s.min == 1 && s.p95 == 10);
    assert_true(s.ci_low == 2 && s.ci_high == 9);
    s = gw_stats_of(x, GW_STATS_LEAST - 1);
    assert_true(isnan(s.ci_low) && isnan(s.ci_high));
}

/* Series k: each value 0.7 of the last one and new noise; its median is 0. */
static void correlated(double *x, int k) {
    uint64_t key = gw_rng_key(1, (uint64_t)k);
    double last = gw_rng_normal(key, N) / sqrt(1 - 0.7 * 0.7);
    for (int i = 0; i < N; i++)
        x[i] = last = 0.7 * last + gw_rng_normal(key, (uint64_t)i);
}

/* The interval of a series covers the truth about as often as it says (blocks of 15 know most of
 * this dependence, not all); the one for independent samples does not. The numbers are fixed, so
 * this cannot fail by chance. */
static void test_series_covers(void **state) {
    (void)state;
    int series = 0, independent = 0;
    for (int k = 0; k < SERIES; k++) {
        double x[N], order[N];
        gw_stats s;
        correlated(x, k);
        memcpy(order, x, sizeof x);
        assert_int_equal(gw_stats_series(x, N, 7, &s), GW_OK);
        assert_memory_equal(x, order, sizeof x);
        assert_true(s.ci_low <= s.median && s.median <= s.ci_high);
        series += s.ci_low <= 0 && 0 <= s.ci_high;
        gw_stats plain = gw_stats_of(order, N);
        assert_true(plain.median == s.median);
        independent += plain.ci_low <= 0 && 0 <= plain.ci_high;
    }
    print_message("covered: %d of %d by blocks, %d by order statistics\n", series, SERIES,
                  independent);
    assert_true(series >= 0.85 * SERIES);
    assert_true(independent <= 0.80 * SERIES);
}

static void test_series_is_reproducible(void **state) {
    (void)state;
    double x[N];
    gw_stats a, b, other;
    correlated(x, 0);
    assert_int_equal(gw_stats_series(x, N, 7, &a), GW_OK);
    assert_int_equal(gw_stats_series(x, N, 7, &b), GW_OK);
    assert_int_equal(gw_stats_series(x, N, 8, &other), GW_OK);
    assert_true(a.ci_low == b.ci_low && a.ci_high == b.ci_high);
    assert_true(a.ci_low != other.ci_low || a.ci_high != other.ci_high);
    assert_int_equal(gw_stats_series(x, GW_STATS_SERIES_LEAST - 1, 7, &a), GW_OK);
    assert_true(isnan(a.ci_low) && isnan(a.ci_high) && isfinite(a.median));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_median_and_interval),
        cmocka_unit_test(test_series_covers),
        cmocka_unit_test(test_series_is_reproducible),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
