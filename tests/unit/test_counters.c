/* Counters from an injected source: what is refused and why, and what known counts come to. */
#include "counters/counters.h"
#include "prof/clock.h"

#include <math.h>
#include <omp.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* ---- the source ---- */

enum { NAMES = 5 };
static const char *const names[NAMES] = {"CYC", "MEM", "WAIT", "INS", "GLOBAL"};

static _Thread_local long long work[NAMES]; /* what the test's "processor" did on this thread */
static bool known_work;                     /* counts are `work`; else they follow the clock */
static double slow_s;                       /* a read takes as long */
static int open_sets, broken_after;         /* reads until they fail; 0: never */

typedef struct set {
    int n, which[GW_GROUP_EVENTS];
    char name[GW_GROUP_EVENTS][GW_EVENT_NAME];
    bool running;
} set;

static void close_set(void *p) {
#pragma omp atomic
    open_sets--;
    free(p);
}

static gw_err open_set(void **out, const char *const *events, int n) {
    set *s = calloc(1, sizeof *s);
    assert_non_null(s);
    s->n = n;
    for (int i = 0; i < n; i++) {
        snprintf(s->name[i], sizeof s->name[i], "%s", events[i]);
        for (int k = 0; k < NAMES; k++)
            s->which[i] = strcmp(events[i], names[k]) == 0 ? k : s->which[i];
        if (strcmp(events[i], "REFUSED") == 0 || (n > 1 && strcmp(events[i], "ALONE") == 0)) {
            free(s);
            return gw_fail(GW_ERR_UNSUPPORTED, "%s cannot be added", events[i]);
        }
    }
#pragma omp atomic
    open_sets++;
    *out = s;
    return GW_OK;
}

static _Thread_local set *running;

static gw_err start_set(void *p) {
    if (running) /* no assertion: this may be another thread */
        return gw_fail(GW_ERR_UNSUPPORTED, "two sets at a time on a thread");
    running = p;
    return GW_OK;
}

static gw_err stop_set(void *p) {
    if (running != p)
        return gw_fail(GW_ERR_UNSUPPORTED, "a set is stopped that does not run");
    running = NULL;
    return GW_OK;
}

static void spin(double seconds) {
    uint64_t from = gw_clock_ticks();
    while (gw_clock_seconds(gw_clock_ticks() - from) < seconds)
        ;
}

static gw_err read_set(void *p, long long *values) {
    const set *s = p;
    if (running != p)
        return gw_fail(GW_ERR_UNSUPPORTED, "a set is read that does not run");
    if (slow_s > 0)
        spin(slow_s);
    if (broken_after > 0 && --broken_after == 0)
        return gw_fail(GW_ERR_UNSUPPORTED, "the source broke");
    long long ns = (long long)(gw_clock_seconds(gw_clock_ticks()) * 1e9);
    for (int i = 0; i < s->n; i++) {
        values[i] = known_work ? work[s->which[i]] : 4 * ns;
        if (strcmp(s->name[i], "DEAD") == 0)
            values[i] = 0;
        if (strcmp(s->name[i], "GARBAGE") == 0)
            values[i] = ns * 1000;
        if (strcmp(s->name[i], "NEGATIVE") == 0)
            values[i] = -1;
        if (strcmp(s->name[i], "FALLS") == 0)
            values[i] = -ns;
    }
    return GW_OK;
}

static bool per_thread(const char *event) {
    return strcmp(event, "GLOBAL") != 0;
}

static const gw_counter_source fake = {"fake",   open_set,  start_set,  read_set,
                                       stop_set, close_set, per_thread, NULL};

static gw_group_choice choice_of(const char *text) {
    gw_group_choice c;
    bool fits;
    gw_cpu cpu = {.family = 1};
    if (gw_group_parse(&c, &fits, &cpu, "test", text) != GW_OK)
        fail_msg("%s", gw_err_text());
    snprintf(c.name, sizeof c.name, "test");
    return c;
}

static gw_counters *open_counters(const char *text, int threads, gw_counters_report *report) {
    static gw_group_choice c; /* not kept */
    gw_counters *counters = NULL;
    known_work = false;
    c = choice_of(text);
    if (gw_counters_open(&counters, report, &fake, &c, threads) != GW_OK)
        fail_msg("%s", gw_err_text());
    memset(&c, 0, sizeof c);
    known_work = true;
    return counters;
}

