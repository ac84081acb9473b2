/* Ceilings: measurements are in order, saved ones are read back, and damaged files are named. */
#include "prof/clock.h"
#include "roofline/ceilings.h"
#include "roofline/ceilings_file.h"
#include "roofline/twins.h"

#include "../specs.h"
#include "folder.h"

#include <math.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* Of a machine made up. */
static gw_ceilings made_up(void) {
    gw_ceilings c = {.host = "h",
                     .cpu = "c",
                     .kernels = "k",
                     .threads = 1,
                     .all_threads = 4,
                     .measured_at = 1000,
                     .caches = {{32 << 10, 1}, {1 << 20, 1}, {32 << 20, 4}},
                     .fma = {1e11, 4e11},
                     .copy = {1e10, NAN}};
    for (int l = 0; l < GW_LEVELS; l++)
        c.level[l] = (gw_ceiling_level){(size_t)16384 << 5 * l,
                                        {3e11 / (1 << 2 * l), 12e11 / (1 << 2 * l)},
                                        {2e11 / (1 << 2 * l), 8e11 / (1 << 2 * l)}};
    gw_ceilings_keep(&c, "product nn 1x2x3", 0.25);
    gw_ceilings_keep(&c, "twin update plain", 2e-10);
    return c;
}

/* Each level of the machine is larger than the one inside it and has its rates. */
static void test_measured_is_in_order(void **state) {
    static gw_ceilings c;
    gw_model_spec spec = {.inputs = 256, .classes = 10, .n_hidden = 1, .hidden = {256}};
    gw_share share = gw_share_whole(&spec);
    gw_shard whole;
    assert_int_equal(gw_shard_of(&whole, &spec, &share), GW_OK);
    gw_optimizer *sgd = NULL;
    assert_int_equal(open_optimizer(&sgd, "sgd:momentum=0.9", 1), GW_OK);
    gw_twin_setup of = {.load = {.shard = &whole, .batch = 128}, .threads = 1, .optimizer = sgd};
    int added;
    c.threads = c.all_threads = 1;
    assert_int_equal(gw_ceilings_measure(&c), GW_OK);
    assert_true(c.fma.one > 1e8 && c.fma.all == c.fma.one);
    for (int l = 1; l < GW_LEVELS; l++)
        if (c.level[l].bytes > 0) {
            assert_true(c.level[l].bytes > c.level[l - 1].bytes);
            assert_true(c.level[l].update.one > 0);
        }
    assert_true(c.level[GW_CACHES].read.one > 0 && c.copy.one > 0);
    assert_int_equal(gw_twins_measure(&c, &of, &added), GW_OK);
    assert_true(gw_twin_update(&c, &of) > 0);
    assert_true(gw_twin_pointwise(&c, &of, 0, GW_PART_FORWARD_POINTWISE) > 0);
    assert_true(isnan(gw_twin_coded(&c, &of, GW_CODING_ENCODE)));
    assert_int_equal(gw_twins_measure(&c, &of, &added), GW_OK);
    assert_int_equal(added, 0);
    assert_true(gw_ceilings_time(&c, "twin update momentum") == gw_twin_update(&c, &of));
    gw_optimizer_close(sgd);
    of.optimizer = NULL;
    assert_true(isnan(gw_twin_update(&c, &of)));
}

#ifndef GW_NO_CLONES /* a sanitizer slows the probe, but not the GEMM library */
/* Measured several times: the two measurements are apart in time, and another process may use the
 * core during one of them. A probe that is itself too slow fails each time. */
static void test_no_product_beats_its_arithmetic(void **state) {
    static gw_ceilings c;
    gw_model_spec spec = {.inputs = 256, .classes = 10, .n_hidden = 1, .hidden = {256}};
    gw_share share = gw_share_whole(&spec);
    gw_shard whole;
    assert_int_equal(gw_shard_of(&whole, &spec, &share), GW_OK);
    gw_twin_setup of = {.load = {.shard = &whole, .batch = 128}, .threads = 1};
    gw_product p = {.m = 128, .n = 256, .k = 256};
    double rate = INFINITY;
    int added;
    omp_set_num_threads(of.threads); /* as a run does */
    for (int again = 0; again < 60 && rate > 1.1 * c.fma.one; again++) {
        c = (gw_ceilings){.threads = 1, .all_threads = 1};
        assert_int_equal(gw_ceilings_measure(&c), GW_OK);
        assert_int_equal(gw_twins_measure(&c, &of, &added), GW_OK);
        rate = 2.0 * p.m * p.n * p.k / gw_twin_product(&c, &p);
    }
    if (rate > 1.1 * c.fma.one)
        fail_msg("a product at %.4g flop/s, arithmetic at %.4g", rate, c.fma.one);
}
#endif

