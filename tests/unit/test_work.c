/* What a step must compute, compared with sums made by hand. */
#include "step/work.h"

#include "unit.h"

#include <math.h>

enum { BATCH = 8 };

/* 20 - 6 - 5 - 3: 126 + 35 + 18 parameters. */
static const gw_model_spec spec = {.inputs = 20, .classes = 3, .n_hidden = 2, .hidden = {6, 5}};

static gw_load whole(void) {
    static gw_shard shard;
    gw_share share = gw_share_whole(&spec);
    assert_int_equal(gw_shard_of(&shard, &spec, &share), GW_OK);
    return (gw_load){.shard = &shard, .batch = BATCH};
}

static void counts_products(void **state) {
    gw_work w;
    gw_load load = whole();
    gw_work_count(&w, &load, 0);
    assert_int_equal(w.n_products, 8); /* the first layer hands nothing down */
    assert_true(w.flops == 2.0 * BATCH * (2 * 20 * 6 + 3 * 6 * 5 + 3 * 5 * 3));
    assert_true(w.update_bytes == 12.0 * (double)load.shard->size);
    double bytes = 0;
    for (int i = 0; i < w.n_products; i++)
        bytes += gw_split_bytes(&w.product[i]);
    assert_true(w.bytes == bytes && bytes > 0);
    gw_product p = {.m = 3, .n = 5, .k = 7};
    assert_true(gw_product_flops(&p) == 210);
}

static void counts_the_rest(void **state) {
    gw_work w;
    gw_load load = whole();
    gw_work_count(&w, &load, 1);
    assert_true(w.update_bytes == 20.0 * 179);
    /* 5 passes over 11 hidden activations, 3 over the logits */
    assert_true(w.pointwise_bytes == 4.0 * BATCH * (5 * 11 + 3 * 3));
}

/* What several ranks hold of the model adds up to it, and parts of the rows to the batch. */
static void divides_the_model(void **state) {
    gw_work w, all;
    gw_load load = whole();
    gw_work_count(&all, &load, 1);
    load.micro = 3; /* rows 3, 3, 2 */
    gw_work_count(&w, &load, 1);
    assert_true(fabs(w.flops - all.flops) < 1e-6 && w.product[0].m == 3);
    assert_true(w.pointwise_bytes == all.pointwise_bytes && w.update_bytes == all.update_bytes);
    double again = 0; /* weights are read, and their gradients written, once a part */
    for (int i = 0; i < w.n_products; i++) {
        const gw_product *p = &w.product[i];
        again += 4.0 * (p->ta ? 2.0 * p->m * p->n : (double)p->k * p->n);
    }
    assert_true(w.bytes == all.bytes + 2 * again);
    double flops = 0, update = 0;
    for (int stage = 0; stage < 2; stage++)
        for (int part = 0; part < 2; part++) {
            gw_shard shard;
            gw_share share = {.tensor = 2, .part = part};
            gw_share_stage(&share, (int[]){1, 2}, 2, 1, stage);
            assert_int_equal(gw_shard_of(&shard, &spec, &share), GW_OK);
            load = (gw_load){.shard = &shard, .batch = BATCH};
            gw_work_count(&w, &load, 1);
            flops += w.flops;
            update += w.update_bytes;
        }
    assert_true(flops == all.flops && update == all.update_bytes);
    load = whole();
    load.repeats = true;
    gw_work_count(&w, &load, 1);
    assert_true(w.flops == all.flops + 2.0 * BATCH * (20 * 6 + 6 * 5 + 5 * 3));
}

static double real(const json_t *o, const char *key) {
    return json_real_value(json_object_get(o, key));
}

static void tells_what_is_known(void **state) {
    gw_split none = {0};
    gw_work_run run = {.load = whole(), .split = &none, .compute_s = NAN};
    json_t *o = gw_work_json(&run);
    assert_non_null(o);
    static const char *const absent[] = {
        "alone_s",           "compute_s", "flops_per_s",          "peak_flops_per_s",
        "working_set_bytes", "level",     "bandwidth_bytes_per_s"};
    for (size_t i = 0; i < sizeof absent / sizeof *absent; i++)
        assert_true(json_is_null(json_object_get(o, absent[i])));
    json_decref(o);
    static gw_ceilings c;
    c = (gw_ceilings){.all_threads = 4, .fma = {3e9, 8e9}};
    gw_split split = {.c = &c, .of = {.threads = 2}, .level = GW_CACHES, .bandwidth = 5e9};
    run.split = &split;
    run.compute_s = 1e-3;
    o = gw_work_json(&run);
    assert_true(real(o, "peak_flops_per_s") == 4e9 && real(o, "bandwidth_bytes_per_s") == 5e9);
    assert_true(fabs(real(o, "flops_per_s") - 1e3 * real(o, "flops")) < 1e-6 * 1e3);
    assert_string_equal(json_string_value(json_object_get(o, "level")), "DRAM");
    assert_true(json_is_null(json_object_get(o, "alone_s"))); /* no product was timed */
    json_decref(o);
    run.load.batch = 0;
    o = gw_work_json(&run);
    assert_true(json_is_null(o));
    json_decref(o);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(counts_products),
        cmocka_unit_test(counts_the_rest),
        cmocka_unit_test(divides_the_model),
        cmocka_unit_test(tells_what_is_known),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
