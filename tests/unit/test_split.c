/* The split of a batch into core and memory time: identities and the interval. `gradwire bench
 * ledger` shows that twins tell large data from small. */
#include "prof/clock.h"
#include "step/split.h"

#include "../specs.h"
#include "unit.h"

#include <math.h>

enum { BATCH = 32 };

static const gw_model_spec spec = {.inputs = 64, .classes = 10, .n_hidden = 1, .hidden = {48}};
static gw_shard whole;
static gw_twin_setup of = {.load = {.shard = &whole, .batch = BATCH}, .threads = 1, .joined = 1};

static void test_interval(void **state) {
    double lo, hi;
    gw_split_interval(10, 7, 5, &lo, &hi);
    assert_true(lo == 3 && hi == 5);
    gw_split_interval(10, 12, 5, &lo, &hi); /* faster than hot: no lower bound */
    assert_true(lo == 0 && hi == 5);
    gw_split_interval(10, 7, 50, &lo, &hi);
    assert_true(lo == 3 && hi == 10);
    gw_split_interval(10, 4, 5, &lo, &hi); /* one second belongs to neither */
    assert_true(isnan(lo) && isnan(hi));
    gw_split_interval(10, NAN, 5, &lo, &hi);
    assert_true(isnan(lo) && isnan(hi));
}

static void test_compulsory_bytes(void **state) {
    gw_product p = {.tb = true, .m = 3, .n = 5, .k = 7};
    assert_true(gw_split_bytes(&p) == 4 * (21 + 35 + 2 * 15));
    gw_product all[GW_PRODUCTS];
    assert_int_equal(gw_twin_products(&whole, BATCH, all), 5);
    double flops = 0;
    for (int i = 0; i < 5; i++)
        flops += 2.0 * all[i].m * all[i].n * all[i].k;
    assert_true(flops == 2.0 * BATCH * (2 * 64 * 48 + 3 * 48 * 10));
}

/* Products at 1 GFLOP/s. */
static void keep_products(gw_ceilings *c, int batch) {
    gw_product all[GW_PRODUCTS];
    int n = gw_twin_products(&whole, batch, all);
    char name[GW_CEILING_NAME];
    for (int i = 0; i < n; i++) {
        snprintf(name, sizeof name, "product %c%c %dx%dx%d", all[i].ta ? 't' : 'n',
                 all[i].tb ? 't' : 'n', all[i].m, all[i].n, all[i].k);
        gw_ceilings_keep(c, name, 2e-9 * all[i].m * all[i].n * all[i].k);
    }
}

/* 1 ns an element of everything elementwise, 10 GB/s everywhere. */
static void set_up(gw_ceilings *c) {
    *c = (gw_ceilings){.threads = 1, .all_threads = 1, .caches = {{32 << 10, 1}}};
    keep_products(c, BATCH);
    gw_ceilings_keep(c, "twin forward relu 48", 1e-9);
    gw_ceilings_keep(c, "twin backward relu 48", 1e-9);
    gw_ceilings_keep(c, "twin forward linear 10", 1e-9);
    gw_ceilings_keep(c, "twin backward linear 10", 1e-9);
    gw_ceilings_keep(c, "twin update plain", 1e-9);
    for (int l = 0; l < GW_LEVELS; l++)
        c->level[l] = (gw_ceiling_level){l == 0 ? 1 : l == GW_CACHES, {1e10, 1e10}, {1e10, 1e10}};
}

static gw_batch_cost cost_of(double forward, double backward, double update) {
    gw_batch_cost cost = {0};
    cost.phase_s[GW_PHASE_FORWARD] = forward;
    cost.phase_s[GW_PHASE_BACKWARD] = backward;
    cost.phase_s[GW_PHASE_UPDATE] = update;
    cost.part_s[GW_PART_FORWARD_POINTWISE] = 3e-6;
    cost.part_s[GW_PART_BACKWARD_POINTWISE] = 4e-6;
    cost.part_s[GW_PART_LOSS] = 1e-6;
    return cost;
}

static void test_split(void **state) {
    static gw_ceilings c;
    gw_split m;
    gw_moved moved = {.alone = 5000};
    set_up(&c);
    gw_split_open(&m, &c, &of);
    double flop = 2e-9 * BATCH * (2 * 64 * 48 + 3 * 48 * 10);
    assert_true(fabs(m.flop_s - flop) < 1e-12);
    /* Products take flop + 2 us: pointwise 7 us and update 9 us, against 3.712 and 5 of twins. */
    gw_batch_cost cost = cost_of(flop, 8e-6 + 2e-6, 9e-6);
    gw_batch_split split = gw_split_batch(&m, BATCH, &moved, &cost), *s = &split;
    assert_true(fabs(s->memory_twin_s - (16e-6 - 3.712e-6 - 5e-6)) < 1e-12);
    assert_true(fabs(s->core_twin_s - (17e-6 - s->memory_twin_s)) < 1e-12);
    assert_true(fabs(s->memory_model_lo_s - 2e-6) < 1e-12);
    assert_true(s->memory_model_hi_s > s->memory_model_lo_s);
    double wall = flop + 10e-6 + 9e-6;
    assert_true(fabs(s->core_twin_s + s->memory_twin_s + s->core_model_lo_s + s->memory_model_hi_s -
                     wall) < 1e-12);
    assert_true(fabs(s->core_twin_s + s->memory_twin_s + s->core_model_hi_s + s->memory_model_lo_s -
                     wall) < 1e-12);
    assert_true(isnan(s->memory_codec_twin_s) && isnan(s->memory_ctr_s));
}

