/* exp, sigmoid and tanh as the kernels compute them, and softmax cross-entropy at its edges. */
#include "nn/elementwise.h"
#include "nn/loss.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

static void test_functions(void **state) {
    (void)state;
    for (int i = -86999; i < 88000; i++) {
        float x = (float)i * 1e-3f;
        double e = exp((double)x), s = 1.0 / (1.0 + exp(-(double)x)), t = tanh((double)x);
        assert_true(fabs((double)gw_expf(x) - e) <= 2e-7 * e);
        assert_true(fabs((double)gw_sigmoidf(x) - s) <= 4e-7 * s);
        assert_true(fabs((double)gw_tanhf(x) - t) <= 4e-7 * fabs(t));
        float y = x * 1e-2f; /* around 0, where tanh could cancel */
        t = tanh((double)y);
        assert_true(fabs((double)gw_tanhf(y) - t) <= 4e-7 * fabs(t));
    }
    assert_true(gw_expf(-INFINITY) < 1e-37f && isfinite(gw_expf(INFINITY)));
    assert_true(gw_tanhf(INFINITY) == 1.0f && gw_tanhf(-INFINITY) == -1.0f);
    assert_true(isnan(gw_expf(NAN)) && isnan(gw_tanhf(NAN)) && isnan(gw_sigmoidf(NAN)));
}

static void test_known_values(void **state) {
    (void)state;
    float z[] = {0.0f, 0.0f, 0.0f, 0.0f, /* even: loss log 4, the tie goes to index 0 */
                 1.0f, 2.0f, 3.0f, 4.0f};
    uint8_t labels[] = {2, 3}, hits[2];
    double losses[2];
    gw_loss_softmax(z, labels, 2, 4, 0.5f, losses, hits);
    assert_true(fabs(losses[0] - log(4.0)) < 1e-6);
    assert_true(fabs(losses[1] - 0.44018969856119533) < 1e-6);
    assert_int_equal(hits[0], 0);
    assert_int_equal(hits[1], 1);
    const double want[] = {0.125,       0.125,       -0.375,      0.125,
                           0.016029302, 0.043572158, 0.118441407, -0.178042867};
    for (int i = 0; i < 8; i++)
        assert_true(fabs((double)z[i] - want[i]) < 1e-7);
}

static void test_extremes(void **state) {
    (void)state;
    float z[] = {1e30f, -1e30f, 0.0f, 1e4f, 1e4f, 1e4f, NAN, 1.0f, 2.0f, 1.0f, NAN, 2.0f};
    uint8_t labels[] = {1, 0, 0, 0}, hits[4];
    double losses[4];
    gw_loss_softmax(z, labels, 4, 3, 1.0f, losses, hits);
    assert_true(fabs(losses[0] / 2e30 - 1.0) < 1e-6); /* wrong by far, yet finite */
    assert_true(fabs(losses[1] - log(3.0)) < 1e-6);
    assert_true(isnan(losses[2]) && isnan(losses[3])); /* divergence shows */
    for (int i = 0; i < 6; i++)
        assert_true(isfinite(z[i]));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_functions),
        cmocka_unit_test(test_known_values),
        cmocka_unit_test(test_extremes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
