/* What is asked of the kernel about the main thread, and what is inferred instead. */
#include "prof/usage.h"

#include "prof/clock.h"

#include "../timed.h"
#include "unit.h"

#include <stdlib.h>
#include <time.h>

#define RATES 1e-3 /* of two clocks, one of them calibrated */

static void nap(double seconds) {
    struct timespec t = {.tv_nsec = (long)(seconds * 1e9)};
    nanosleep(&t, NULL);
}

static double thread_time(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static double since(uint64_t tick) {
    return gw_clock_seconds(gw_clock_ticks() - tick);
}

/* Batches in quick succession, some of which sleep. Their CPU times and the gaps between them add
 * up to what the kernel counted, and a nap shows in its batch. A thread that is not switched out
 * counts as running, so wall times are the upper bounds. */
static void test_cpu_time(void **state) {
    enum { BATCHES = 200 };
    double sum = 0, walls = 0, naps = 0, start = thread_time();
    uint64_t first = gw_clock_ticks();
    for (int i = 0; i < BATCHES; i++) {
        double slept = i % 10 == 5 ? 2e-3 : 0;
        uint64_t before = gw_clock_ticks(), t0 = gw_clock_ticks();
        gw_usage_begin(t0);
        spin(200e-6);
        if (slept > 0)
            nap(slept);
        uint64_t t1 = gw_clock_ticks();
        gw_usage u = gw_usage_end(t1);
        double around = since(before);
        assert_true(u.cpu_s >= 0);
        assert_true(u.cpu_s <= around + 100e-6); /* an interrupt between two clocks' readings */
        if (slept > 0)
            assert_true(u.cpu_s <= around - 1.5e-3);
        sum += u.cpu_s;
        walls += gw_clock_seconds(t1 - t0);
        naps += slept;
    }
    double all = thread_time() - start, total = since(first);
    print_message("CPU time %.3f ms of %.3f ms, summed up %.3f ms\n", all * 1e3, total * 1e3,
                  sum * 1e3);
    assert_true(sum <= (1 + RATES) * total - naps);
    assert_true(sum + total - walls >= all - RATES * total);
}

/* What happens between two distant batches belongs to neither. */
static void test_between_batches(void **state) {
    enum { BYTES = 8 << 20, PAGE = 4096 };
    gw_usage_begin(gw_clock_ticks());
    gw_usage_end(gw_clock_ticks());
    volatile char *pages = malloc(BYTES);
    assert_non_null(pages);
    for (int i = 0; i < BYTES; i += PAGE)
        pages[i] = 1;
    spin(1e-3);
    uint64_t before = gw_clock_ticks();
    gw_usage_begin(gw_clock_ticks());
    gw_usage u = gw_usage_end(gw_clock_ticks());
    double around = since(before);
    free((void *)pages);
    assert_true(u.minflt < BYTES / PAGE / 2);
    assert_true(u.cpu_s <= (1 + RATES) * around);
}

int main(void) {
    gw_clock_start();
    gw_usage_start();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cpu_time),
        cmocka_unit_test(test_between_batches),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
