#include "nn/metrics.h"

#include "unit.h"

#include <math.h>

static void near(double got, double want) {
    if (!(fabs(got - want) <= 1e-12))
        fail_msg("%.15g, want %.15g", got, want);
}

static void test_confusion(void **state) {
    int64_t confusion[9] = {0};
    const gw_label predictions[] = {2, 0, 0, 1}, labels[] = {2, 1, 0, 1};
    gw_confusion_add(confusion, 3, predictions, labels, 4);
    gw_confusion_add(confusion, 3, predictions, labels, 1); /* adds */
    gw_confusion_add(confusion, 3, predictions, labels, 0);
    const int64_t want[] = {1, 0, 0, 1, 1, 0, 0, 0, 2};
    assert_memory_equal(confusion, want, sizeof want);
}

static void test_metrics(void **state) {
    /* Class 3 is predicted once, wrongly, and never true; class 2 is true, but never predicted. */
    const int64_t confusion[] = {3, 1, 0, 0, 1, 4, 0, 1, 1, 1, 0, 0, 0, 0, 0, 0};
    gw_class_metrics c[4], macro;
    near(gw_confusion_metrics(confusion, 4, c, &macro), 7.0 / 12.0);
    near(c[0].precision, 3.0 / 5.0);
    near(c[0].recall, 3.0 / 4.0);
    near(c[0].f1, 2.0 / 3.0);
    near(c[1].precision, 2.0 / 3.0);
    near(c[1].recall, 2.0 / 3.0);
    near(c[1].f1, 2.0 / 3.0);
    for (int i = 2; i < 4; i++) {
        near(c[i].precision, 0.0);
        near(c[i].recall, 0.0);
        near(c[i].f1, 0.0);
    }
    assert_int_equal(c[0].support, 4);
    assert_int_equal(c[1].support, 6);
    assert_int_equal(c[2].support, 2);
    assert_int_equal(c[3].support, 0);
    near(macro.precision, (3.0 / 5.0 + 2.0 / 3.0) / 4.0);
    near(macro.recall, (3.0 / 4.0 + 2.0 / 3.0) / 4.0);
    near(macro.f1, (2.0 / 3.0 + 2.0 / 3.0) / 4.0);
    assert_int_equal(macro.support, 12);
}

static void test_nothing_seen(void **state) {
    const int64_t confusion[4] = {0};
    gw_class_metrics c[2], macro;
    near(gw_confusion_metrics(confusion, 2, c, &macro), 0.0);
    near(macro.f1, 0.0);
    assert_int_equal(macro.support, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_confusion),
        cmocka_unit_test(test_metrics),
        cmocka_unit_test(test_nothing_seen),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
