/* The cost model against numbers worked out by hand, and what its choice must do as a link slows.
 */
#include "select/forecast.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void near(double got, double want) {
    if (fabs(got - want) > 1e-12 * fmax(1, fabs(want)))
        fail_msg("%.17g, expected %.17g", got, want);
}

/* ---- curves ---- */

static void test_curve(void **state) {
    (void)state;
    gw_curve c = {3, {100, 200, 600}, {5, 7, 27}};
    near(gw_curve_at(&c, 1), 5); /* latency */
    near(gw_curve_at(&c, 100), 5);
    near(gw_curve_at(&c, 150), 6);
    near(gw_curve_at(&c, 200), 7);
    near(gw_curve_at(&c, 300), 12);
    near(gw_curve_at(&c, 600), 27);
    near(gw_curve_at(&c, 1000), 47); /* 20 / 400 a byte */
    near(gw_curve_alpha(&c), 5);
    near(gw_curve_beta(&c), 0.05);
    gw_curve one = {1, {100}, {5}};
    near(gw_curve_at(&one, 50), 5);
    near(gw_curve_at(&one, 300), 15);
    gw_curve falling = {2, {100, 200}, {5, 4}}; /* noise: never faster than what was seen */
    near(gw_curve_at(&falling, 1000), 4);
}

/* ---- an exchange ---- */

/* 1000 floats: 2 * 1000 bytes, t = 10 + 2000 / 100 = 30; c = 1000 (0.5 * 0.01 + 0.5 * 0.03) = 20 */
static gw_way by_hand(void) {
    return (gw_way){.messages = {2, {100, 1100}, {11, 21}},
                    .exact = {2, {100, 1100}, {3, 13}},
                    .work = {[GW_CODING_ENCODE] = 0.5, [GW_CODING_ADD] = 0.5},
                    .price = {[GW_CODING_ENCODE] = 0.01, [GW_CODING_ADD] = 0.03},
                    .bytes = 2,
                    .sent = 1.5};
}

static void test_exchange(void **state) {
    (void)state;
    gw_way way = by_hand();
    gw_forecast f = gw_forecast_exchange(&way, 1000, true);
    near(f.codec_s, 20);
    near(f.exposed_s, 30);
    near(f.step_s, 50);
    near(f.sent, 3000);
    way.chunks = 0.01; /* 10 chunks: max(30, 20) + 20 / 10 */
    near(gw_forecast_exchange(&way, 1000, true).step_s, 32);
    near(gw_forecast_exchange(&way, 1000, true).codec_s, 20);
    near(gw_forecast_exchange(&way, 1000, false).step_s, 50); /* one node: nothing works beside */
    way.chunks = 0.001;                                       /* one chunk */
    near(gw_forecast_exchange(&way, 1000, true).step_s, 50);
    way.agreed = 0.6; /* 600 bytes: 3 + 5 */
    near(gw_forecast_exchange(&way, 1000, true).step_s, 58);
    near(gw_forecast_exchange(&way, 1000, true).sent, 3600);
    near(gw_forecast_exchange(&way, 0, true).step_s, 0);
}

/* ---- a step ---- */

static const gw_span layers[] = {{0, 600}, {600, 400}};

static gw_shape shape_of(bool overlapped, bool lazy) {
    gw_shape s = {
        .walk = {.local = {1, 100, 140, 50, 2}, .layers = layers, .n_layers = 2, .lazy = lazy},
        .overlapped = overlapped,
        .link = true};
    gw_walk_cut(&s.walk, overlapped ? 0 : 1000);
    return s;
}

static void test_blocking(void **state) {
    (void)state;
    gw_way way = by_hand();
    gw_shape shape = shape_of(false, false);
    gw_forecast f = gw_forecast_step(&shape, &way);
    near(f.local_s, 293);
    near(f.codec_s, 20);
    near(f.exposed_s, 30);
    near(f.step_s, 343);
    gw_walk_cut(&shape.walk, 0); /* 10 + 8 and 10 + 12 */
    f = gw_forecast_step(&shape, &way);
    near(f.step_s, 293 + 20 + 18 + 22);
}

/* Backward: 1000 + 400 shares of 140: layer 1's gradient until 40, its input's until 80, layer 0's
 * until 140; codec 8 and 12. */