/* In four parts, with the forward passes repeated: a fourth of the rows at a time. */
static void test_parts(void **state) {
    static gw_ceilings c;
    gw_split m;
    gw_moved moved = {.alone = 5000};
    gw_twin_setup parts = of;
    parts.load.micro = 4;
    parts.load.repeats = true;
    set_up(&c);
    keep_products(&c, BATCH / 4);
    gw_split_open(&m, &c, &parts);
    double flop = 2e-9 * BATCH * (3 * 64 * 48 + 4 * 48 * 10);
    assert_true(fabs(m.flop_s - flop) < 1e-12);
    gw_batch_cost cost = cost_of(flop, 8e-6 + 2e-6, 9e-6);
    gw_batch_split split = gw_split_batch(&m, BATCH, &moved, &cost);
    double twins = 1e-9 * BATCH * 3 * (48 + 10) + 5e-6;
    assert_true(fabs(split.memory_twin_s - (16e-6 - twins)) < 1e-12);
    assert_true(fabs(split.memory_model_lo_s - 2e-6) < 1e-12);
    gw_split whole_batch;
    gw_split_open(&whole_batch, &c, &of);
    assert_true(m.working_set < whole_batch.working_set);
    parts.load.held = 4;
    gw_split_open(&m, &c, &parts);
    assert_true(m.working_set > whole_batch.working_set - 4.0 * BATCH * 2 * 48);
}

static void test_what_stays_blank(void **state) {
    static gw_ceilings c;
    gw_split m;
    gw_moved moved = {.alone = 5000};
    set_up(&c);
    gw_split_open(&m, &c, &of);
    gw_batch_cost cost = cost_of(1, 1, 9e-6); /* a pause of a second: neither flops nor bytes */
    gw_batch_split split = gw_split_batch(&m, BATCH, &moved, &cost);
    assert_true(isnan(split.memory_model_lo_s) && isnan(split.core_model_hi_s));
    assert_true(split.memory_twin_s > 0);
    assert_true(m.split == 1 && m.flagged == 1);
    cost = cost_of(1e-4, 1e-4, 9e-6); /* half a batch runs at another rate */
    split = gw_split_batch(&m, BATCH / 2, &moved, &cost);
    assert_true(isnan(split.memory_model_lo_s) && m.flagged == 1);
    cost = cost_of(1e-4, 1e-4, 9e-6); /* no parts timed */
    cost.part_s[GW_PART_LOSS] = NAN;
    split = gw_split_batch(&m, BATCH, &moved, &cost);
    assert_true(isnan(split.memory_twin_s));
    c.oversubscribed = true;
    gw_split_open(&m, &c, &of);
    cost = cost_of(1e-4, 1e-4, 9e-6);
    split = gw_split_batch(&m, BATCH, &moved, &cost);
    assert_true(isnan(split.memory_twin_s));
}

static void test_codec(void **state) {
    static gw_ceilings c;
    gw_split m;
    gw_moved moved = {0};
    gw_twin_setup coded = of;
    coded.codec = &GW_SPEC_NAMED("sign");
    set_up(&c);
    gw_ceilings_keep(&c, "twin codec 1 encode sign", 1e-9);
    gw_ceilings_keep(&c, "twin codec 1 add sign", 2e-9);
    gw_split_open(&m, &c, &coded);
    gw_batch_cost cost = cost_of(1e-4, 1e-4, 9e-6);
    cost.phase_s[GW_PHASE_ENCODE] = 5e-6;
    cost.phase_s[GW_PHASE_DECODE] = 7e-6;
    cost.coded[GW_CODING_ENCODE] = 1000;
    cost.coded[GW_CODING_ADD] = 2000;
    gw_batch_split split = gw_split_batch(&m, BATCH, &moved, &cost);
    assert_true(fabs(split.memory_codec_twin_s - 7e-6) < 1e-12);
    cost.coded[GW_CODING_SET] = 1; /* of which no time is known */
    split = gw_split_batch(&m, BATCH, &moved, &cost);
    assert_true(isnan(split.memory_codec_twin_s));
}

static int set_out(void **state) {
    gw_share share = gw_share_whole(&spec);
    gw_optimizer *sgd = NULL;
    gw_clock_start();
    assert_int_equal(open_optimizer(&sgd, "sgd", 1), GW_OK);
    of.optimizer = sgd;
    return gw_shard_of(&whole, &spec, &share) != GW_OK;
}

static int set_back(void **state) {
    gw_optimizer_close((gw_optimizer *)of.optimizer);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_interval),
        cmocka_unit_test(test_compulsory_bytes),
        cmocka_unit_test(test_split),
        cmocka_unit_test(test_parts),
        cmocka_unit_test(test_what_stays_blank),
        cmocka_unit_test(test_codec),
    };
    return cmocka_run_group_tests(tests, set_out, set_back);
}
