/* The cut of layers over stages, against all cuts there are. */
#include "nn/shard.h"

#include "base/rng.h"

#include "unit.h"

#include <math.h>
#include <string.h>

enum { MOST = 10 };

/* Cost of the most expensive part; the sums of small integers and of doubles a power of two apart
 * are exact. */
static double dearest(const double *cost, const int *sizes, int parts) {
    double most = 0;
    for (int p = 0, i = 0; p < parts; p++) {
        double sum = 0;
        for (int end = i + sizes[p]; i < end; i++)
            sum += cost[i];
        most = fmax(most, sum);
    }
    return most;
}

/* The next cut in lexicographic order; false after the last. */
static int next(int *sizes, int parts) {
    for (int p = parts - 2; p >= 0; p--) {
        int rest = 0;
        for (int q = p + 1; q < parts; q++)
            rest += sizes[q];
        if (rest - 1 < parts - p - 1)
            continue;
        sizes[p]++;
        for (int q = p + 1; q < parts - 1; q++)
            sizes[q] = 1;
        sizes[parts - 1] = rest - 1 - (parts - p - 2);
        return 1;
    }
    return 0;
}

/* The first of the best in that order has the fewest layers in its first parts. */
static void check(const double *cost, int n, int parts) {
    int sizes[MOST], best[MOST], got[MOST];
    double least = INFINITY;
    for (int p = 0; p < parts; p++)
        sizes[p] = p + 1 < parts ? 1 : n - parts + 1;
    do {
        if (dearest(cost, sizes, parts) < least) {
            least = dearest(cost, sizes, parts);
            memcpy(best, sizes, sizeof best);
        }
    } while (next(sizes, parts));
    assert_int_equal(gw_partition(cost, n, parts, got), GW_OK);
    assert_memory_equal(got, best, (size_t)parts * sizeof *got);
}

static void test_all_cuts(void **state) {
    for (int n = 1; n <= MOST; n++)
        for (int parts = 1; parts <= n; parts++)
            for (int draw = 0; draw < 40; draw++) {
                double cost[MOST];
                uint64_t range = draw < 20 ? 4 : 1000; /* many ties, or few */
                for (int i = 0; i < n; i++)
                    cost[i] = (double)(gw_rng_u64((uint64_t)draw, (uint64_t)i) % range);
                check(cost, n, parts);
            }
}

static void test_known(void **state) {
    int sizes[3];
    const double even[] = {1, 1, 1, 1, 1}, steep[] = {8, 4, 2, 1, 0.5}, none[] = {0, 0, 0};
    assert_int_equal(gw_partition(even, 5, 2, sizes), GW_OK);
    assert_true(sizes[0] == 2 && sizes[1] == 3);
    assert_int_equal(gw_partition(steep, 5, 3, sizes), GW_OK);
    assert_true(sizes[0] == 1 && sizes[1] == 1 && sizes[2] == 3);
    assert_int_equal(gw_partition(none, 3, 3, sizes), GW_OK);
    assert_true(sizes[0] == 1 && sizes[1] == 1 && sizes[2] == 1);
    double many[300];
    for (int i = 0; i < 300; i++)
        many[i] = 1;
    assert_int_equal(gw_partition(many, 300, 3, sizes), GW_OK);
    assert_true(sizes[0] == 100 && sizes[1] == 100 && sizes[2] == 100);
}

static void test_refused(void **state) {
    int sizes[3];
    const double cost[] = {1, 2}, negative[] = {1, -1}, unknown[] = {1, NAN},
                 endless[] = {INFINITY};
    assert_int_equal(gw_partition(cost, 2, 3, sizes), GW_ERR_INTERNAL);
    assert_int_equal(gw_partition(cost, 2, 0, sizes), GW_ERR_INTERNAL);
    assert_int_equal(gw_partition(negative, 2, 1, sizes), GW_ERR_INTERNAL);
    assert_int_equal(gw_partition(unknown, 2, 1, sizes), GW_ERR_INTERNAL);
    assert_int_equal(gw_partition(endless, 1, 1, sizes), GW_ERR_INTERNAL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_cuts),
        cmocka_unit_test(test_known),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
