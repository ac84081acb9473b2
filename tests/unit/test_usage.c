/* What the kernel is asked about the main thread, and what is concluded instead. */
#include "prof/usage.h"

#include "prof/clock.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <time.h>

#include <cmocka.h>

static void spin(double seconds) {
    uint64_t t0 = gw_clock_ticks();
    while (gw_clock_seconds(gw_clock_ticks() - t0) < seconds)
        ;
}

static void nap(double seconds) {
    struct timespec t = {.tv_nsec = (long)(seconds * 1e9)};
    nanosleep(&t, NULL);
}

static double thread_time(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Batches that follow each other at once, some of which sleep: their CPU times add up to what the
 * kernel counted over all of them, and a nap is seen in the batch that took it. */
static void test_cpu_time(void **state) {
    (void)state;
    enum { BATCHES = 200 };
    double sum = 0, outside = 0, start = thread_time();
    for (int i = 0; i < BATCHES; i++) {
        uint64_t t0 = gw_clock_ticks();
        gw_usage_begin(t0);
        spin(200e-6);
        if (i % 10 == 5)
            nap(2e-3);
        uint64_t t1 = gw_clock_ticks();
        gw_usage u = gw_usage_end(t1);
        double wall = gw_clock_seconds(t1 - t0);
        assert_true(u.cpu_s >= 0);
        assert_true(u.cpu_s <= wall + 100e-6);
        if (i % 10 == 5)
            assert_true(u.cpu_s <= wall - 1.5e-3);
        sum += u.cpu_s;
        outside += gw_clock_seconds(gw_clock_ticks() - t1);
    }
    double all = thread_time() - start;
    print_message("CPU time %.3f ms, summed up %.3f ms, %.3f ms between\n", all * 1e3, sum * 1e3,
                  outside * 1e3);
    /* 5%: readings that are a system call apart, and what other work takes from the core */
    assert_true(sum <= 1.05 * all && sum + outside >= 0.95 * all);
}

/* What happens between two batches that are apart belongs to neither. */
static void test_between_batches(void **state) {
    (void)state;
    enum { BYTES = 8 << 20, PAGE = 4096 };
    gw_usage_begin(gw_clock_ticks());
    gw_usage_end(gw_clock_ticks());
    volatile char *pages = malloc(BYTES);
    assert_non_null(pages);
    for (int i = 0; i < BYTES; i += PAGE)
        pages[i] = 1;
    spin(1e-3);
    gw_usage_begin(gw_clock_ticks());
    gw_usage u = gw_usage_end(gw_clock_ticks());
    free((void *)pages);
    assert_true(u.minflt < BYTES / PAGE / 2);
    assert_true(u.cpu_s < 0.5e-3);
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