static int reset(void **state) {
    (void)state;
    slow_s = 0;
    broken_after = 0;
    gw_ledger_start();
    return 0;
}

/* Nothing is left open, on any thread; one that ends closes its sets in its own time. */
static int all_closed(void **state) {
    (void)state;
    int left = 1;
    for (int ms = 0; left > 0 && ms < 10000; ms++) {
#pragma omp atomic read
        left = open_sets;
        if (left > 0)
            spin(1e-3);
    }
    open_sets = 0; /* a test that failed is not to fail all others */
    running = NULL;
    assert_int_equal(left, 0);
    return 0;
}

static void near(double got, double expected) {
    if (!(fabs(got - expected) <= 1e-12 + 1e-9 * fabs(expected)))
        fail_msg("%.17g, not %.17g", got, expected);
}

/* ---- what is refused ---- */

static void refuses(const char *event, const char *check, const char *why) {
    char text[256];
    gw_counters_report r;
    snprintf(text, sizeof text, "group g\nevent c cycles = CYC\nevent x %s = %s\nmemory = x / c\n",
             check, event);
    gw_counters *c = open_counters(text, 1, &r);
    assert_non_null(c); /* the other event counts */
    assert_int_equal(r.events, 2);
    assert_string_equal(r.event[0].papi, "CYC");
    assert_string_equal(r.event[0].reason, "");
    assert_string_equal(r.event[1].papi, "");
    if (!strstr(r.event[1].reason, why) || !strstr(r.reason, why))
        fail_msg("%s: '%s', '%s'", event, r.event[1].reason, r.reason);
    assert_false(r.memory);
    const char *columns[GW_COUNTERS];
    assert_int_equal(gw_counters_columns(c, columns), 1);
    assert_string_equal(columns[0], "c");
    gw_batch_cost cost;
    gw_counters_begin(c);
    gw_ledger_begin();
    work[0] += 5;
    gw_ledger_end(&cost);
    gw_batch_counts counts = gw_counters_end(c, &cost);
    near(counts.counter[0], 5);
    assert_true(isnan(counts.memory_s));
    gw_counters_close(c);
}

static void test_refused(void **state) {
    (void)state;
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
    (void)state;
    gw_counters_report r;
    gw_counters *c = open_counters(
        "group g\nevent a any = DEAD\nevent c cycles = REFUSED | DEAD | CYC | INS\n", 1, &r);
    assert_string_equal(r.event[0].papi, "DEAD");
    assert_string_equal(r.event[1].papi, "CYC");
    assert_string_equal(r.event[1].reason, "");
    assert_false(r.memory);
    assert_non_null(strstr(r.reason, "no formula"));
    gw_counters_close(c);
}

/* Nothing counts: no error where nobody asked for it by name, and one that names the event where
 * somebody did. */
static void test_nothing(void **state) {
    (void)state;
    gw_counters_report r;
    const char *text = "group g\nevent c cycles = DEAD | REFUSED\nmemory = c\n";
    assert_null(open_counters(text, 1, &r));
    assert_non_null(strstr(r.reason, "test, event c: DEAD is accepted"));
    assert_non_null(strstr(r.reason, "; REFUSED cannot be added"));
    gw_group_choice named = choice_of(text);
    named.named = true;
    gw_counters *c = NULL;
    known_work = false;
    assert_int_equal(gw_counters_open(&c, &r, &fake, &named, 1), GW_ERR_UNSUPPORTED);
    assert_non_null(strstr(gw_err_text(), "test: event c cannot be counted here: DEAD"));
    assert_null(c);
    gw_group_choice none = {.reason = "not this CPU"};
    assert_int_equal(gw_counters_open(&c, &r, &fake, &none, 1), GW_OK);
    assert_null(c);
    assert_string_equal(r.reason, "not this CPU");
}

/* Each counts, but not both at once. */
static void test_together(void **state) {
    (void)state;
    gw_counters_report r;
    assert_null(open_counters("group g\nevent c cycles = CYC\nevent a any = ALONE\n", 1, &r));
    assert_non_null(strstr(r.event[0].reason, "counts alone, not in its group: ALONE cannot"));
    assert_string_equal(r.event[0].papi, "");
}

