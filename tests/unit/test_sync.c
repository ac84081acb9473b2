#include "prof/sync.h"

#include "unit.h"

#include <math.h>

/* The common clock is at 100 s when ours reads `first`, and runs 1e-9 s a tick at first, then
 * slower; measurements have no error. */
static const uint64_t first = 9000000000000000000u;

static void look(gw_sync_point *p, uint64_t after, double seconds) {
    *p = (gw_sync_point){first + after, seconds, 0};
}

static void check(const gw_sync_point *at, int n, int64_t after, double seconds) {
    double is = gw_sync_interpolate(at, n, 1e-9, first + (uint64_t)after);
    assert_true(fabs(is - seconds) < 1e-10);
}

static void test_interpolation(void **state) {
    gw_sync_point at[3];
    look(&at[0], 0, 100);
    check(at, 1, 0, 100);
    check(at, 1, 5000000, 100.005);
    check(at, 1, -5000000, 99.995);
    look(&at[1], 1000000000, 101);
    look(&at[2], 2000000000, 101.9999); /* 100 ppm slower */
    check(at, 2, 500000000, 100.5);
    check(at, 3, 500000000, 100.5);
    check(at, 3, 1000000000, 101);
    check(at, 3, 1500000000, 101.49995);
    check(at, 3, 2000000000, 101.9999);
    check(at, 3, 3000000000, 102.9998); /* goes on as it last ran */
    check(at, 3, -1000000000, 99);
}

/* Many measurements: each instant uses its own interval. */
static void test_many_looks(void **state) {
    gw_sync_point at[100];
    for (int i = 0; i < 100; i++)
        look(&at[i], (uint64_t)i * 1000, 100 + (double)i * i * 1e-3);
    for (int i = 0; i < 99; i++)
        for (int part = 0; part <= 10; part++)
            check(at, 100, i * 1000 + part * 100,
                  100 + 1e-3 * ((double)i * i + 0.1 * part * (2 * i + 1)));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_interpolation),
        cmocka_unit_test(test_many_looks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
