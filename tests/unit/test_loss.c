/* exp, sigmoid and tanh as the kernels compute them, and both losses at their edges, whole and with
 * their classes on several ranks. */
#include "base/rng.h"
#include "nn/elementwise.h"
#include "nn/loss.h"

#include "unit.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

static void test_functions(void **state) {
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
    float z[] = {0.0f, 0.0f, 0.0f, 0.0f, /* even: loss log 4, the tie goes to class 0 */
                 1.0f, 2.0f, 3.0f, 4.0f};
    gw_label labels[] = {2, 3}, best[2];
    double losses[2];
    gw_loss_whole(GW_OUTPUT_SOFTMAX, z, labels, 2, 4, 0.5f, losses, best);
    assert_true(fabs(losses[0] - log(4.0)) < 1e-6);
    assert_true(fabs(losses[1] - 0.44018969856119533) < 1e-6);
    assert_int_equal(best[0], 0);
    assert_int_equal(best[1], 3);
    const double want[] = {0.125,       0.125,       -0.375,      0.125,
                           0.016029302, 0.043572158, 0.118441407, -0.178042867};
    for (int i = 0; i < 8; i++)
        assert_true(fabs((double)z[i] - want[i]) < 1e-7);
}

static void test_extremes(void **state) {
    float z[] = {1e30f, -1e30f, 0.0f, 1e4f, 1e4f, 1e4f, NAN, 1.0f, 2.0f, 1.0f, NAN, 2.0f};
    gw_label labels[] = {1, 0, 0, 0}, best[4];
    double losses[4];
    gw_loss_whole(GW_OUTPUT_SOFTMAX, z, labels, 4, 3, 1.0f, losses, best);
    assert_true(fabs(losses[0] / 2e30 - 1.0) < 1e-6); /* wrong by far, yet finite */
    assert_true(fabs(losses[1] - log(3.0)) < 1e-6);
    assert_true(isnan(losses[2]) && isnan(losses[3])); /* divergence shows */
    for (int i = 0; i < 6; i++)
        assert_true(isfinite(z[i]));
}

/* Against the definition in double, with the gradient's scale 0.5. */
static void check_sigmoid(const float *z, int classes, int label) {
    float slope[64];
    double loss, want = 0;
    gw_label best, y = (gw_label)label;
    int largest = 0;
    memcpy(slope, z, sizeof *z * (size_t)classes);
    gw_loss_whole(GW_OUTPUT_SIGMOID, slope, &y, 1, classes, 0.5f, &loss, &best);
    for (int j = 0; j < classes; j++) {
        double s = (double)(j == label ? -z[j] : z[j]);
        want += fmax(s, 0) + log1p(exp(-fabs(s)));
        double exact = 0.5 * (1 / (1 + exp(-(double)z[j])) - (j == label));
        if (!(fabs((double)slope[j] - exact) <= 1e-6 * fabs(exact) + 5e-8))
            fail_msg("slope %d at %g: %.9g, want %.9g", j, (double)z[j], (double)slope[j], exact);
        largest = z[j] > z[largest] ? j : largest;
    }
    if (!(fabs(loss - want) <= 1e-6 * want + 1e-12))
        fail_msg("%d classes, label %d: loss %.12g, want %.12g", classes, label, loss, want);
    assert_int_equal(best, largest);
}

