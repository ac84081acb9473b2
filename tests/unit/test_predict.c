/* What a prediction adds to a simulation: cores that copy bytes, time per coding, sizes that data
 * decide, and exchanges that are measured whole; and how the best candidate is chosen. */
#include "predict/chooser.h"
#include "predict/exchange.h"

#include <math.h>

#include "../simulated.h"
#include "unit.h"

enum { COMPUTED_MS = 9, FLOATS = 940 }; /* of a step of `small` */

static void assert_step(const gw_sim_play *p, double step_s, const char *what) {
    if (!(fabs(p->step_s - step_s) <= 1e-4 * step_s))
        fail_msg("%s: a step of %.9g s, and not %.9g", what, p->step_s, step_s);
}

static gw_sim_play small_play(void) {
    gw_sim_play p = play_of(2, link_plain);
    p.script.profile = &small;
    return p;
}

/* ---- parts ---- */

/* Two halves each way: a rank sends one while it receives the other, and so again. */
static void test_cores_copy(void **state) {
    gw_sim_play p = small_play();
    double each_s = LATENCY + 4.0 * FLOATS / 2 / RATE;
    assert_int_equal(run_play(&p, "allreduce:algo=(ring:chunk=0)", "none"), GW_OK);
    assert_step(&p, 1e-3 * COMPUTED_MS + 2 * each_s, "endless cores");
    p.world.link.byte_s = 1e-9;
    assert_int_equal(run_play(&p, "allreduce:algo=(ring:chunk=0)", "none"), GW_OK);
    assert_step(&p, 1e-3 * COMPUTED_MS + 2 * (each_s + 1e-9 * 4.0 * FLOATS / 2), "copying");
}

static void test_coding_calls(void **state) {
    gw_sim_play free_of = small_play(), p = small_play();
    gw_codec_price price;
    gw_sim_coding(&price, 1e-9);
    play_price = &price;
    assert_int_equal(run_play(&free_of, "allreduce:algo=tree", "bf16"), GW_OK);
    for (int k = 0; k < GW_CODINGS; k++)
        price.call_s[k] = 1e-4;
    assert_int_equal(run_play(&p, "allreduce:algo=tree", "bf16"), GW_OK);
    play_price = NULL;
    /* rank 1 encodes, rank 0 adds, then encodes and adopts, rank 1 decodes */
    assert_step(&p, free_of.step_s + 4e-4, "calls");
    assert_true(fabs(p.tally.coded_s - free_of.tally.coded_s - p.steps * 4e-4) < 1e-9);
}

/* Each codec has its own price: that of gradients, and the exact one of parameters. */
static void test_coding_by_codec(void **state) {
    static const struct {
        const char *comm, *compress;
        bool codes[2]; /* by the codec, by the exact one */
    } wants[] = {{"sharded:algo=ring", "bf16", {true, false}}, {"gossip", "none", {false, true}}};
    gw_codec_price price;
    gw_sim_coding(&price, 1e-9);
    for (int i = 0; i < 4; i++) {
        gw_sim_play p = small_play();
        play_price = i % 2 == 0 ? &price : NULL;
        play_exact_price = i % 2 == 1 ? &price : NULL;
        assert_int_equal(run_play(&p, wants[i / 2].comm, wants[i / 2].compress), GW_OK);
        assert_int_equal(p.tally.coded_s > 0, wants[i / 2].codes[i % 2]);
    }
    play_price = play_exact_price = NULL;
}

/* One more second at each look. */
static double clock_s(void) {
    static double now_s;
    return ++now_s;
}

/* A region within a region, with coding in both. */
static gw_err works(void *ctx, gw_fabric *f) {
    double *end = ctx;
    gw_work_enter(GW_PHASE_ENCODE);
    gw_probe_spend(7);
    gw_work_enter(GW_PHASE_DECODE);
    gw_probe_spend(7);
    gw_work_leave();
    gw_work_leave();
    end[f->rank] = 1e-9 * (double)f->ops->now_ns(f);
    f->ops->close(f);
    return GW_OK;
}

