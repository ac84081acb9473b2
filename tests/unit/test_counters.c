/* Counters count: what known counts come to, by phase, batch and thread. */
#include "fake_counters.h"

#include <omp.h>

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
    begin_batch(c);
    do_work(GW_PHASE_DATA, 1000, 999);
    do_work(GW_PHASE_FORWARD, 1000, 250);
    do_work(GW_PHASE_BACKWARD, 100, 100);
    do_work(GW_PHASE_MPI_WAIT, 100000, 0);
    do_work(GW_PHASE_BACKWARD, 300, 100);
    do_work(GW_PHASE_ENCODE, 1000, 100);
    do_work(GW_PHASE_DECODE, 1000, 800);
    do_work(GW_PHASE_UPDATE, 500, 500);
    return end_batch(c, cost);
}

static void check_sums(const gw_batch_counts *counts, const gw_batch_cost *cost) {
    near(counts->counter[0], 1000 + 1000 + 100 + 100000 + 300 + 1000 + 1000 + 500);
    near(counts->counter[1], 999 + 250 + 100 + 100 + 100 + 800 + 500);
    const double *t = cost->phase_s;
    near(counts->core_s + counts->memory_s,
         t[GW_PHASE_FORWARD] + t[GW_PHASE_BACKWARD] + t[GW_PHASE_UPDATE]);
}

static void test_by_phase(void **state) {
    gw_counters *c = open_counters(MEMORY, 1);
    assert_true(report.memory);
    assert_string_equal(report.reason, "");
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
    slow_s = 2e-6;
    gw_counters *c = open_counters(MEMORY, 1);
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
    gw_counters *c = open_counters(MEMORY, 1);
    gw_counters_state s;
    gw_counters_tell(c, &s);
    bool fast = s.regions;
    for (int batch = 0; batch < 20; batch++) {
        gw_batch_cost cost;
        begin_batch(c);
        for (int i = 0; i < 100; i++) {
            gw_phase_enter(GW_PHASE_FORWARD);
            work[0] += 1;
            gw_phase_leave();
        }
        gw_batch_counts counts = end_batch(c, &cost);
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
    gw_counters *c = open_counters("group g\nevent cycles cycles = CYC\nevent stalls stalls = MEM\n"
                                   "memory = stalls / cycles\n",
                                   1);
    gw_batch_cost cost;
    begin_batch(c);
    do_work(GW_PHASE_FORWARD, 100, 150);
    gw_batch_counts counts = end_batch(c, &cost);
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
    gw_counters *c = open_counters(MEMORY "group traffic\nevent cycles cycles = CYC\n"
                                          "event instructions instructions = INS\n",
                                   1);
    const char *columns[GW_COUNTERS];
    assert_int_equal(gw_counters_columns(c, columns), 3);
    assert_string_equal(columns[0], "cycles");
    assert_string_equal(columns[1], "stalls");
    assert_string_equal(columns[2], "instructions");
    for (int batch = 0; batch < 5; batch++) {
        gw_batch_cost cost;
        begin_batch(c);
        work[3] += 7;
        do_work(GW_PHASE_FORWARD, 100, 30);
        gw_batch_counts counts = end_batch(c, &cost);
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
    enum { THREADS = 3 };
    omp_set_dynamic(0);
    omp_set_num_threads(THREADS);
    gw_counters *c = open_counters("group g\nevent cycles cycles = CYC\nevent stalls stalls = MEM\n"
                                   "event all any = GLOBAL\nmemory = min(1, stalls / cycles)\n",
                                   THREADS);
    assert_true(open_sets >= THREADS);
    for (int batch = 0; batch < 4; batch++) {
        gw_batch_cost cost;
        begin_batch(c);
        gw_phase_enter(GW_PHASE_FORWARD);
#pragma omp parallel
        {
            int t = omp_get_thread_num();
            work[0] += 1000 * (t + 1);
            work[1] += 100 * (batch + 1) * (t + 1);
            work[4] += 11;
        }
        gw_phase_leave();
        gw_batch_counts counts = end_batch(c, &cost);
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
    omp_set_dynamic(0);
    gw_counters *c = open_counters(MEMORY, 4);
    for (int batch = 0; batch < 3; batch++) {
        gw_batch_cost cost;
        begin_batch(c);
        gw_phase_enter(GW_PHASE_FORWARD);
#pragma omp parallel num_threads(4)
        work[0] += 1000;
        if (batch == 1)
#pragma omp parallel num_threads(2)
            work[0] += 0;
        gw_phase_leave();
        gw_batch_counts counts = end_batch(c, &cost);
        if (batch != 1 || !isnan(counts.counter[0]))
            near(counts.counter[0], 4000);
    }
    gw_counters_close(c);
}

/* The source fails in the middle of a run: the run goes on, without figures and with the reason. */
static void test_breaks(void **state) {
    gw_counters *c = open_counters(MEMORY, 1);
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
    gw_counters *c = open_counters(MEMORY, 1);
    gw_batch_cost cost;
    gw_ledger_set_profile(GW_PROFILE_TIMERS);
    gw_batch_counts counts = one_batch(c, &cost);
    assert_true(isnan(counts.counter[0]));
    gw_ledger_set_profile(GW_PROFILE_FULL);
    counts = one_batch(c, &cost);
    check_sums(&counts, &cost);
    gw_counters_close(c);
}

int main(void) {
    gw_clock_start();
    const struct CMUnitTest tests[] = {
        TEST(test_by_phase),   TEST(test_by_batch), TEST(test_too_often),
        TEST(test_impossible), TEST(test_rotation), TEST(test_threads),
        TEST(test_replaced),   TEST(test_breaks),   TEST(test_profile),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