static void test_overlap(void **state) {
    (void)state;
    gw_way way = by_hand();
    gw_shape shape = shape_of(true, false);
    gw_forecast f = gw_forecast_step(&shape, &way);
    /* layer 1 posted at 48, on the link to 55, there at 66. Layer 0 posted at 48 + 40 + 60 + 12 =
     * 160, there at 160 + 22. */
    near(f.codec_s, 20);
    near(f.exposed_s, 22);
    near(f.step_s, 293 + 20 + 22);
    near(f.sent, 3000);
    /* lazy: the same here, since layer 0 is wanted first, but that reading data and the rest of the
     * step (1 + 2) hide. */
    shape.walk.lazy = true;
    near(gw_forecast_step(&shape, &way).exposed_s, 22 - 3);
    /* A link ten times as slow: t = 11 + (b - 100) / 10. Layer 1 (800 bytes): 11 + 70 = 81, on the
     * link from 48 to 118. Layer 0 (1200 bytes): 121, from 160 to 270, there at 281. */
    way.messages = (gw_curve){2, {100, 1100}, {11, 111}};
    shape.walk.lazy = false;
    near(gw_forecast_step(&shape, &way).exposed_s, 281 - 160);
    /* The other order on the link: with all posted late, layer 0 waits for layer 1's. */
    shape.walk.local.backward_s = 0;
    /* Posted at 8 and 20: 8 to 78, there 89; 78 to 188, there 199. */
    near(gw_forecast_step(&shape, &way).exposed_s, 199 - 20);
    /* One node: the rank moves the bytes itself, nothing hides. */
    shape.link = false;
    near(gw_forecast_step(&shape, &way).exposed_s, 81 + 121);
}

/* Lazily, what the forward pass needs later has longer to arrive. */
static void test_lazy(void **state) {
    (void)state;
    gw_way way = by_hand();
    gw_shape shape = shape_of(true, true);
    shape.walk.local.backward_s = 0;
    way.messages = (gw_curve){2, {100, 1100}, {11, 111}};
    /* Eager waits 179 for both; lazy for layer 0 the same, since it comes last. */
    near(gw_forecast_step(&shape, &way).exposed_s, 179 - 3);
    /* If only layer 1 had to wait: no bytes below. */
    shape.walk.n_parts = 1;
    /* Posted at 8, there at 89; layer 0's update and forward take 0.6 * 150 = 90: all hidden. */
    near(gw_forecast_step(&shape, &way).exposed_s, 0);
    shape.walk.lazy = false;
    near(gw_forecast_step(&shape, &way).exposed_s, 81);
}

/* ---- choosing ---- */

static void test_choose(void **state) {
    (void)state;
    double a[] = {10, 9.6, 12, NAN};
    assert_int_equal(gw_forecast_choose(a, 4, 0, 0.05), 0); /* a gain of 4% may be none */
    assert_int_equal(gw_forecast_choose(a, 4, 0, 0.03), 1);
    assert_int_equal(gw_forecast_choose(a, 4, -1, 0.05), 1); /* nothing plain to keep to */
    assert_int_equal(gw_forecast_choose(a, 4, 3, 0.05), 1);
    assert_int_equal(gw_forecast_choose(a + 3, 1, -1, 0.05), -1);
    double equal[] = {10, 10};
    assert_int_equal(gw_forecast_choose(equal, 2, 1, 0), 1);
}

/* Codecs from none on, each with fewer bytes and more work than the one before. */
enum { CODECS = 5, FLOATS = 1000000 };
static const double bytes[CODECS] = {4, 2, 1, 0.5, 0.05};
static const double price[CODECS] = {0, 0.4e-9, 0.9e-9, 1.2e-9, 4e-9};

static int choice_at(double beta, bool overlapped) {
    double step_s[CODECS];
    static const gw_span model[] = {{0, 600000}, {600000, 400000}};
    gw_shape shape = {.walk = {.local = {0, 1e-3, 2e-3, 1e-3, 0}, .layers = model, .n_layers = 2},
                      .overlapped = overlapped,
                      .link = true};
    gw_walk_cut(&shape.walk, overlapped ? 0 : FLOATS);
    for (int i = 0; i < CODECS; i++) {
        gw_way way = {.messages = {2, {4, 4e6}, {1e-5, 1e-5 + beta * 4e6}},
                      .work = {1},
                      .price = {price[i]},
                      .bytes = bytes[i]};
        step_s[i] = gw_forecast_step(&shape, &way).step_s;
    }
    return gw_forecast_choose(step_s, CODECS, 0, 0.05);
}

static void test_monotone(void **state) {
    (void)state;
    for (int overlapped = 0; overlapped < 2; overlapped++) {
        int last = 0;
        assert_int_equal(choice_at(0, overlapped), 0);
        for (double beta = 1e-13; beta < 1e-5; beta *= 1.3) {
            int now = choice_at(beta, overlapped);
            assert_true(now >= last); /* slower: never less compression */
            last = now;
        }
        assert_int_equal(last, CODECS - 1);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_curve),    cmocka_unit_test(test_exchange),
        cmocka_unit_test(test_blocking), cmocka_unit_test(test_overlap),
        cmocka_unit_test(test_lazy),     cmocka_unit_test(test_choose),
        cmocka_unit_test(test_monotone)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