static void test_own_work_is_timed_once(void **state) {
    double end[2];
    gw_sim_setup w = small_play().world;
    w.clock_s = clock_s;
    w.speed = 2;
    assert_int_equal(gw_sim_run(&w, works, end), GW_OK);
    assert_true(fabs(end[0] - 0.5) < 1e-8 && fabs(end[1] - 0.5) < 1e-8); /* at twice the speed */
}

static void test_sizes_of_data(void **state) {
    gw_sim_play p = small_play();
    assert_int_equal(run_play(&p, "allreduce:algo=gathersum", "topk:ratio=0.1+zlib"),
                     GW_ERR_UNSUPPORTED);
    p.world.coded_bytes = 0.5;
    assert_int_equal(run_play(&p, "allreduce:algo=gathersum", "topk:ratio=0.1+zlib"), GW_OK);
    assert_true(p.sent.bytes == 2 * FLOATS / 2);
    assert_step(&p, 1e-3 * COMPUTED_MS + LATENCY + FLOATS / 2 / RATE, "half a byte per float");
}

/* ---- exchanges that are measured whole ---- */

static const gw_curve curve = {2, {4, 8 * FLOATS}, {1e-3, 1e-3 + 8 * FLOATS * 1e-6}};

static gw_err measured_play(gw_sim_play *p, const char *comm, bool beside) {
    gw_err e = open_codec(&p->exact, "none");
    GW_THEN(e, open_codec(&p->codec, "none"));
    GW_THEN(e, find_strategy(&p->strategy, comm));
    p->algo = gw_exchange_play(&p->world, &curve, beside);
    GW_THEN(e, gw_sim_play_run(p));
    gw_strategy_free(&p->strategy);
    gw_codec_close(&p->codec);
    gw_codec_close(&p->exact);
    return e;
}

static double curve_s(size_t floats) {
    return gw_curve_at(&curve, 4.0 * (double)floats);
}

static void test_whole_exchange(void **state) {
    gw_sim_play p = small_play();
    assert_int_equal(measured_play(&p, "allreduce:algo=ring", false), GW_OK);
    assert_step(&p, 1e-3 * COMPUTED_MS + curve_s(FLOATS), "on the cores");
    assert_true(p.sent.bytes == 0 && p.tally.messages == 0);
    p.world.memory = p.world.link = (gw_sim_link){.bytes_per_s = 1e15};
    assert_int_equal(measured_play(&p, "allreduce:algo=ring", true), GW_OK);
    assert_step(&p, 1e-3 * COMPUTED_MS + curve_s(FLOATS), "on links");
    assert_true(p.sent.bytes == 0 && p.tally.messages == 0);
}

/* On links it hides behind computation, one behind another; the cores do nothing else meanwhile. */
static void test_whole_exchange_overlaps(void **state) {
    gw_sim_play cores = small_play(), links = small_play();
    const char *comm = "iallreduce:bucket=1240,algo=ring";
    cores.world.link = links.world.link = (gw_sim_link){.bytes_per_s = 1e15};
    assert_int_equal(measured_play(&cores, comm, false), GW_OK);
    assert_int_equal(measured_play(&links, comm, true), GW_OK);
    assert_true(links.step_s < cores.step_s - 1e-3);
    double all_s = 0; /* of the buckets, from the first's begin on */
    for (size_t left = FLOATS, n; left > 0; left -= n)
        all_s += curve_s(n = left < 310 ? left : 310);
    assert_step(&cores, 1e-3 * COMPUTED_MS + all_s, "buckets on the cores");
    assert_true(links.step_s > all_s);
}

/* ---- the best ---- */

static void test_margin(void **state) {
    assert_false(gw_chooser_gains(96, 100, 0.05)); /* a gain of 4% may be none */
    assert_true(gw_chooser_gains(96, 100, 0.03));
    assert_false(gw_chooser_gains(100, 100, 0.03)); /* plain is the best itself */
    assert_false(gw_chooser_gains(5, 5, 0));
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_cores_copy),
                                       cmocka_unit_test(test_coding_calls),
                                       cmocka_unit_test(test_coding_by_codec),
                                       cmocka_unit_test(test_own_work_is_timed_once),
                                       cmocka_unit_test(test_sizes_of_data),
                                       cmocka_unit_test(test_whole_exchange),
                                       cmocka_unit_test(test_whole_exchange_overlaps),
                                       cmocka_unit_test(test_margin)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
