/* Kernels of known character: what they are made of. How fast they are, and what they wait for, no
 * test may ask of the machine that it meets: `gradwire bench ledger` does. */
#include "prof/clock.h"
#include "roofline/kernels.h"

#include "unit.h"

enum { TWIN = 16 << 10 };

static void test_work_is_what_a_sweep_does(void **state) {
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
    for (gw_kernel_kind kind = 0; kind < GW_KERNELS; kind++) {
        gw_kernel *k = NULL;
        assert_int_equal(gw_kernel_open(&k, kind, TWIN), GW_OK);
        assert_true(gw_kernel_run(k, gw_kernel_sweeps(k, 1e-4)) > 0);
        assert_true(gw_kernel_rate(k, 2, 1e-4) > 0);
        gw_kernel_close(k);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_work_is_what_a_sweep_does),
        cmocka_unit_test(test_runs_take_time),
    };
    gw_clock_start();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