static void test_several_threads(void **state) {
    static gw_ceilings c;
    c.threads = 1;
    c.all_threads = 2;
    assert_int_equal(gw_ceilings_measure(&c), GW_OK);
    assert_true(c.fma.all > 0 && c.level[0].read.all > 0 && c.level[GW_CACHES].update.all > 0);
    c.oversubscribed = true;
    assert_int_equal(gw_ceilings_measure(&c), GW_OK);
    assert_true(c.fma.one > 0 && isnan(c.fma.all) && isnan(c.copy.all));
}

static void test_levels(void **state) {
    gw_ceilings c = made_up();
    assert_int_equal(gw_ceilings_level(&c, 16 << 10, 1), 0);
    assert_int_equal(gw_ceilings_level(&c, 17 << 10, 1), 1);
    assert_int_equal(gw_ceilings_level(&c, 16 << 20, 1), 2);
    assert_int_equal(gw_ceilings_level(&c, 16 << 20, 2), GW_CACHES); /* two share the third */
    assert_int_equal(gw_ceilings_level(&c, 4 << 20, 4), 2);
    assert_true(gw_ceilings_bandwidth(&c, 0, 1) == 2e11);
    assert_true(gw_ceilings_bandwidth(&c, 1, 4) == 8e11 / 4 / 4);
    c.level[2].update.all = NAN;
    assert_true(gw_ceilings_bandwidth(&c, 2, 4) == gw_ceilings_bandwidth(&c, 3, 4));
    c.level[3].update.all = NAN;
    assert_true(isnan(gw_ceilings_bandwidth(&c, 2, 4)));
}

/* When all places are taken, the one kept longest ago goes. */
static void test_times_give_way(void **state) {
    static gw_ceilings c;
    char name[GW_CEILING_NAME];
    for (int i = 0; i < GW_CEILING_TIMES; i++) {
        snprintf(name, sizeof name, "time %d", i);
        gw_ceilings_keep(&c, name, i + 1);
    }
    gw_ceilings_keep(&c, "time 0", 7); /* is the latest now */
    gw_ceilings_keep(&c, "one more", 9);
    assert_int_equal(c.n_times, GW_CEILING_TIMES);
    assert_true(gw_ceilings_time(&c, "time 0") == 7 && gw_ceilings_time(&c, "one more") == 9);
    assert_true(isnan(gw_ceilings_time(&c, "time 1")) && gw_ceilings_time(&c, "time 2") == 3);
}

static void test_unused_are_dropped(void **state) {
    static gw_ceilings c;
    c.n_times = 0;
    gw_ceilings_keep(&c, "a", 1);
    gw_ceilings_keep(&c, "b", 2);
    gw_ceilings_keep(&c, "c", 3);
    gw_ceilings_use(&c, "c");
    gw_ceilings_use(&c, "a");
    gw_ceilings_use(&c, "unknown");
    gw_ceilings_keep(&c, "c", 4); /* anew, and nobody has used it since */
    gw_ceilings_drop_unused(&c);
    assert_int_equal(c.n_times, 1);
    assert_true(gw_ceilings_time(&c, "a") == 1);
}

/* ---- files ---- */

static void test_comes_back(void **state) {
    static gw_ceilings back;
    gw_ceilings c = made_up();
    const char *path = in_folder("some/where/a.json");
    assert_int_equal(gw_ceilings_store(&c, path), GW_OK);
    assert_int_equal(gw_ceilings_load(&back, path), GW_OK);
    assert_int_equal(gw_ceilings_fit(&back, &c, false, path), GW_OK);
    assert_true(back.fma.all == c.fma.all && isnan(back.copy.all));
    assert_true(back.caches[2].bytes == c.caches[2].bytes && back.caches[2].sharers == 4);
    assert_memory_equal(back.level, c.level, sizeof c.level);
    assert_int_equal(back.n_times, 2);
    assert_true(gw_ceilings_time(&back, "twin update plain") == 2e-10);
    assert_true(isnan(gw_ceilings_time(&back, "nobody")));
}

static void test_foreign_is_named(void **state) {
    gw_ceilings c = made_up(), other = made_up();
    snprintf(other.host, sizeof other.host, "elsewhere");
    assert_fails(gw_ceilings_fit(&c, &other, false, "f"), GW_ERR_INPUT, "elsewhere");
    assert_int_equal(gw_ceilings_fit(&c, &other, true, "f"), GW_OK);
    other.all_threads = 8;
    assert_fails(gw_ceilings_fit(&c, &other, true, "f"), GW_ERR_INPUT, "1 of 8");
}

