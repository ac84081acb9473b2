/* What a machine does besides, of made-up files of /proc: busy, idle, lacking, malformed. Nothing
 * here looks at the machine that the test runs on. */
#include "base/json.h"
#include "machine/busy.h"

#include "folder.h"

#include <math.h>
#include <sys/stat.h>
#include <unistd.h>

static const uint64_t cpus_0_and_2[GW_HOST_WORDS] = {5};

static void put(const char *name, const char *text) {
    unlink(in_folder(name));
    if (text)
        put_text(name, text);
}

static gw_busy_counts look(const char *stat, const char *load, const char *pressure,
                           const char *group) {
    put("stat", stat);
    put("loadavg", load);
    put("pressure/cpu", pressure);
    put("cpu.stat", group);
    return gw_busy_read(folder, folder, cpus_0_and_2);
}

static int make_folders(void **state) {
    return make_folder(state) || mkdir(in_folder("pressure"), 0777);
}

#define STAT                                                                                       \
    "cpu  9 9 9 9 9 9 9 9 9 9\n"                                                                   \
    "cpu0 100 20 30 5000 7 11 13 17 99 0\n"                                                        \
    "cpu1 70000 0 0 0 0 0 0 5000 0 0\n" /* of other ranks' CPUs */                                 \
    "cpu2 200 0 50 4000 0 0 0 3 0 0\n"                                                             \
    "intr 0 1 2\n"
#define LOAD "15.25 9.50 4.00 17/321 4711\n"
#define PRESSURE                                                                                   \
    "some avg10=88.00 avg60=50.00 avg300=20.00 total=2500000\nfull avg10=0.00 total=9\n"
#define GROUP "nr_periods 40\nnr_throttled 30\nthrottled_usec 5\n"

static void test_read(void **state) {
    double ticks = (double)sysconf(_SC_CLK_TCK);
    gw_busy_counts c = look(STAT, LOAD, PRESSURE, GROUP);
    assert_float_equal(c.busy_s * ticks, 400, 1e-9); /* user, nice, system */
    assert_float_equal(c.steal_s * ticks, 20, 1e-9);
    assert_float_equal(c.pressure_s, 2.5, 1e-12);
    assert_true(c.load == 15.25 && c.runnable == 17 && c.periods == 40 && c.throttled == 30);
}

/* Absent, never 0. */
static void test_absent(void **state) {
    gw_busy_counts c = look(NULL, NULL, NULL, NULL);
    assert_true(isnan(c.busy_s) && isnan(c.steal_s) && isnan(c.pressure_s) && isnan(c.load) &&
                isnan(c.runnable) && isnan(c.periods) && isnan(c.throttled) && isfinite(c.at_s));
    c = gw_busy_read(folder, "", cpus_0_and_2); /* no quota: no group to ask */
    assert_true(isnan(c.periods));
    c = look("cpu0 5 0 0 9 0 0 0 0 0 0\n", LOAD, PRESSURE, "nr_periods 4\n");
    assert_true(c.busy_s > 0 && isnan(c.steal_s)); /* none since the machine began: not told */
    assert_true(isnan(c.periods) && isnan(c.throttled));
    c = look("cpu0 0 0 0 0 0 0 0 0 0 0\n", LOAD, PRESSURE, GROUP); /* gVisor */
    assert_true(isnan(c.busy_s));
}

static void test_malformed(void **state) {
    static const char *const bad[] = {"",
                                      "\n",
                                      "cpu",
                                      "cpu0\n",
                                      "cpu0 1 2 3\n",
                                      "cpu99999 1 2 3 4 5 6 7 8\n",
                                      "cpu1 1 2 3 4 5 6 7 8\n",
                                      "x\ncpu0 1 2 3 4 5 6 7 8\n",
                                      "some avg10=high total=none\n",
                                      "nr_periods many\nnr_throttled -1\n",
                                      "nr_periods inf\nnr_throttled nan\n",
                                      "a b c d/e\n"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        gw_busy_counts c = look(bad[i], bad[i], bad[i], bad[i]);
        assert_true(isnan(c.busy_s) && isnan(c.steal_s) && isnan(c.pressure_s) && isnan(c.load) &&
                    isnan(c.runnable) && isnan(c.periods) && isnan(c.throttled));
    }
}

static const gw_busy_counts start = {100, 50, 2, 7, 40, 30, 3, 4};

