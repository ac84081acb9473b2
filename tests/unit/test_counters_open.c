/* Counters are opened: what is refused and why. */
#include "fake_counters.h"

static void refuses(const char *event, const char *check, const char *why) {
    char text[256];
    snprintf(text, sizeof text, "group g\nevent c cycles = CYC\nevent x %s = %s\nmemory = x / c\n",
             check, event);
    gw_counters *c = open_counters(text, 1);
    assert_non_null(c); /* the other event counts */
    assert_int_equal(report.events, 2);
    assert_string_equal(report.event[0].papi, "CYC");
    assert_string_equal(report.event[0].reason, "");
    assert_string_equal(report.event[1].papi, "");
    if (!strstr(report.event[1].reason, why) || !strstr(report.reason, why))
        fail_msg("%s: '%s', '%s'", event, report.event[1].reason, report.reason);
    assert_false(report.memory);
    const char *columns[GW_COUNTERS];
    assert_int_equal(gw_counters_columns(c, columns), 1);
    assert_string_equal(columns[0], "c");
    gw_batch_cost cost;
    begin_batch(c);
    work[0] += 5;
    gw_batch_counts counts = end_batch(c, &cost);
    near(counts.counter[0], 5);
    assert_true(isnan(counts.memory_s));
    gw_counters_close(c);
}

static void test_refused(void **state) {
    refuses("REFUSED", "stalls", "REFUSED cannot be added");
    refuses("DEAD", "stalls", "DEAD is accepted, but counted 0 for a kernel");
    refuses("DEAD", "cycles", "DEAD is accepted, but counted 0 for a kernel");
    refuses("DEAD", "instructions", "(check 'instructions')");
    refuses("DEAD", "misses", "(check 'misses')");
    refuses("DEAD", "stores", "(check 'stores')");
    refuses("DEAD", "window", "(check 'window')");
    refuses("GARBAGE", "stalls", "GARBAGE is accepted, but counted ");
    refuses("NEGATIVE", "any", "NEGATIVE is accepted, but reads -1 and then -1: no count");
    refuses("FALLS", "any", "no count");
}

/* An event that nothing must produce may count 0; and the first name that counts is taken. */
static void test_taken(void **state) {
    gw_counters *c = open_counters(
        "group g\nevent a any = DEAD\nevent c cycles = REFUSED | DEAD | CYC | INS\n", 1);
    assert_string_equal(report.event[0].papi, "DEAD");
    assert_string_equal(report.event[1].papi, "CYC");
    assert_string_equal(report.event[1].reason, "");
    assert_false(report.memory);
    assert_non_null(strstr(report.reason, "no formula"));
    gw_counters_close(c);
}

/* Nothing counts: no error where nobody asked for it by name, and one that names the event where
 * somebody did. */
static void test_nothing(void **state) {
    const char *text = "group g\nevent c cycles = DEAD | REFUSED\nmemory = c\n";
    assert_null(open_counters(text, 1));
    assert_non_null(strstr(report.reason, "test, event c: DEAD is accepted"));
    assert_non_null(strstr(report.reason, "; REFUSED cannot be added"));
    gw_group_choice named = choice_of(text);
    named.named = true;
    gw_counters *c = NULL;
    known_work = false;
    assert_fails(gw_counters_open(&c, &report, &fake, &named, 1), GW_ERR_UNSUPPORTED,
                 "test: event c cannot be counted here: DEAD");
    assert_null(c);
    gw_group_choice none = {.reason = "not this CPU"};
    assert_int_equal(gw_counters_open(&c, &report, &fake, &none, 1), GW_OK);
    assert_null(c);
    assert_string_equal(report.reason, "not this CPU");
}

/* Each counts, but not both at once. */
static void test_together(void **state) {
    assert_null(open_counters("group g\nevent c cycles = CYC\nevent a any = ALONE\n", 1));
    assert_non_null(strstr(report.event[0].reason, "counts alone, not in its group: ALONE cannot"));
    assert_string_equal(report.event[0].papi, "");
}

/* More columns than a row has room for. */
static void test_too_many(void **state) {
    gw_group_choice wide =
        choice_of("group a\nevent a any=CYC\nevent b any=CYC\nevent c any=CYC\n"
                  "group b\nevent d any=CYC\nevent e any=CYC\nevent f any=CYC\n"
                  "group c\nevent g any=CYC\nevent h any=CYC\nevent i any=CYC\n");
    gw_counters *c = NULL;
    assert_fails(gw_counters_open(&c, &report, &fake, &wide, 1), GW_ERR_USAGE,
                 "9 counters in all, a row has room for 8");
}

int main(void) {
    gw_clock_start();
    const struct CMUnitTest tests[] = {
        TEST(test_refused),  TEST(test_taken),    TEST(test_nothing),
        TEST(test_together), TEST(test_too_many),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