/* `text` with the first `from` replaced; written, it must be refused with a word about `word`. */
static void refused(const char *text, const char *from, const char *to, const char *word) {
    char bad[10000];
    static gw_ceilings c;
    const char *at = strstr(text, from);
    assert_non_null(at);
    assert_true(strlen(text) + strlen(to) < sizeof bad);
    snprintf(bad, sizeof bad, "%.*s%s%s", (int)(at - text), text, to, at + strlen(from));
    const char *path = put_text("bad.json", bad);
    assert_int_equal(gw_ceilings_load(&c, path), GW_ERR_INPUT);
    assert_message(word);
    assert_message(path);
}

static void test_damage_is_named(void **state) {
    gw_ceilings c = made_up();
    json_t *all = gw_ceilings_json(&c);
    char *text = json_dumps(all, JSON_INDENT(1));
    json_decref(all);
    refused(text, "{", "", "line 2");
    refused(text, "\"gradwire_ceilings\": 1", "\"gradwire_ceilings\": 99", "gradwire_ceilings");
    refused(text, "\"host\": \"h\"", "\"host\": 7", "host");
    refused(text, "\"threads\": 1", "\"threads\": 0", "threads");
    refused(text, "\"one\": 100000000000.0", "\"one\": -1", "fma_flops_per_s");
    refused(text, "\"one\": 100000000000.0", "\"one\": \"fast\"", "fma_flops_per_s");
    refused(text, "\"L1\"", "\"L1\", \"bytes\": 3, \"level\": \"L1\"", "duplicate");
    refused(text, "\"levels\"", "\"heights\"", "levels");
    refused(text, "0.25", "0", "product nn");
    free(text);
    static gw_ceilings out;
    assert_int_equal(gw_ceilings_load(&out, "/tmp/gw-no-such-file.json"), GW_ERR_INPUT);
}

/* Processes write the same file while others read it: every reader finds a complete one. */
static void test_many_write_at_once(void **state) {
    enum { WRITERS = 4, ROUNDS = 25 };
    pid_t pid[WRITERS];
    gw_ceilings c = made_up();
    const char *path = in_folder("shared.json");
    assert_int_equal(gw_ceilings_store(&c, path), GW_OK);
    for (int w = 0; w < WRITERS; w++) {
        pid[w] = fork();
        assert_true(pid[w] >= 0);
        if (pid[w] > 0)
            continue;
        static gw_ceilings back;
        int bad = 0;
        c.measured_at = w;
        for (int i = 0; i < ROUNDS; i++)
            bad += gw_ceilings_store(&c, path) != GW_OK || gw_ceilings_load(&back, path) != GW_OK ||
                   back.measured_at < 0 || back.measured_at > 1000;
        _exit(bad > 0);
    }
    for (int w = 0; w < WRITERS; w++) {
        int status;
        assert_int_equal(waitpid(pid[w], &status, 0), pid[w]);
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
}

static void test_cache_path(void **state) {
    char a[GW_CEILINGS_PATH], b[GW_CEILINGS_PATH];
    gw_ceilings c = made_up();
    setenv("XDG_CACHE_HOME", "/x", 1);
    gw_ceilings_cache(&c, a);
    assert_true(strncmp(a, "/x/gradwire/ceilings-", 21) == 0);
    c.threads = 2;
    gw_ceilings_cache(&c, b);
    assert_string_not_equal(a, b);
    setenv("XDG_CACHE_HOME", "relative", 1);
    setenv("HOME", "/home/me", 1);
    gw_ceilings_cache(&c, a);
    assert_true(strncmp(a, "/home/me/.cache/gradwire/", 25) == 0);
    unsetenv("HOME");
    gw_ceilings_cache(&c, a);
    assert_string_equal(a, "");
}

int main(void) {
    gw_clock_start();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_measured_is_in_order),
#ifndef GW_NO_CLONES
        cmocka_unit_test(test_no_product_beats_its_arithmetic),
#endif
        cmocka_unit_test(test_several_threads),
        cmocka_unit_test(test_levels),
        cmocka_unit_test(test_times_give_way),
        cmocka_unit_test(test_unused_are_dropped),
        cmocka_unit_test(test_comes_back),
        cmocka_unit_test(test_foreign_is_named),
        cmocka_unit_test(test_damage_is_named),
        cmocka_unit_test(test_many_write_at_once),
        cmocka_unit_test(test_cache_path),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