/* 2 ranks on 2 CPUs for 10 s. */
static gw_busy after(double busy_s, double steal_s, double own_s) {
    gw_busy_counts end = {110, 50 + busy_s, 2 + steal_s, 7 + 8, 60, 31, 15, 18};
    return gw_busy_between(&start, &end, own_s, 2, 2);
}

static void test_others(void **state) {
    gw_busy b = after(20, 0.5, 3);
    assert_float_equal(b.others, 1.7, 1e-9);
    assert_float_equal(b.steal, 0.05, 1e-9);
    assert_float_equal(b.pressure, 0.8, 1e-9);
    assert_float_equal(b.throttled, 0.05, 1e-9);
    assert_float_equal(b.lack, 0.875, 1e-9);
    assert_true(b.load == 15 && b.runnable == 16 && gw_busy_warns(&b));
}

/* What the ranks take themselves is nobody else's, and they may take all. */
static void test_own(void **state) {
    gw_busy b = after(20, 0, 19.9);
    assert_true(b.others < 0.011 && b.lack < 0.006 && !gw_busy_warns(&b));
    b = after(19, 0, 20); /* the kernel's ticks are coarser than its account of a process */
    assert_true(b.others == 0 && b.lack == 0);
    b = after(0, 3, 0);
    assert_true(b.lack > 0.14 && gw_busy_warns(&b)); /* a hypervisor took them */
}

/* Others that leave enough are no harm. */
static void test_room(void **state) {
    gw_busy_counts end = start;
    end.at_s += 10;
    end.busy_s += 630;
    gw_busy b = gw_busy_between(&start, &end, 20, 64, 2);
    assert_float_equal(b.others, 61, 1e-9);
    assert_true(b.need == 2 && b.lack == 0 && !gw_busy_warns(&b));
    b = gw_busy_between(&start, &end, 20, 64, 8);
    assert_float_equal(b.lack, 1 - 3. / 8, 1e-9);
    assert_true(gw_busy_warns(&b));
}

static void test_throttled(void **state) {
    gw_busy_counts end = {110, 50, NAN, NAN, 60, 45, NAN, NAN};
    gw_busy b = gw_busy_between(&start, &end, 0, 2, 2);
    assert_float_equal(b.throttled, 0.75, 1e-9);
    assert_true(gw_busy_warns(&b));
}

static void test_unknown(void **state) {
    char text[GW_BUSY_TEXT];
    gw_busy_counts none = {110, NAN, NAN, NAN, NAN, NAN, NAN, NAN}, soon = start;
    gw_busy b = gw_busy_between(&start, &none, 3, 2, 2);
    assert_true(isnan(b.others) && isnan(b.steal) && isnan(b.pressure) && isnan(b.throttled) &&
                isnan(b.load) && isnan(b.runnable) && isnan(b.lack) && !gw_busy_warns(&b));
    gw_busy_text(&b, text, sizeof text);
    assert_string_equal(text,
                        "other processes took absent, a hypervisor absent (over 10.00 s; load "
                        "absent, other tasks runnable absent, CPU pressure absent, throttled "
                        "absent)");
    soon.at_s += 0.1; /* ticks cannot tell */
    b = gw_busy_between(&start, &soon, 0, 2, 2);
    assert_true(isnan(b.others) && isnan(b.lack) && b.load == 3 && b.runnable == 2);
}

static void test_told(void **state) {
    char text[GW_BUSY_TEXT];
    gw_busy b = after(20, 0.5, 3);
    gw_busy_text(&b, text, sizeof text);
    assert_string_equal(text,
                        "other processes took 1.70 of 2 CPUs, a hypervisor 0.05 (over 10.00 s; "
                        "load 15.0, other tasks runnable 16, CPU pressure 80%, throttled 5% of "
                        "the time)");
    b.steal = NAN;
    json_t *all = gw_busy_run_json(NULL, &b), *during = json_object_get(all, "during");
    assert_true(json_is_null(json_object_get(all, "before")));
    assert_true(json_is_null(json_object_get(during, "steal")));
    assert_float_equal(json_number_value(json_object_get(during, "others")), 1.7, 1e-9);
    assert_true(json_is_true(json_object_get(during, "warned")));
    json_decref(all);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_read),      cmocka_unit_test(test_absent),
        cmocka_unit_test(test_malformed), cmocka_unit_test(test_others),
        cmocka_unit_test(test_own),       cmocka_unit_test(test_room),
        cmocka_unit_test(test_throttled), cmocka_unit_test(test_unknown),
        cmocka_unit_test(test_told),
    };
    return cmocka_run_group_tests(tests, make_folders, remove_folder);
}
