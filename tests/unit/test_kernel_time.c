/* What /proc/stat tells of interrupts; a figure that is not kept there is absent, not 0. */
#include "machine/link_cost.h"

#include "unit.h"

#include <math.h>

static void test_parse(void **state) {
    static const struct {
        const char *stat;
        long ticks;
        double seconds;
    } cases[] = {{"cpu  28434 0 13050 112131 572 7 568 135 0 0\ncpu0 1 2", 100, 5.75},
                 {"cpu 1 2 3 4 5 0 1024", 1024, 1},
                 {"cpu  0 0 0 0 0 0 0 0 0 0\n", 100, NAN}, /* gVisor */
                 {"cpu  9 9 9 9 9 3 0 0 0 0\n", 100, NAN},
                 {"cpu  9 9 9 9 9 3", 100, NAN},
                 {"cpu0 9 9 9 9 9 3 4", 100, NAN},
                 {"", 100, NAN},
                 {"cpu 1 2 3 4 5 6 7", -1, NAN}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        double got = gw_kernel_time_parse(cases[i].stat, cases[i].ticks);
        if (isnan(cases[i].seconds))
            assert_true(isnan(got));
        else
            assert_float_equal(got, cases[i].seconds, 1e-12);
    }
}

/* Sums since the machine and the process began: they never fall. */
static void test_now(void **state) {
    gw_kernel_time before = gw_kernel_time_now(), after = gw_kernel_time_now();
    assert_true(before.system_s >= 0 && after.system_s >= before.system_s);
    assert_int_equal(isnan(before.interrupts_s), isnan(after.interrupts_s));
    if (!isnan(before.interrupts_s))
        assert_true(before.interrupts_s > 0 && after.interrupts_s >= before.interrupts_s);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_parse), cmocka_unit_test(test_now)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
