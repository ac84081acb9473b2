/* How a change of the machine is told from a disturbed probe; rates come from a script, not from
 * the machine. */
#include "prof/clock.h"
#include "roofline/drift.h"

#include "unit.h"

#include <math.h>

static int probes; /* so far */

/* The rates of one probe after another; the last one goes on after the end (0). */
static gw_err scripted(const void *ctx, double *out) {
    const double *rate = ctx;
    int last = 0;
    while (last < probes && rate[last + 1] > 0)
        last++;
    probes++;
    *out = rate[last];
    return GW_OK;
}

static double look(const double *script) {
    double rate;
    probes = 0;
    assert_int_equal(gw_drift_look(scripted, script, &rate), GW_OK);
    return rate;
}

static double drift(const double *start, const double *end) {
    double before = look(start), is;
    probes = 0;
    assert_int_equal(gw_drift_since(scripted, end, before, 0.1, &is), GW_OK);
    return is;
}

static const double calm[] = {1e10, 1.01e10, 0.99e10, 0};

static void test_calm(void **state) {
    assert_true(fabs(drift(calm, calm)) < 0.05);
    assert_int_equal(probes, 2); /* and no more time is spent */
}

static void test_disturbed_probes_are_no_drift(void **state) {
    static const double waking[] = {0.42e10, 0.7e10, 1e10, 1e10, 0}; /* its clock rises */
    static const double visited[] = {0.45e10, 1e10, 0.3e10, 1e10, 0};
    static const double twice[] = {0.5e10, 0.5e10, 1e10, 1e10, 0}; /* what two probes agree on */
    assert_true(fabs(drift(waking, calm)) < 0.05);
    assert_true(fabs(drift(visited, calm)) < 0.05);
    assert_true(fabs(drift(calm, waking)) < 0.05);
    assert_true(fabs(drift(calm, visited)) < 0.05);
    assert_true(fabs(drift(calm, twice)) < 0.05);
}

static void test_change_is_drift(void **state) {
    static const double slow[] = {0.7e10, 0.71e10, 0.2e10, 0.7e10, 0};
    assert_true(fabs(drift(calm, slow) + 0.3) < 0.02);
    assert_true(fabs(drift(slow, calm) - 1 / 0.7 + 1) < 0.04);
    assert_int_equal(probes, 4); /* confirmed */
}

static void test_unrest_tells_nothing(void **state) {
    static const double wild[] = {1e9,   2e9,   4e9,   8e9,  16e9, 32e9, 64e9,
                                  128e9, 256e9, 512e9, 1e12, 2e12, 4e12, 0};
    assert_true(isnan(look(wild)));
    assert_int_equal(probes, 6);
    assert_true(isnan(drift(wild, calm)));
    assert_true(isnan(drift(calm, wild)));
}

/* The machine's own: a rate, whichever it is. */
static void test_probe(void **state) {
    double rate = 0;
    gw_clock_start();
    assert_int_equal(gw_drift_probe(NULL, &rate), GW_OK);
    assert_true(rate > 0 && isfinite(rate));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_calm),
        cmocka_unit_test(test_disturbed_probes_are_no_drift),
        cmocka_unit_test(test_change_is_drift),
        cmocka_unit_test(test_unrest_tells_nothing),
        cmocka_unit_test(test_probe),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