/* More columns than a row has room for. */
static void test_too_many(void **state) {
    (void)state;
    gw_group_choice wide =
        choice_of("group a\nevent a any=CYC\nevent b any=CYC\nevent c any=CYC\n"
                  "group b\nevent d any=CYC\nevent e any=CYC\nevent f any=CYC\n"
                  "group c\nevent g any=CYC\nevent h any=CYC\nevent i any=CYC\n");
    gw_counters *c = NULL;
    gw_counters_report r;
    assert_int_equal(gw_counters_open(&c, &r, &fake, &wide, 1), GW_ERR_USAGE);
    assert_non_null(strstr(gw_err_text(), "9 counters in all, a row has room for 8"));
}

/* ---- what known counts come to ---- */

#define MEMORY                                                                                     \
    "group memory\nevent cycles cycles = CYC\nevent stalls stalls = MEM\n"                         \
    "memory = min(1, stalls / cycles)\nfigure part = stalls / cycles\n"

static void do_work(gw_phase phase, long long cycles, long long stalls) {
    gw_phase_enter(phase);
    spin(2e-6);
    work[0] += cycles;
    work[1] += stalls;
    gw_phase_leave();
}

/* forward 25% memory-bound, backward (in two regions) 50%, update 100%, codec 10% and 80%; a wait
 * in between that would spoil all of them. */
static gw_batch_counts one_batch(gw_counters *c, gw_batch_cost *cost) {
    gw_counters_begin(c);
    gw_ledger_begin();
    do_work(GW_PHASE_DATA, 1000, 999);
    do_work(GW_PHASE_FORWARD, 1000, 250);
    do_work(GW_PHASE_BACKWARD, 100, 100);
    do_work(GW_PHASE_MPI_WAIT, 100000, 0);
    do_work(GW_PHASE_BACKWARD, 300, 100);
    do_work(GW_PHASE_ENCODE, 1000, 100);
    do_work(GW_PHASE_DECODE, 1000, 800);
    do_work(GW_PHASE_UPDATE, 500, 500);
    gw_ledger_end(cost);
    return gw_counters_end(c, cost);
}

static void check_sums(const gw_batch_counts *counts, const gw_batch_cost *cost) {
    near(counts->counter[0], 1000 + 1000 + 100 + 100000 + 300 + 1000 + 1000 + 500);
    near(counts->counter[1], 999 + 250 + 100 + 100 + 100 + 800 + 500);
    const double *t = cost->phase_s;
    near(counts->core_s + counts->memory_s,
         t[GW_PHASE_FORWARD] + t[GW_PHASE_BACKWARD] + t[GW_PHASE_UPDATE]);
}

static void test_by_phase(void **state) {
    (void)state;
    gw_counters_report r;
    gw_counters *c = open_counters(MEMORY, 1, &r);
    assert_true(r.memory);
    assert_string_equal(r.reason, "");
    gw_counters_state s;
    gw_counters_tell(c, &s);
    assert_true(s.read_s > 0 && s.edge_s > 0);
    if (!s.regions) { /* a machine so slow that each read looks like a system call */
        gw_counters_close(c);
        skip();
    }
    gw_batch_cost cost;
    for (int batch = 0; batch < 3; batch++) {
        gw_batch_counts counts = one_batch(c, &cost);
        check_sums(&counts, &cost);
        const double *t = cost.phase_s;
        near(counts.memory_s,
             0.25 * t[GW_PHASE_FORWARD] + 0.5 * t[GW_PHASE_BACKWARD] + 1.0 * t[GW_PHASE_UPDATE]);
        near(counts.memory_codec_s, 0.1 * t[GW_PHASE_ENCODE] + 0.8 * t[GW_PHASE_DECODE]);
    }
    double sums[GW_GROUP_EVENTS];
    int64_t batches;
    const gw_group *g = gw_counters_totals(c, 0, sums, &batches);
    assert_int_equal(batches, 3);
    near(sums[0], 3 * 104900.0);
    near(sums[1], 3 * 2849.0);
    near(gw_expr_value(&g->figure[0].value, sums), 2849.0 / 104900);
    gw_counters_close(c);
}

