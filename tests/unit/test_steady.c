#include "base/steady.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

static double steady(const double *x, int n) {
    double out;
    assert_int_equal(gw_steady_of(x, n, &out), GW_OK);
    return out;
}

/* Every fourth step communicates, and for an eighth of the run somebody else was at work: the first
 * counts in full, the second not at all. */
static double recurring(int64_t i, int64_t n) {
    return (i % 4 ? 1.0 : 5.0) * (i >= n / 4 && i < n / 4 + n / 8 ? 10 : 1);
}

static void test_what_recurs_counts(void **state) {
    (void)state;
    enum { N = 1600 };
    static double x[N];
    for (int i = 0; i < N; i++)
        x[i] = recurring(i, N);
    assert_true(steady(x, N) == 2);
}

static void test_few_steps(void **state) {
    (void)state;
    assert_true(steady((double[]){3}, 1) == 3);
    assert_true(steady((double[]){9, 1, 2}, 3) == 4); /* a quarter of three is none */
    assert_true(steady((double[]){90, 3, 2, 4, 1, 3, 2, 90}, 8) == 3); /* two of each end */
}

/* Unequal blocks: of 41 steps one has two. */
static void test_all_steps_are_in_blocks(void **state) {
    (void)state;
    double x[41];
    for (int i = 0; i < 41; i++)
        x[i] = i;
    assert_true(steady(x, 41) == (10 + 30 - 1) / 2.0); /* the blocks of steps 10 to 29 */
}

/* The parts are of the steps that the first figure keeps, and add up to it, whatever their own
 * order; of steps that do not know a part the others stand for it. */
static void test_parts_add_up(void **state) {
    (void)state;
    enum { N = 100000, FIGURES = 4 };
    gw_steady *s;
    double mean[FIGURES], plain[FIGURES];
    assert_int_equal(gw_steady_open(&s, FIGURES), GW_OK);
    for (int64_t i = 0; i < N; i++) {
        double wall = recurring(i, N), part = (double)(i % 7) / 7;
        gw_steady_add(s, (double[]){wall, part, wall - part, i % 2 ? NAN : 3});
    }
    gw_steady_means(s, mean, plain);
    assert_int_equal(gw_steady_steps(s), N);
    assert_true(fabs(mean[0] - 2) < 1e-9); /* pieces of whole periods */
    assert_true(fabs(mean[1] + mean[2] - mean[0]) < 1e-9);
    assert_true(mean[3] == 3 && plain[3] == 3);
    assert_true(fabs(plain[0] - (2 * 0.875 + 20 * 0.125)) < 1e-9);
    gw_steady_free(s);
    gw_steady_free(NULL);
}

static void test_forget(void **state) {
    (void)state;
    gw_steady *s;
    double mean[2], plain[2];
    assert_int_equal(gw_steady_open(&s, 2), GW_OK);
    for (int i = 0; i < 21; i++)
        gw_steady_add(s, (double[]){i < 10 ? 100 : 1, NAN});
    gw_steady_forget(s, 10);
    gw_steady_means(s, mean, plain);
    assert_int_equal(gw_steady_steps(s), 11);
    assert_true(mean[0] == 1 && plain[0] == 1);
    assert_true(isnan(mean[1]) && isnan(plain[1]));
    gw_steady_free(s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_recurs_counts),
        cmocka_unit_test(test_few_steps),
        cmocka_unit_test(test_all_steps_are_in_blocks),
        cmocka_unit_test(test_parts_add_up),
        cmocka_unit_test(test_forget),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
