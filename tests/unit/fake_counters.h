/* A counter source whose counts the test sets, and what opens counters on it. */
#ifndef GW_TESTS_FAKE_COUNTERS_H
#define GW_TESTS_FAKE_COUNTERS_H

#include "counters/counters.h"

#include "../timed.h"
#include "unit.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NAMES = 5 };
static const char *const names[NAMES] = {"CYC", "MEM", "WAIT", "INS", "GLOBAL"};

static _Thread_local long long work[NAMES]; /* what the test's "processor" did on this thread */
static bool known_work;                     /* counts are `work`; else they follow the clock */
static double slow_s;                       /* a read takes as long */
static int open_sets, broken_after;         /* reads until they fail; 0: never */

typedef struct set {
    int n, which[GW_GROUP_EVENTS];
    char name[GW_GROUP_EVENTS][GW_EVENT_NAME];
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

static const gw_counter_source fake = {open_set,  start_set,  read_set, stop_set,
                                       close_set, per_thread, NULL};

static gw_group_choice choice_of(const char *text) {
    gw_group_choice c;
    bool fits;
    gw_cpu cpu = {.family = 1};
    assert_ok(gw_group_parse(&c, &fits, &cpu, "test", text));
    snprintf(c.name, sizeof c.name, "test");
    return c;
}

static gw_counters_report report; /* of the counters that were opened last */

static gw_counters *open_counters(const char *text, int threads) {
    static gw_group_choice c; /* not kept */
    gw_counters *counters = NULL;
    known_work = false;
    c = choice_of(text);
    assert_ok(gw_counters_open(&counters, &report, &fake, &c, threads));
    memset(&c, 0, sizeof c);
    known_work = true;
    return counters;
}

static void begin_batch(gw_counters *c) {
    gw_counters_begin(c);
    gw_ledger_begin();
}

static gw_batch_counts end_batch(gw_counters *c, gw_batch_cost *cost) {
    gw_ledger_end(cost);
    return gw_counters_end(c, cost);
}

static int reset(void **state) {
    slow_s = 0;
    broken_after = 0;
    gw_ledger_start();
    return 0;
}

/* Nothing is left open on any thread. A thread that ends closes its sets some time later. */
static int all_closed(void **state) {
    int left = 1;
    for (int ms = 0; left > 0 && ms < 10000; ms++) {
#pragma omp atomic read
        left = open_sets;
        if (left > 0)
            spin(1e-3);
    }
    open_sets = 0; /* one failed test must not fail all others */
    running = NULL;
    assert_int_equal(left, 0);
    return 0;
}

static void near(double got, double expected) {
    if (!(fabs(got - expected) <= 1e-12 + 1e-9 * fabs(expected)))
        fail_msg("%.17g, not %.17g", got, expected);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, reset, all_closed)

#endif