/* A read that takes as long as a system call: the batch's fraction serves all its phases. */
static void test_by_batch(void **state) {
    (void)state;
    slow_s = 2e-6;
    gw_counters_report r;
    gw_counters *c = open_counters(MEMORY, 1, &r);
    gw_counters_state s;
    gw_counters_tell(c, &s);
    assert_false(s.regions);
    assert_non_null(strstr(s.why, "a system call"));
    assert_true(s.read_s >= 2e-6);
    gw_batch_cost cost;
    gw_batch_counts counts = one_batch(c, &cost);
    check_sums(&counts, &cost);
    const double *t = cost.phase_s;
    double part = 2849.0 / 104900;
    near(counts.memory_s, part * (t[GW_PHASE_FORWARD] + t[GW_PHASE_BACKWARD] + t[GW_PHASE_UPDATE]));
    near(counts.memory_codec_s, part * (t[GW_PHASE_ENCODE] + t[GW_PHASE_DECODE]));
    gw_counters_close(c);
}

/* Fast reads, but so many that they would be a burden: given up after the trial. */
static void test_too_often(void **state) {
    (void)state;
    gw_counters_report r;
    gw_counters *c = open_counters(MEMORY, 1, &r);
    gw_counters_state s;
    gw_counters_tell(c, &s);
    bool fast = s.regions;
    for (int batch = 0; batch < 20; batch++) {
        gw_batch_cost cost;
        gw_counters_begin(c);
        gw_ledger_begin();
        for (int i = 0; i < 100; i++) {
            gw_phase_enter(GW_PHASE_FORWARD);
            work[0] += 1;
            gw_phase_leave();
        }
        gw_ledger_end(&cost);
        gw_batch_counts counts = gw_counters_end(c, &cost);
        near(counts.counter[0], 100);
    }
    gw_counters_tell(c, &s);
    assert_false(s.regions);
    if (fast)
        assert_non_null(strstr(s.why, "of a batch, above 0.5%"));
    gw_counters_close(c);
}

/* A fraction that cannot be: no figure, but a count of such batches. */
static void test_impossible(void **state) {
    (void)state;
    gw_counters_report r;
    gw_counters *c = open_counters("group g\nevent cycles cycles = CYC\nevent stalls stalls = MEM\n"
                                   "memory = stalls / cycles\n",
                                   1, &r);
    gw_batch_cost cost;
    gw_counters_begin(c);
    gw_ledger_begin();
    do_work(GW_PHASE_FORWARD, 100, 150);
    gw_ledger_end(&cost);
    gw_batch_counts counts = gw_counters_end(c, &cost);
    near(counts.counter[1], 150);
    assert_true(isnan(counts.memory_s) && isnan(counts.core_s));
    gw_counters_state s;
    gw_counters_tell(c, &s);
    assert_int_equal(s.lost, 1);
    gw_counters_close(c);
}

/* Groups take turns; a figure of the other group is not known, and an event of both is one column.
 */
static void test_rotation(void **state) {
    (void)state;
    gw_counters_report r;
    gw_counters *c = open_counters(MEMORY "group traffic\nevent cycles cycles = CYC\n"
                                          "event instructions instructions = INS\n",
                                   1, &r);
    const char *columns[GW_COUNTERS];
    assert_int_equal(gw_counters_columns(c, columns), 3);
    assert_string_equal(columns[0], "cycles");
    assert_string_equal(columns[1], "stalls");
    assert_string_equal(columns[2], "instructions");
    for (int batch = 0; batch < 5; batch++) {
        gw_batch_cost cost;
        gw_counters_begin(c);
        gw_ledger_begin();
        work[3] += 7;
        do_work(GW_PHASE_FORWARD, 100, 30);
        gw_ledger_end(&cost);
        gw_batch_counts counts = gw_counters_end(c, &cost);
        bool memory = batch % 2 == 0;
        near(counts.counter[0], 100);
        assert_int_equal(isnan(counts.counter[1]), !memory);
        assert_int_equal(isnan(counts.counter[2]), memory);
        assert_int_equal(isnan(counts.memory_s), !memory);
        if (memory)
            near(counts.memory_s, 0.3 * cost.phase_s[GW_PHASE_FORWARD]);
        else
            near(counts.counter[2], 7);
    }
    int64_t batches;
    double sums[GW_GROUP_EVENTS];
    gw_counters_totals(c, 1, sums, &batches);
    assert_int_equal(batches, 2);
    near(sums[1], 14);
    gw_counters_close(c);
}

