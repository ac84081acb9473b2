/* The bound of a step, compared with numbers worked out by hand, and the order of the modes. */
#include "predict/bound.h"

#include "unit.h"

#include <math.h>

/* Parts are small, and polls many, within bounds. */
static void near(double got, double want) {
    if (fabs(got - want) > 1e-2 * fmax(1, fabs(want)))
        fail_msg("%.9g, expected %.9g", got, want);
}

static double bound(gw_bound_parts *p, gw_bound_mode mode) {
    assert_ok(gw_bound_play(p));
    return p->step_s[mode];
}

/* Layer 1's gradient is there at 40, its input's at 80, layer 0's at 140. Forward and update: 0.6
 * and 0.4 of 150. */
static const gw_span two[] = {{0, 600}, {600, 400}};

static gw_bound_parts by_hand(double wire_s) {
    return (gw_bound_parts){.local = {.data_s = 1,
                                      .forward_s = {60, 40},
                                      .input_s = {0, 40},
                                      .weights_s = {60, 40},
                                      .update_s = 50,
                                      .other_s = 2},
                            .wire_s = wire_s,
                            .transport_s = NAN,
                            .layers = two,
                            .n_layers = 2,
                            .update_share = 1};
}

static void test_blocking(void **state) {
    gw_bound_parts p = by_hand(100);
    near(bound(&p, GW_BOUND_BLOCKING), 293 + 100);
    p.codec_s = 7;
    p.transport_s = 30; /* within the exchange */
    near(bound(&p, GW_BOUND_BLOCKING), 293 + 7 + 100);
}

static void test_delayed(void **state) {
    gw_bound_parts p = by_hand(100);
    near(bound(&p, GW_BOUND_DELAYED), 293);
    p.wire_s = 400;
    near(bound(&p, GW_BOUND_DELAYED), 400);
    p.codec_s = 7;
    p.transport_s = 30;
    near(bound(&p, GW_BOUND_DELAYED), 400);
    p.wire_s = 100;
    near(bound(&p, GW_BOUND_DELAYED), 293 + 7 + 30);
}

static void test_eager(void **state) {
    gw_bound_parts p = by_hand(100); /* layer 1 from 40 to 80, layer 0 from 140 to 200 */
    near(bound(&p, GW_BOUND_EAGER), 200 + 153);
    p.wire_s = 400; /* layer 1 from 40 to 200, layer 0 to 440 */
    near(bound(&p, GW_BOUND_EAGER), 440 + 153);
    p.transport_s = 100; /* does not add to a wait that is longer */
    near(bound(&p, GW_BOUND_EAGER), 440 + 153);
    p.wire_s = 10; /* the core: 140 + 100; layer 0 on its way from 180 to 186 */
    near(bound(&p, GW_BOUND_EAGER), 240 + 153);
    p.transport_s = NAN;
    p.bucket = 1000; /* all in one: from 140 to 150 */
    near(bound(&p, GW_BOUND_EAGER), 150 + 153);
}

static void test_lazy(void **state) {
    gw_bound_parts p = by_hand(400);
    /* In order: layer 1 from 40 to 200, then layer 0, which is needed first, until 440. The forward
     * pass hides nothing; data and the rest do. */
    near(bound(&p, GW_BOUND_LAZY), 440 + 150);
    /* Layer 0 goes ahead of what is left of layer 1, from 140 to 380. When it has been updated and
     * computed, layer 1 is there, too. */
    near(bound(&p, GW_BOUND_PRIORITY), 380 + 150);
    /* Halves of layer 1 ahead of layer 0 (buckets of 200): {800}, {600} ready at 40; {400}, {200},
     * {0} at 140; 80 each. In order: done at 120, 200, 280, 360, 440. */
    p.bucket = 200;
    near(bound(&p, GW_BOUND_LAZY), 440 + 150);
    /* By priority: {800} until 120; {600}, the lower of those that are ready, until 200; then {0},
     * {200}, {400}. Layer 0 is again complete at 440, because its bytes were ready last. */
    near(bound(&p, GW_BOUND_PRIORITY), 440 + 150);
}

/* Four equal layers, all complete at once, so that the order matters. */
static void test_priority(void **state) {
    static const gw_span four[] = {{0, 1000}, {1000, 1000}, {2000, 1000}, {3000, 1000}};
    gw_bound_parts p = {.local = {.forward_s = {20, 20, 20, 20}},
                        .wire_s = 80,
                        .transport_s = NAN,
                        .layers = four,
                        .n_layers = 4,
                        .update_share = 1};
    near(bound(&p, GW_BOUND_LAZY), 80 + 80);     /* layer 0 comes last */
    near(bound(&p, GW_BOUND_PRIORITY), 20 + 80); /* each arrives while the one before computes */
    near(bound(&p, GW_BOUND_EAGER), 80 + 80);
    near(bound(&p, GW_BOUND_DELAYED), 80);
    p.wire_s = 160; /* 40 a layer: computation of 20 between */
    near(bound(&p, GW_BOUND_PRIORITY), 160 + 20);
}

static void test_sharded(void **state) {
    gw_bound_parts p = by_hand(200);
    /* Scatters: layer 1 from 40 to 80, layer 0 from 140 to 200. Update of layer 0 until 230, its
     * gather until 290; of layer 1 until 250, its gather from 290 to 330. Forward 0 from 290 to
     * 350, forward 1 until 390. */
    near(bound(&p, GW_BOUND_SHARDED), 390);
    p.update_share =
        0.5; /* updates until 215 and 225, gather 0 until 275, forward until 335, 375 */
    near(bound(&p, GW_BOUND_SHARDED), 375);
    near(bound(&p, GW_BOUND_BLOCKING), 268 + 200);
}

/* No mode is faster than computation or the wire alone, or slower than both in turn. */
static void test_between(void **state) {
    gw_bound_parts p = by_hand(0);
    for (int w = 0; w <= 1000; w += 500)
        for (int t = 0; t <= 60; t += 60)
            for (size_t bucket = 0; bucket < 1000; bucket += 500) {
                p.wire_s = w;
                p.transport_s = t;
                p.bucket = bucket;
                double least = bound(&p, GW_BOUND_DELAYED), most = 293 + t + w, slack = 1e-2 * most,
                       lazy = p.step_s[GW_BOUND_LAZY];
                near(least, fmax(293 + t, w));
                for (int m = 0; m < GW_BOUND_MODES; m++) {
                    assert_true(m == GW_BOUND_BLOCKING || p.step_s[m] >= least - slack);
                    assert_true(p.step_s[m] <= most + slack);
                }
                assert_true(lazy <= p.step_s[GW_BOUND_EAGER] + slack);
                assert_true(p.step_s[GW_BOUND_PRIORITY] <= lazy + slack);
            }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_blocking), cmocka_unit_test(test_delayed),
        cmocka_unit_test(test_eager),    cmocka_unit_test(test_lazy),
        cmocka_unit_test(test_priority), cmocka_unit_test(test_sharded),
        cmocka_unit_test(test_between),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
