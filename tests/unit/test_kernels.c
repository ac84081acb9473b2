/* Kernels of known character: what they are made of. How fast they are, and what they wait for, no
 * test may ask of the machine that it meets: `gradwire bench ledger` does. */
#include "machine/fma.h"
#include "machine/kernels.h"
#include "prof/clock.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

enum { TWIN = 16 << 10, LARGE = 8 << 20, TRIES = 2 };

static void test_shares_are_shares(void **state) {
    (void)state;
    for (gw_kernel_kind kind = 0; kind < GW_KERNELS; kind++) {
        double share = -1;
        assert_int_equal(gw_kernel_memory_share(kind, LARGE, TWIN, TRIES, &share), GW_OK);
        assert_true(share >= 0 && share <= 1);
    }
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

static void test_runs_take_time(void **state) {
    (void)state;
    for (gw_kernel_kind kind = 0; kind < GW_KERNELS; kind++) {
        gw_kernel *k = NULL;
        assert_int_equal(gw_kernel_open(&k, kind, TWIN), GW_OK);
        assert_true(gw_kernel_run(k, gw_kernel_sweeps(k, 1e-4)) > 0);
        assert_true(gw_kernel_rate(k, 2, 1e-4) > 0);
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
        cmocka_unit_test(test_shares_are_shares),
        cmocka_unit_test(test_work_is_what_a_sweep_does),
        cmocka_unit_test(test_runs_take_time),
        cmocka_unit_test(test_names),
    };
    gw_clock_start();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