/* ---- threads ---- */

/* Thread t does 1000 (t + 1) cycles; an event of the process is counted once. */
static void test_threads(void **state) {
    (void)state;
    enum { THREADS = 3 };
    omp_set_dynamic(0);
    omp_set_num_threads(THREADS);
    gw_counters_report r;
    gw_counters *c = open_counters("group g\nevent cycles cycles = CYC\nevent stalls stalls = MEM\n"
                                   "event all any = GLOBAL\nmemory = min(1, stalls / cycles)\n",
                                   THREADS, &r);
    assert_true(open_sets >= THREADS);
    for (int batch = 0; batch < 4; batch++) {
        gw_batch_cost cost;
        gw_counters_begin(c);
        gw_ledger_begin();
        gw_phase_enter(GW_PHASE_FORWARD);
#pragma omp parallel
        {
            int t = omp_get_thread_num();
            work[0] += 1000 * (t + 1);
            work[1] += 100 * (batch + 1) * (t + 1);
            work[4] += 11;
        }
        gw_phase_leave();
        gw_ledger_end(&cost);
        gw_batch_counts counts = gw_counters_end(c, &cost);
        near(counts.counter[0], 6000);
        near(counts.counter[1], 600 * (batch + 1));
        near(counts.counter[2], 11);
        near(counts.memory_s, 0.1 * (batch + 1) * cost.phase_s[GW_PHASE_FORWARD]);
    }
    gw_counters_close(c);
}

/* OpenMP may replace threads where a team of another size ran: the batch is then without figures,
 * and the next one has them again. */
static void test_replaced(void **state) {
    (void)state;
    omp_set_dynamic(0);
    gw_counters_report r;
    gw_counters *c = open_counters(MEMORY, 4, &r);
    for (int batch = 0; batch < 3; batch++) {
        gw_batch_cost cost;
        gw_counters_begin(c);
        gw_ledger_begin();
        gw_phase_enter(GW_PHASE_FORWARD);
#pragma omp parallel num_threads(4)
        work[0] += 1000;
        if (batch == 1)
#pragma omp parallel num_threads(2)
            work[0] += 0;
        gw_phase_leave();
        gw_ledger_end(&cost);
        gw_batch_counts counts = gw_counters_end(c, &cost);
        if (batch != 1 || !isnan(counts.counter[0]))
            near(counts.counter[0], 4000);
    }
    gw_counters_close(c);
}

/* The source fails in the middle of a run: the run goes on, without figures and with the reason. */
static void test_breaks(void **state) {
    (void)state;
    gw_counters_report r;
    gw_counters *c = open_counters(MEMORY, 1, &r);
    broken_after = 4;
    gw_batch_cost cost;
    gw_batch_counts counts;
    for (int batch = 0; batch < 5; batch++)
        counts = one_batch(c, &cost);
    assert_true(isnan(counts.counter[0]) && isnan(counts.memory_s));
    gw_counters_state s;
    gw_counters_tell(c, &s);
    assert_string_equal(s.failed, "the source broke");
    gw_counters_close(c);
}

/* With --profile timers for a while nothing is counted, and then again. */
static void test_profile(void **state) {
    (void)state;
    gw_counters_report r;
    gw_counters *c = open_counters(MEMORY, 1, &r);
    gw_batch_cost cost;
    gw_ledger_set_profile(GW_PROFILE_TIMERS);
    gw_batch_counts counts = one_batch(c, &cost);
    assert_true(isnan(counts.counter[0]));
    gw_ledger_set_profile(GW_PROFILE_FULL);
    counts = one_batch(c, &cost);
    check_sums(&counts, &cost);
    gw_counters_close(c);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, reset, all_closed)

int main(void) {
    gw_clock_start();
    const struct CMUnitTest tests[] = {
        TEST(test_refused),    TEST(test_taken),    TEST(test_nothing),  TEST(test_together),
        TEST(test_too_many),   TEST(test_by_phase), TEST(test_by_batch), TEST(test_too_often),
        TEST(test_impossible), TEST(test_rotation), TEST(test_threads),  TEST(test_replaced),
        TEST(test_breaks),     TEST(test_profile),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