static void test_sigmoid(void **state) {
    float z[64];
    for (int draw = 0; draw < 400; draw++) {
        int classes = 1 + draw % 64;
        for (int j = 0; j < classes; j++)
            z[j] = (float)(pow(10, draw % 5 - 1) * gw_rng_normal(7, (uint64_t)(draw * 64 + j)));
        check_sigmoid(z, classes, draw % classes);
    }
    for (int j = 0; j < 6; j++) /* no exponential of these exists, or it is 0 */
        z[j] = (float[]){3e38f, -3e38f, 100, -100, 0, -0.0f}[j];
    for (int label = 0; label < 6; label++)
        check_sigmoid(z, 6, label);
    float odd[] = {INFINITY, -INFINITY, 1, NAN, 0, 0, 0, 0, 0}; /* right, NaN, a tie */
    double losses[3];
    gw_label best[3];
    gw_loss_whole(GW_OUTPUT_SIGMOID, odd, (const gw_label[]){0, 0, 1}, 3, 3, 1.0f, losses, best);
    assert_true(fabs(losses[0] - log(1 + exp(1))) < 1e-6 && odd[0] == 0 && fabsf(odd[1]) < 1e-37f);
    assert_true(isnan(losses[1]) && isnan(odd[3]) && fabs(losses[2] - 3 * log(2)) < 1e-12);
    assert_int_equal(best[2], 0);
}

/* Many certain classes: their product must not overflow, nor their loss when it is told. */
static void test_sigmoid_wide(void **state) {
    enum { WIDE = 256 };
    float z[WIDE], told[GW_LOSS_TOLD];
    gw_label label = 3, best;
    double loss;
    for (int k = 0; k < 2; k++) {
        for (int j = 0; j < WIDE; j++)
            z[j] = k ? 3e38f : 0.0f;
        gw_loss_cut cut = {GW_OUTPUT_SIGMOID, {0, WIDE}, 0, 1};
        gw_loss_tell(z, &label, 1, cut, told);
        gw_loss_join(z, &label, 1, cut, told, 1.0f, &loss, &best);
        double want = k ? 255 * (double)3e38f : WIDE * log(2);
        assert_true(isfinite(told[GW_LOSS_SUM]) && fabs(loss / want - 1) < 1e-6);
    }
}

/* ---- classes on several ranks ---- */

enum { CLASSES = 12, ROWS = 40, RANKS = 5 };

static bool same(double a, double b) {
    return a == b || (isnan(a) && isnan(b));
}

static bool same_or_near(double got, double want) {
    return same(got, want) || fabs(got - want) <= 2e-6 * fabs(want) + 2e-7;
}

/* Rows of z (rows, CLASSES) on 1 to 5 ranks, against the whole; all ranks say the same. */
static void check_split_of(gw_output output, const float *z, const gw_label *labels, int rows) {
    float whole[ROWS * CLASSES];
    double want[ROWS];
    gw_label first[ROWS];
    memcpy(whole, z, sizeof(float) * (size_t)(rows * CLASSES));
    gw_loss_whole(output, whole, labels, rows, CLASSES, 0.25f, want, first);
    for (int ranks = 1; ranks <= RANKS; ranks++) {
        float part[RANKS][ROWS * CLASSES], told[RANKS * ROWS * GW_LOSS_TOLD];
        double losses[RANKS][ROWS];
        gw_label best[RANKS][ROWS];
        gw_loss_cut cut = {.output = output, .parts = ranks};
        for (cut.part = 0; cut.part < ranks; cut.part++) {
            cut.classes = gw_span_part((gw_span){0, CLASSES}, cut.part, ranks);
            for (int i = 0; i < rows; i++)
                memcpy(part[cut.part] + (size_t)i * cut.classes.n,
                       z + (size_t)(i * CLASSES) + cut.classes.off, cut.classes.n * sizeof *z);
            gw_loss_tell(part[cut.part], labels, rows, cut, told + cut.part * rows * GW_LOSS_TOLD);
        }
        for (cut.part = 0; cut.part < ranks; cut.part++) {
            cut.classes = gw_span_part((gw_span){0, CLASSES}, cut.part, ranks);
            gw_loss_join(part[cut.part], labels, rows, cut, told, 0.25f, losses[cut.part],
                         best[cut.part]);
            assert_memory_equal(best[cut.part], first, (size_t)rows * sizeof *first);
            for (int i = 0; i < rows; i++) {
                if (!same_or_near(losses[cut.part][i], want[i]) ||
                    !same(losses[cut.part][i],
                          ranks == 1 && output == GW_OUTPUT_SOFTMAX ? want[i] : losses[0][i]))
                    fail_msg("row %d of %d ranks: loss %.9g, want %.9g", i, ranks,
                             losses[cut.part][i], want[i]);
                for (size_t j = 0; j < cut.classes.n; j++) {
                    double got = (double)part[cut.part][(size_t)i * cut.classes.n + j];
                    double slope = (double)whole[(size_t)(i * CLASSES) + cut.classes.off + j];
                    if (!same_or_near(got, slope))
                        fail_msg("row %d, class %zu of %d ranks: %.9g, want %.9g", i,
                                 cut.classes.off + j, ranks, got, slope);
                }
            }
        }
    }
}

