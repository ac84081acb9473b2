/* Which rank is called a straggler. */
#include "prof/ranks.h"

#include "unit.h"

#include <math.h>

static gw_rank_figures figures(double last_share, double waited_for_s) {
    return (gw_rank_figures){
        .step = {.wall_s = 1e-3}, .last_share = last_share, .waited_for_s = waited_for_s};
}

static int named(double share, double waited_for_s) {
    const gw_rank_figures all[] = {figures(0.1, 5e-6), figures(share, waited_for_s),
                                   figures(0.2, 7e-6)};
    return gw_ranks_straggler(all, 3).rank;
}

/* 5% of a step for each of the two others; the number of exchanges does not count. */
static void test_rule(void **state) {
    assert_int_equal(named(0.5, 101e-6), 1);
    assert_int_equal(named(0.01, 101e-6), 1);
    assert_int_equal(named(1, 99e-6), -1);
    assert_int_equal(named(NAN, NAN), -1);
}

static void test_figures(void **state) {
    const gw_rank_figures all[] = {figures(0.2, 1e-4), figures(0.1, 5e-4), figures(0.7, 6e-4)};
    gw_straggler s = gw_ranks_straggler(all, 3);
    assert_int_equal(s.rank, 2);
    assert_true(s.last_share == 0.7);
    assert_true(fabs(s.of_waiting - 0.5) < 1e-12);
    assert_true(fabs(s.waited_s - 3e-4) < 1e-12);
    assert_true(fabs(s.of_step - 0.3) < 1e-9);
}

/* Waiting is a part of the steps of those who wait, whatever the straggler's own steps take. */
static void test_late_between_steps(void **state) {
    gw_rank_figures all[] = {figures(0, 0), figures(1, 9e-4)};
    all[1].step.wall_s = 1e-4;
    assert_true(fabs(gw_ranks_straggler(all, 2).of_step - 0.9) < 1e-9);
}

static void test_alone(void **state) {
    const gw_rank_figures one = figures(1, 1);
    assert_int_equal(gw_ranks_straggler(&one, 1).rank, -1);
    assert_int_equal(gw_ranks_straggler(&one, 0).rank, -1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rule),
        cmocka_unit_test(test_figures),
        cmocka_unit_test(test_late_between_steps),
        cmocka_unit_test(test_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
