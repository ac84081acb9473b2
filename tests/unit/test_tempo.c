/* Medians of what actions and hops take, however long the run. */
#include "prof/ledger.h"
#include "prof/tempo.h"

#include "../timed.h"
#include "unit.h"

#include <math.h>

static void act(char letter, int chunk, double seconds) {
    gw_action a = {letter, chunk, 0};
    gw_action_tell(&a, 1);
    spin(seconds);
    gw_action_tell(&a, 0);
}

static void test_actions(void **state) {
    gw_batch_cost cost;
    gw_ledger_start();
    act('F', 0, 0); /* nobody listens */
    assert_int_equal(gw_tempo_open(2), GW_OK);
    act('F', 0, 0); /* between batches */
    gw_ledger_begin();
    assert_true(isnan(gw_tempo_action_s('F', 0)));
    for (int i = 0; i < 3; i++)
        act('F', 1, i < 2 ? 1e-3 : 0); /* the median is one of the long ones */
    act('W', 0, 2e-3);
    gw_ledger_end(&cost);
    assert_true(gw_tempo_action_s('F', 1) >= 1e-3);
    assert_true(gw_tempo_action_s('F', 1) <= cost.wall_s);
    assert_true(gw_tempo_action_s('W', 0) >= 2e-3);
    assert_true(isnan(gw_tempo_action_s('B', 0)) && isnan(gw_tempo_action_s('F', 2)));
    gw_tempo_close();
    assert_true(isnan(gw_tempo_action_s('F', 1)));
}

static void test_hops(void **state) {
    static const char *const names[] = {"a", "b", "c", "d", "e"};
    gw_tempo_hop("a", 1); /* nobody keeps it */
    assert_int_equal(gw_tempo_open(1), GW_OK);
    for (int i = 0; i < 100000; i++)
        gw_tempo_hop("a", i);
    for (int i = 0; i < 100000; i++)
        gw_tempo_hop("b", i % 4 == 0 ? 0 : 10);
    for (int i = 2; i < 5; i++)
        gw_tempo_hop(names[i], 10 * i);
    assert_true(fabs(gw_tempo_hop_s("a") - 50000) < 5000); /* of a sample of them */
    assert_true(gw_tempo_hop_s("b") == 10);                /* not always the same in each period */
    assert_true(gw_tempo_hop_s("d") == 30);
    assert_true(isnan(gw_tempo_hop_s("e"))); /* there is room for four */
    gw_tempo_close();
    assert_true(isnan(gw_tempo_hop_s("a")));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_actions),
        cmocka_unit_test(test_hops),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