static void check_split(const float *z, const gw_label *labels, int rows) {
    check_split_of(GW_OUTPUT_SOFTMAX, z, labels, rows);
    check_split_of(GW_OUTPUT_SIGMOID, z, labels, rows);
}

static void test_split(void **state) {
    float z[ROWS * CLASSES];
    gw_label labels[ROWS];
    for (int scale = 0; scale < 4; scale++) { /* at 10^3 all but one exponential is 0 */
        for (int i = 0; i < ROWS * CLASSES; i++)
            z[i] = (float)(pow(10, scale) * gw_rng_normal(1, (uint64_t)i));
        for (int i = 0; i < ROWS; i++)
            labels[i] = (gw_label)(i % CLASSES);
        check_split(z, labels, ROWS);
    }
    check_split(z, labels, 0);
    check_split(z, labels, 1);
}

/* Two equal logits, alone the largest, at each pair of classes. */
static void test_split_ties(void **state) {
    for (int a = 0; a < CLASSES; a++)
        for (int b = a; b < CLASSES; b++) {
            float z[CLASSES] = {0};
            gw_label label = (gw_label)b;
            z[a] = z[b] = 2.5f;
            check_split(z, &label, 1);
        }
}

/* One class, a run of them, or all but one, at each place, is infinite or NaN. */
static void test_split_extremes(void **state) {
    const float odd[] = {INFINITY, -INFINITY, NAN, 3e38f, -3e38f};
    for (int k = 0; k < 5; k++)
        for (int from = 0; from < CLASSES; from++)
            for (int to = from + 1; to <= CLASSES; to++)
                for (gw_label label = 0; label < CLASSES; label += 5) {
                    float z[2 * CLASSES];
                    gw_label labels[] = {label, label};
                    for (int j = 0; j < CLASSES; j++) {
                        bool in = j >= from && j < to;
                        z[j] = in ? odd[k] : (float)(j % 5);
                        z[CLASSES + j] = in ? (float)(j % 5) : odd[k];
                    }
                    check_split(z, labels, 2);
                }
}

/* Odd values in all combinations, six to a row. */
static void test_split_mixed(void **state) {
    const float odd[] = {0.0f, 1.0f, INFINITY, -INFINITY, NAN};
    for (int draw = 0; draw < 2000; draw++) {
        float z[CLASSES];
        gw_label label = (gw_label)(draw % CLASSES);
        for (int j = 0; j < CLASSES; j++) {
            uint64_t bits = gw_rng_u64((uint64_t)draw, (uint64_t)j);
            z[j] = odd[bits % (draw % 2 ? 5 : 2 + (unsigned)(draw / 2 % 4))];
        }
        check_split(z, &label, 1);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_functions),    cmocka_unit_test(test_known_values),
        cmocka_unit_test(test_extremes),     cmocka_unit_test(test_sigmoid),
        cmocka_unit_test(test_sigmoid_wide), cmocka_unit_test(test_split),
        cmocka_unit_test(test_split_ties),   cmocka_unit_test(test_split_extremes),
        cmocka_unit_test(test_split_mixed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
