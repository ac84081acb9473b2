#include "base/stats.h"

#include "unit.h"

#include <math.h>

static void test_median_and_interval(void **state) {
    /* Binomial tables: of 10 fair tosses at most 1 is heads with probability 1.1%, so the second
     * least and the second largest bound the median. */
    double x[] = {9, 1, 8, 2, 7, 3, 6, 4, 5, 10};
    gw_stats s = gw_stats_of(x, 10);
    assert_true(s.median == 5.5 && s.min == 1 && s.p95 == 10);
    assert_true(s.ci_low == 2 && s.ci_high == 9);
    s = gw_stats_of(x, GW_STATS_LEAST - 1);
    assert_true(isnan(s.ci_low) && isnan(s.ci_high));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_median_and_interval),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
