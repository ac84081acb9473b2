/* Kernels of known character. Shares are ratios of runs in turns, and the bounds leave room for a
 * busy machine; `gradwire bench ledger` holds the same kernels to the tight ones. */
#include "prof/clock.h"
#include "prof/fma.h"
#include "prof/kernels.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

enum { TWIN = 16 << 10, LARGE = 96 << 20, TRIES = 7 };

static double share_of(gw_kernel_kind kind) {
    double share = -1;
    assert_int_equal(gw_kernel_memory_share(kind, LARGE, TWIN, TRIES, &share), GW_OK);
    assert_true(share >= 0 && share <= 1);
    return share;
}

static void test_registers_are_not_memory_bound(void **state) {
    (void)state;
    assert_true(share_of(GW_KERNEL_FMA) < 0.2);
}

/* Code that a sanitizer has made slow, without wide vectors, does not wait for a stream. */
#ifndef GW_NO_CLONES
static void test_streams_are_memory_bound(void **state) {
    (void)state;
    assert_true(share_of(GW_KERNEL_READ) > 0.4);
    assert_true(share_of(GW_KERNEL_UPDATE) > 0.4);
}
#endif

static void test_pointer_chase_is_memory_bound(void **state) {
    (void)state;
    assert_true(share_of(GW_KERNEL_CHASE) > 0.6);
}

static void test_work_is_what_a_sweep_does(void **state) {
    (void)state;
    const struct {
        gw_kernel_kind kind;
        double work;
    } want[] = {{GW_KERNEL_READ, TWIN},
                {GW_KERNEL_UPDATE, 1.5 * TWIN},
                {GW_KERNEL_COPY, TWIN},
                {GW_KERNEL_CHASE, TWIN / 64}};
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        gw_kernel *k = NULL;
        assert_int_equal(gw_kernel_open(&k, want[i].kind, TWIN), GW_OK);
        assert_true(gw_kernel_work(k) == want[i].work);
        gw_kernel_close(k);
    }
}

/* Twice the sweeps take about twice the time, so none is left out; the best of some pairs. */
static void test_every_sweep_is_run(void **state) {
    (void)state;
    for (gw_kernel_kind kind = 0; kind < GW_KERNELS; kind++) {
        gw_kernel *k = NULL;
        assert_int_equal(gw_kernel_open(&k, kind, TWIN), GW_OK);
        uint64_t sweeps = gw_kernel_sweeps(k, 2e-3);
        double once = 1, twice = 1;
        for (int i = 0; i < TRIES; i++) {
            double a = gw_kernel_run(k, sweeps), b = gw_kernel_run(k, 2 * sweeps);
            once = a < once ? a : once;
            twice = b < twice ? b : twice;
        }
        assert_true(twice > 1.3 * once);
        gw_kernel_close(k);
    }
}

static void test_names(void **state) {
    (void)state;
    assert_string_equal(gw_kernel_name(GW_KERNEL_FMA), "fma");
    assert_string_equal(gw_kernel_name(GW_KERNEL_CHASE), "chase");
    assert_true(strlen(gw_fma_name()) > 0 && gw_fma_flops() > 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_registers_are_not_memory_bound),
#ifndef GW_NO_CLONES
        cmocka_unit_test(test_streams_are_memory_bound),
#endif
        cmocka_unit_test(test_pointer_chase_is_memory_bound),
        cmocka_unit_test(test_work_is_what_a_sweep_does),
        cmocka_unit_test(test_every_sweep_is_run),
        cmocka_unit_test(test_names),
    };
    gw_clock_start();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
