/* Parts of phases and coded floats are counted separately with the full profile, and change no
 * phase. */
#include "nn/model.h"
#include "prof/clock.h"
#include "prof/ledger.h"

#include "../timed.h"
#include "tests/simple_step.h"
#include "unit.h"

#include <math.h>

static void test_part_stays_in_its_phase(void **state) {
    gw_batch_cost c;
    gw_ledger_start();
    gw_ledger_begin();
    gw_phase_enter(GW_PHASE_BACKWARD);
    spin(1e-3);
    for (int i = 0; i < 2; i++) {
        gw_part_begin(GW_PART_BACKWARD_POINTWISE);
        spin(1e-3);
        gw_part_end(GW_PART_BACKWARD_POINTWISE);
    }
    gw_phase_leave();
    gw_coded_tell(GW_CODING_ADD, 1000);
    gw_coded_tell(GW_CODING_ADD, 24);
    gw_ledger_end(&c);
    assert_true(c.part_s[GW_PART_BACKWARD_POINTWISE] >= 2e-3);
    assert_true(c.phase_s[GW_PHASE_BACKWARD] >= c.part_s[GW_PART_BACKWARD_POINTWISE] + 1e-3);
    assert_true(c.part_s[GW_PART_FORWARD_POINTWISE] == 0);
    assert_true(c.coded[GW_CODING_ADD] == 1024 && c.coded[GW_CODING_ENCODE] == 0);
    double sum = 0;
    for (int p = 0; p < GW_PHASES; p++)
        sum += c.phase_s[p];
    assert_true(fabs(sum - c.wall_s) <= 1e-6);
}

static void test_only_the_full_profile_counts(void **state) {
    for (gw_profile profile = GW_PROFILE_OFF; profile <= GW_PROFILE_FULL; profile++) {
        gw_batch_cost c;
        gw_ledger_start();
        gw_ledger_set_profile(profile);
        gw_ledger_begin();
        gw_part_begin(GW_PART_FORWARD_POINTWISE);
        gw_part_end(GW_PART_FORWARD_POINTWISE);
        gw_coded_tell(GW_CODING_SET, 8);
        gw_ledger_end(&c);
        bool full = profile == GW_PROFILE_FULL;
        assert_true(full ? c.part_s[GW_PART_FORWARD_POINTWISE] >= 0
                         : isnan(c.part_s[GW_PART_FORWARD_POINTWISE]));
        assert_true(full ? c.coded[GW_CODING_SET] == 8 : isnan(c.coded[GW_CODING_SET]));
    }
    gw_ledger_set_profile(GW_PROFILE_FULL);
}

/* The model itself tells: both parts of a step take time, and less than their phases. */
static void test_model_tells_its_pointwise_work(void **state) {
    enum { BATCH = 32 };
    gw_model_spec spec = {.inputs = 8, .classes = 10, .n_hidden = 1, .hidden = {512}, .seed = 1};
    gw_model *m = NULL;
    gw_label labels[BATCH] = {0};
    assert_int_equal(gw_model_open(&m, &spec, BATCH), GW_OK);
    gw_batch_cost c;
    gw_ledger_start();
    gw_ledger_begin();
    gw_phase_enter(GW_PHASE_FORWARD);
    for (int l = 0; l < gw_model_layers(m); l++)
        simple_forward(m, l, BATCH);
    simple_loss(m, labels, BATCH, 1, NULL);
    gw_phase_leave();
    gw_phase_enter(GW_PHASE_BACKWARD);
    for (int l = gw_model_layers(m) - 1; l >= 0; l--) {
        simple_backward(m, l, BATCH);
        simple_descend(m, l, BATCH);
    }
    gw_phase_leave();
    gw_ledger_end(&c);
    gw_model_close(m);
    double forward = c.part_s[GW_PART_FORWARD_POINTWISE],
           backward = c.part_s[GW_PART_BACKWARD_POINTWISE];
    assert_true(forward > 0 && forward < c.phase_s[GW_PHASE_FORWARD]);
    assert_true(c.part_s[GW_PART_LOSS] > 0);
    assert_true(backward > 0 && backward < c.phase_s[GW_PHASE_BACKWARD]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_part_stays_in_its_phase),
        cmocka_unit_test(test_only_the_full_profile_counts),
        cmocka_unit_test(test_model_tells_its_pointwise_work),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
