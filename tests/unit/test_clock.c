#include "counters/papi.h"
#include "machine/host.h"
#include "prof/clock.h"

#include "unit.h"

#include <math.h>
#include <string.h>
#include <time.h>

static double monotonic(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void test_never_steps_back(void **state) {
    uint64_t last = gw_clock_ticks();
    for (int i = 0; i < 1000000; i++) {
        uint64_t now = gw_clock_ticks();
        assert_true(now >= last);
        last = now;
    }
}

/* Two clocks, each read between two readings of the other. The time between readings is allowed
 * for, so a busy machine does not matter. */
static void test_rate(void **state) {
    double a0 = monotonic();
    uint64_t t0 = gw_clock_ticks();
    double b0 = monotonic();
    while (monotonic() - b0 < 0.05)
        ;
    double a1 = monotonic();
    uint64_t t1 = gw_clock_ticks();
    double b1 = monotonic(), told = gw_clock_seconds(t1 - t0);
    assert_true(told >= 0.999 * (a1 - b0) && told <= 1.001 * (b1 - a0));
}

static void test_anchor(void **state) {
    uint64_t before[2], t[2], ns[2];
    double slack = 0;
    for (int i = 0; i < 2; i++) {
        before[i] = gw_clock_ticks();
        gw_clock_anchor(&t[i], &ns[i]);
        slack += gw_clock_seconds(gw_clock_ticks() - before[i]);
        while (i == 0 && monotonic() < (double)ns[0] * 1e-9 + 0.02)
            ;
    }
    double by_ticks = gw_clock_seconds(t[1] - t[0]), by_ns = (double)(ns[1] - ns[0]) * 1e-9;
    assert_true(by_ns >= 0.02);
    assert_true(fabs(by_ticks - by_ns) < 1e-3 * by_ns + slack);
}

static void test_name(void **state) {
    const char *name = gw_clock_name();
    assert_true(strcmp(name, "tsc") == 0 || strcmp(name, "monotonic") == 0);
}

/* Either counters count, or there is a reason why not. */
static void test_papi(void **state) {
    for (int again = 0; again < 2; again++) {
        gw_papi_report r;
        gw_papi_probe(&r);
        assert_true(strlen(r.version) > 0);
        assert_int_equal(r.hardware, r.reason[0] == '\0');
        for (int i = 0; i < r.components; i++) {
            assert_true(strlen(r.component[i].name) > 0);
            if (r.component[i].enabled)
                assert_string_equal(r.component[i].reason, "");
        }
    }
}

static void test_host(void **state) {
    gw_host h;
    gw_host_facts(&h);
    assert_true(h.cpus_usable >= 1 && h.cpus_usable <= h.cpus_online);
    assert_true(h.cores_usable >= 0 && h.cores_usable <= h.cpus_usable);
    assert_true(h.memory > (64u << 20));
    assert_true(h.cpu_quota < 0 || h.cpu_quota > 0);
    assert_true(strlen(h.name) > 0);
}

int main(void) {
    gw_clock_start();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_never_steps_back),
        cmocka_unit_test(test_rate),
        cmocka_unit_test(test_anchor),
        cmocka_unit_test(test_name),
        cmocka_unit_test(test_papi),
        cmocka_unit_test(test_host),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
