/* Which epoch is the best, and what a checkpoint may say of it. */
#include "checkpoint/best.h"

#include "unit.h"

#include <math.h>
#include <stdlib.h>

static bool offer(gw_best *b, int epoch, double loss, float *params) {
    gw_best now = {
        .epoch = epoch, .validation_loss = loss, .validation_accuracy = 0.25, .test_accuracy = NAN};
    return gw_best_offer(b, &now, params);
}

static void test_rule(void **state) {
    float kept[2] = {0}, params[2] = {1, 2};
    gw_best b = {.params = kept, .n = 2};
    assert_false(offer(&b, 1, NAN, params)); /* no validation set, or an evaluation cut short */
    assert_int_equal(b.epoch, 0);
    assert_true(offer(&b, 2, 0.5, params));
    params[0] = 3;
    assert_false(offer(&b, 3, 0.5, params)); /* of equal ones the earlier */
    assert_false(offer(&b, 4, 0.75, params));
    assert_false(offer(&b, 5, NAN, params));
    assert_int_equal(b.epoch, 2);
    assert_true(kept[0] == 1 && kept[1] == 2);
    assert_true(offer(&b, 6, 0.4999, params));
    assert_int_equal(b.epoch, 6);
    assert_true(kept[0] == 3);
    gw_best figures = {0}; /* without a model */
    assert_true(offer(&figures, 1, 0.5, NULL));
}

static gw_err read_back(gw_best *b, const char *text) {
    json_t *facts = json_loads(text, 0, NULL);
    assert_non_null(facts);
    gw_err e = gw_best_read(b, facts, "step-1");
    json_decref(facts);
    return e;
}

/* To the last bit: a resumed run compares with it. */
static void test_facts(void **state) {
    gw_best b = {
        .epoch = 3, .validation_loss = 1.0 / 3, .validation_accuracy = 0.1, .test_accuracy = NAN};
    gw_best back = {0};
    json_t *facts = json_pack("{s:o}", GW_BEST_FACT, gw_best_json(&b));
    char *text = json_dumps(facts, 0);
    assert_int_equal(read_back(&back, text), GW_OK);
    free(text);
    json_decref(facts);
    assert_int_equal(back.epoch, 3);
    assert_true(back.validation_loss == b.validation_loss && back.validation_accuracy == 0.1);
    assert_true(isnan(back.test_accuracy));
    static const char *const none[] = {"{}", "{\"best\": null}"};
    for (int i = 0; i < 2; i++) {
        assert_int_equal(read_back(&back, none[i]), GW_OK);
        assert_int_equal(back.epoch, 0);
    }
    static const char *const bad[] = {"{\"best\": {}}",
                                      "{\"best\": {\"epoch\": 0, \"validation_loss\": 1}}",
                                      "{\"best\": {\"epoch\": 4294967297, \"validation_loss\": 1}}",
                                      "{\"best\": {\"epoch\": 1, \"validation_loss\": \"least\"}}"};
    for (int i = 0; i < 4; i++)
        assert_int_equal(read_back(&back, bad[i]), GW_ERR_INPUT);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rule),
        cmocka_unit_test(test_facts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
