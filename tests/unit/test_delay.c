/* Delays of --inject-skew: drawn as their laws say, by (seed, rank, step) alone. */
#include "config/delay.h"

#include "unit.h"

#include <math.h>

enum { DRAWS = 200000 };

static gw_delay read(const char *text) {
    gw_delay d;
    assert_ok(gw_delay_read(&d, "train", text));
    return d;
}

/* Of all draws a share p lies below `t`; five standard deviations. */
static void expect_share(const gw_delay *d, double t, double p) {
    int below = 0;
    for (int i = 0; i < DRAWS; i++)
        below += gw_delay_draw(d, 7, i % 4, i / 4 + 1) <= t;
    double off = below / (double)DRAWS - p;
    if (fabs(off) > 5 * sqrt(p * (1 - p) / DRAWS))
        fail_msg("%d of %d draws are below %g, expected %g", below, DRAWS, t, p);
}

static double mean_of(const gw_delay *d) {
    double sum = 0;
    for (int i = 0; i < DRAWS; i++)
        sum += gw_delay_draw(d, 8, 0, i + 1);
    return sum / DRAWS;
}

static const double shares[] = {0.01, 0.1, 0.5, 0.9, 0.99, 0.999};
enum { SHARES = sizeof shares / sizeof *shares };

static void pareto_is_pareto(void **state) {
    gw_delay d = read("all:pareto:alpha=1.5,scale=5ms"), capped, thin = read("0:pareto:alpha=3");
    for (int i = 0; i < SHARES; i++)
        expect_share(&d, 5e-3 * pow(1 - shares[i], -1 / 1.5), shares[i]);
    assert_true(fabs(mean_of(&thin) - 1.5e-3) < 5 * 1e-3 * sqrt(0.75 / DRAWS));
    capped = read("all:pareto:alpha=0.5,scale=1ms,cap=4ms"); /* P(X >= 4 scale) = 1/2 */
    expect_share(&capped, 3.999e-3, 1 - pow(3.999, -0.5));
    expect_share(&capped, 4e-3, 1);
    for (int i = 1; i < DRAWS; i++)
        assert_true(gw_delay_draw(&d, 1, 3, i) >= 5e-3);
}

static void others_are_what_they_say(void **state) {
    gw_delay exponential = read("all:exp:mean=2ms"), even = read("all:uniform:low=1ms,high=3ms");
    for (int i = 0; i < SHARES; i++) {
        expect_share(&exponential, -2e-3 * log(1 - shares[i]), shares[i]);
        expect_share(&even, 1e-3 + 2e-3 * shares[i], shares[i]);
    }
    assert_true(fabs(mean_of(&exponential) - 2e-3) < 5 * 2e-3 / sqrt(DRAWS));
    const char *const same[] = {"1:200us", "1:0.0002", "1:constant:time=200us"};
    for (int i = 0; i < 3; i++) {
        gw_delay d = read(same[i]);
        assert_true(fabs(gw_delay_draw(&d, 1, 1, 9) - 200e-6) < 1e-18);
        assert_true(gw_delay_draw(&d, 1, 0, 9) == 0);
    }
    gw_delay none = read(NULL);
    assert_true(gw_delay_draw(&none, 1, 0, 1) == 0);
}

/* Another rank, step or seed draws anew; `all` and a rank alone draw alike. */
static void draws_are_pure(void **state) {
    gw_delay all = read("all:exp"), one = read("2:exp");
    double product = 0;
    for (int step = 1; step <= DRAWS; step++) {
        double a = gw_delay_draw(&all, 5, 2, step), b = gw_delay_draw(&all, 5, 1, step);
        assert_true(a == gw_delay_draw(&one, 5, 2, step));
        assert_true(a != b && a != gw_delay_draw(&all, 6, 2, step));
        product += (a / 1e-3 - 1) * (b / 1e-3 - 1);
    }
    assert_true(fabs(product / DRAWS) < 5 / sqrt(DRAWS)); /* no correlation */
}

static void refusals(void **state) {
    const char *const bad[] = {"",
                               "1",
                               "all",
                               "all:",
                               "one:1ms",
                               "1:0",
                               "1:61",
                               "1:normal",
                               "1:pareto:alpha=0",
                               "1:pareto:alpha=1",
                               "1:pareto:alpha=0.5,cap=1us",
                               "1:pareto:scale=0",
                               "1:pareto:shape=2",
                               "1:uniform:low=2ms",
                               "1:exp:mean=-1",
                               "1234567890:1ms"};
    gw_delay d;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (gw_delay_read(&d, "train", bad[i]) != GW_ERR_USAGE)
            fail_msg("'%s' is not refused", bad[i]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pareto_is_pareto),
        cmocka_unit_test(others_are_what_they_say),
        cmocka_unit_test(draws_are_pure),
        cmocka_unit_test(refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
