#include "prof/ledger.h"

#include "prof/clock.h"

#include "../timed.h"
#include "unit.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

/* The wall is taken from two marks, the leaves from one mark a region: a stretch that no leaf or
 * two leaves were charged with shows here. A tick is above 0.1 ns, a batch of these tests below 0.1
 * s, so this tolerance lets pass the rounding of doubles and no tick. */
static void check_sum(const gw_batch_cost *c) {
    assert_true(c->wall_s > 0);
    assert_true(fabs(phase_sum(c) - c->wall_s) <= 1e-9 * c->wall_s);
}

static void test_sums_to_wall(void **state) {
    for (int batch = 0; batch < 50; batch++) {
        gw_batch_cost c;
        double before = gw_ledger_now();
        gw_ledger_begin();
        for (int i = 0; i < 20; i++)
            for (int p = 0; p < GW_PHASES; p++) {
                spin_in((gw_phase)p, 1e-6);
            }
        gw_ledger_end(&c);
        double after = gw_ledger_now();
        check_sum(&c);
        assert_true(c.start_s >= before && c.start_s + c.wall_s <= after + 1e-9);
        assert_true(c.wall_s >= 20 * GW_PHASES * 1e-6);
        for (int p = 0; p < GW_PHASES; p++)
            assert_true(c.phase_s[p] >= 20e-6);
    }
}

static uint64_t told_slices, told_batch; /* ticks */

static void tell_slice(gw_phase phase, uint64_t start, uint64_t end) {
    told_slices += end - start;
}

static void tell_batch(uint64_t start, uint64_t end) {
    told_batch = end - start;
}

/* The trace hears of every tick of the batch once, and of the same batch as the cost. */
static void test_slices_fill_the_batch(void **state) {
    const gw_ledger_sink sink = {.slice = tell_slice, .batch = tell_batch};
    gw_batch_cost c;
    told_slices = told_batch = 0;
    gw_ledger_listen(&sink);
    gw_ledger_begin();
    for (int i = 0; i < 100; i++) {
        gw_phase_enter((gw_phase)(i % GW_PHASES));
        gw_phase_enter(GW_PHASE_ENCODE);
        gw_phase_leave();
        gw_phase_leave();
    }
    gw_ledger_end(&c);
    gw_ledger_unlisten(&sink);
    assert_int_equal(told_slices, told_batch);
    assert_true(c.wall_s == gw_clock_seconds(told_batch));
    check_sum(&c);
}

static uint64_t told_wait, told_blocked, block; /* ticks */
static int told_events[2];

static void tell_wait(gw_phase phase, uint64_t start, uint64_t end) {
    told_wait += phase == GW_PHASE_MPI_WAIT ? end - start : 0;
}

static void tell_exchange(gw_exchange_event event, const gw_exchange *x, uint64_t now) {
    assert_int_equal(x->run, 7);
    told_events[0]++;
    if (event == GW_EXCHANGE_BLOCK) {
        block = now;
        told_wait = 0;
    } else if (event == GW_EXCHANGE_UNBLOCK) {
        told_blocked = now - block;
        assert_int_equal(told_wait, told_blocked);
    }
}

static void tell_other(gw_exchange_event event, const gw_exchange *x, uint64_t now) {
    told_events[1]++;
}

/* All listeners hear of an exchange, and where it blocks the main thread the slices are cut. */
static void test_exchanges_cut_slices(void **state) {
    const gw_ledger_sink one = {.slice = tell_wait, .exchange = tell_exchange};
    const gw_ledger_sink other = {.exchange = tell_other};
    const gw_exchange x = {.run = 7};
    gw_batch_cost c;
    gw_ledger_listen(&one);
    gw_ledger_listen(&other);
    gw_ledger_listen(&one);
    gw_ledger_begin();
    gw_phase_enter(GW_PHASE_MPI_WAIT);
    spin(1e-4);
    gw_exchange_tell(GW_EXCHANGE_START, &x);
    gw_exchange_tell(GW_EXCHANGE_BLOCK, &x);
    spin(1e-4);
    gw_exchange_tell(GW_EXCHANGE_UNBLOCK, &x);
    spin(1e-4);
    gw_phase_leave();
    gw_ledger_end(&c);
    check_sum(&c);
    gw_ledger_unlisten(&one);
    gw_exchange_tell(GW_EXCHANGE_DONE, &x);
    gw_ledger_unlisten(&other);
    gw_exchange_tell(GW_EXCHANGE_DONE, &x);
    assert_int_equal(told_events[0], 3);
    assert_int_equal(told_events[1], 4);
    assert_true(gw_clock_seconds(told_blocked) >= 1e-4);
    assert_true(c.phase_s[GW_PHASE_MPI_WAIT] >= 3e-4);
}

static void test_nested_is_exclusive(void **state) {
    gw_batch_cost c;
    gw_ledger_begin();
    gw_phase_enter(GW_PHASE_BACKWARD);
    spin(0.002);
    gw_phase_enter(GW_PHASE_ENCODE);
    spin(0.001);
    spin_in(GW_PHASE_MPI_POST, 0.003);
    gw_phase_leave();
    gw_phase_leave();
    gw_ledger_end(&c);
    /* Lower bounds hold on any machine; a slice that held another's time too would break them
     * together with the sum. */
    assert_true(c.phase_s[GW_PHASE_BACKWARD] >= 0.002);
    assert_true(c.phase_s[GW_PHASE_ENCODE] >= 0.001);
    assert_true(c.phase_s[GW_PHASE_MPI_POST] >= 0.003);
    check_sum(&c);
    for (int p = 0; p < GW_PHASES; p++)
        if (p != GW_PHASE_BACKWARD && p != GW_PHASE_ENCODE && p != GW_PHASE_MPI_POST &&
            p != GW_PHASE_OTHER)
            assert_true(c.phase_s[p] == 0);
}

static void test_outside_batch_nothing(void **state) {
    gw_batch_cost c;
    spin_in(GW_PHASE_FORWARD, 0.001);
    gw_ledger_count(1000, 1, 1);
    gw_ledger_begin();
    gw_ledger_end(&c);
    assert_true(c.phase_s[GW_PHASE_FORWARD] == 0);
    assert_int_equal(c.wire_bytes, 0);
    assert_int_equal(c.messages, 0);
    assert_int_equal(c.collectives, 0);
}

static void test_inflight_counts_computation_only(void **state) {
    gw_batch_cost c;
    gw_ledger_begin();
    spin_in(GW_PHASE_FORWARD, 0.002); /* nothing posted yet */
    gw_ledger_posted(2);
    spin_in(GW_PHASE_BACKWARD, 0.003);
    spin_in(GW_PHASE_MPI_WAIT, 0.002); /* communication, not computation */
    gw_ledger_completed(1);
    spin_in(GW_PHASE_UPDATE, 0.001); /* one is still in flight */
    gw_ledger_completed(1);
    spin_in(GW_PHASE_FORWARD, 0.002);
    gw_ledger_end(&c);
    double hidden = c.phase_s[GW_PHASE_BACKWARD] + c.phase_s[GW_PHASE_UPDATE];
    assert_true(fabs(c.inflight_s - hidden) < 1e-9);
}

static void test_inflight_spans_batches(void **state) {
    gw_batch_cost a, b, none;
    gw_ledger_begin();
    spin_in(GW_PHASE_BACKWARD, 0.001);
    gw_ledger_posted(1);
    gw_ledger_end(&a);
    spin(0.001); /* a gap between batches belongs to none */
    gw_ledger_begin();
    spin_in(GW_PHASE_FORWARD, 0.001);
    gw_ledger_completed(1);
    gw_ledger_end(&b);
    gw_ledger_begin();
    spin_in(GW_PHASE_FORWARD, 0.001);
    gw_ledger_end(&none);
    assert_true(a.inflight_s == 0);
    assert_true(fabs(b.inflight_s - b.phase_s[GW_PHASE_FORWARD]) < 1e-9);
    assert_true(none.inflight_s == 0);
}

static void test_completions_never_go_negative(void **state) {
    gw_batch_cost c;
    gw_ledger_begin();
    gw_ledger_completed(3); /* of calls that are not interposed */
    gw_ledger_posted(1);
    spin_in(GW_PHASE_FORWARD, 0.001);
    gw_ledger_completed(1);
    gw_ledger_end(&c);
    assert_true(c.inflight_s >= 0.001);
}

typedef struct mid_slice {
    atomic_int stage;
    double posted_s, done_s;
} mid_slice;

/* What a progress thread does: its completion falls into the middle of a slice of the main one. */
static void *complete_mid_slice(void *arg) {
    mid_slice *m = arg;
    while (atomic_load(&m->stage) != 1)
        ;
    spin(0.002);
    gw_phase_enter(GW_PHASE_MPI_POLL); /* regions of other threads are not timed */
    gw_ledger_completed(1);
    gw_phase_leave();
    m->done_s = gw_ledger_now();
    atomic_store(&m->stage, 2);
    return NULL;
}

static void test_inflight_ends_mid_slice(void **state) {
    mid_slice m = {0};
    pthread_t thread;
    gw_batch_cost c;
    assert_int_equal(pthread_create(&thread, NULL, complete_mid_slice, &m), 0);
    gw_ledger_begin();
    gw_ledger_posted(1);
    m.posted_s = gw_ledger_now();
    gw_phase_enter(GW_PHASE_BACKWARD);
    atomic_store(&m.stage, 1);
    while (atomic_load(&m.stage) != 2)
        ;
    spin(0.005); /* the slice goes on, alone */
    gw_phase_leave();
    gw_ledger_end(&c);
    pthread_join(thread, NULL);
    assert_true(c.phase_s[GW_PHASE_MPI_POLL] == 0);
    assert_true(c.inflight_s >= 0.002);
    assert_true(c.inflight_s <= m.done_s - m.posted_s + 1e-6);
    assert_true(c.inflight_s <= c.phase_s[GW_PHASE_BACKWARD] - 0.005);
}

enum { THREADS = 4, ROUNDS = 20000, MOST_SLICES = 1 << 18 };
static atomic_int counting;

static void *count_many(void *arg) {
    for (int i = 0; i < ROUNDS; i++) {
        gw_ledger_posted(2);
        gw_ledger_count(3, 1, 2);
        gw_ledger_completed(2);
    }
    atomic_fetch_sub(&counting, 1);
    return NULL;
}

typedef struct stretch {
    uint64_t start, end;
} stretch;
static stretch computed[MOST_SLICES], flown[THREADS * ROUNDS];
static int n_computed, n_flown;

static void tell_computed(gw_phase phase, uint64_t start, uint64_t end) {
    if (phase == GW_PHASE_FORWARD)
        computed[n_computed++] = (stretch){start, end};
}

static void tell_flown(uint64_t start, uint64_t end) {
    flown[n_flown++] = (stretch){start, end};
}

/* Ticks that lie in both; either follow each other. */
static uint64_t told_inflight(void) {
    uint64_t ticks = 0;
    for (int c = 0, f = 0; c < n_computed && f < n_flown;) {
        uint64_t from = computed[c].start > flown[f].start ? computed[c].start : flown[f].start;
        uint64_t to = computed[c].end < flown[f].end ? computed[c].end : flown[f].end;
        ticks += to > from ? to - from : 0;
        if (computed[c].end < flown[f].end)
            c++;
        else
            f++;
    }
    return ticks;
}

/* Also what was in flight under computation, to the tick: threads post and complete while the main
 * one changes its phase, and each does so at an instant of its own. */
static void test_threads_count_exactly(void **state) {
    const gw_ledger_sink sink = {.slice = tell_computed, .flight = tell_flown};
    pthread_t threads[THREADS];
    gw_batch_cost c, after;
    atomic_store(&counting, THREADS);
    gw_ledger_listen(&sink);
    gw_ledger_begin();
    for (int t = 0; t < THREADS; t++)
        assert_int_equal(pthread_create(&threads[t], NULL, count_many, NULL), 0);
    while (atomic_load(&counting) > 0 && n_computed < MOST_SLICES) {
        gw_phase_enter(GW_PHASE_FORWARD);
        gw_phase_leave();
    }
    for (int t = 0; t < THREADS; t++)
        pthread_join(threads[t], NULL);
    gw_ledger_end(&c);
    gw_ledger_unlisten(&sink);
    assert_int_equal(c.wire_bytes, 3 * THREADS * ROUNDS);
    assert_int_equal(c.messages, THREADS * ROUNDS);
    assert_int_equal(c.collectives, 2 * THREADS * ROUNDS);
    assert_true(c.inflight_s <= c.phase_s[GW_PHASE_FORWARD]);
    assert_float_equal(c.inflight_s, gw_clock_seconds(told_inflight()), 0);
    gw_ledger_begin();
    spin_in(GW_PHASE_FORWARD, 0.001);
    gw_ledger_end(&after);
    assert_true(after.inflight_s == 0); /* nothing is left outstanding */
}

static void test_usage_at_edges(void **state) {
    gw_batch_cost c;
    uint64_t before = gw_clock_ticks();
    gw_ledger_begin();
    enum { BYTES = 8 << 20, PAGE = 4096 };
    /* Fresh pages: more than malloc keeps at hand, so each first touch is a fault. */
    volatile char *pages = malloc(BYTES);
    assert_non_null(pages);
    for (int i = 0; i < BYTES; i += PAGE)
        pages[i] = 1;
    spin(0.002);
    gw_ledger_end(&c);
    double around = gw_clock_seconds(gw_clock_ticks() - before);
    free((void *)pages);
    assert_true(c.minflt >= 1);
    assert_true(c.nivcsw >= 0);
    assert_true(c.cpu_s > 0 && c.cpu_s <= around * (1 + 1e-3));
}

/* Off: a wall time, and nobody listens; afterwards all is as before. */
static void test_profile_off(void **state) {
    gw_batch_cost c;
    gw_ledger_posted(1); /* whose end nobody will see */
    gw_ledger_set_profile(GW_PROFILE_OFF);
    assert_int_equal(gw_ledger_profile(), GW_PROFILE_OFF);
    assert_true(!gw_probe_hooks.enter && !gw_probe_hooks.leave && !gw_probe_hooks.exchange);
    gw_ledger_begin();
    assert_false(gw_ledger_counting());
    gw_phase_enter(GW_PHASE_FORWARD); /* left in the next batch: nobody keeps a stack */
    gw_ledger_count(1, 1, 1);
    spin(1e-3);
    gw_ledger_end(&c);
    assert_true(c.wall_s >= 1e-3 && c.start_s > 0);
    for (int p = 0; p < GW_PHASES; p++)
        assert_true(isnan(c.phase_s[p]));
    assert_true(isnan(c.inflight_s) && isnan(c.cpu_s));
    assert_true(c.wire_bytes == GW_UNCOUNTED && c.messages == GW_UNCOUNTED &&
                c.collectives == GW_UNCOUNTED);
    assert_true(c.nivcsw < 0 && c.minflt < 0);
    gw_ledger_set_profile(GW_PROFILE_FULL);
    gw_ledger_begin();
    spin_in(GW_PHASE_FORWARD, 1e-4);
    gw_ledger_count(5, 1, 0);
    gw_ledger_end(&c);
    check_sum(&c);
    assert_true(c.phase_s[GW_PHASE_FORWARD] >= 1e-4 && c.inflight_s == 0);
    assert_true(c.wire_bytes == 5 && c.messages == 1);
}

/* How much that is of a step, `gradwire bench overhead` says. */
static void test_region_cost(void **state) {
    double cost = gw_ledger_region_cost();
    print_message("a region costs %.1f ns (%s)\n", cost * 1e9, gw_clock_name());
    assert_true(cost > 0);
}

int main(void) {
    gw_ledger_start();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sums_to_wall),
        cmocka_unit_test(test_slices_fill_the_batch),
        cmocka_unit_test(test_exchanges_cut_slices),
        cmocka_unit_test(test_nested_is_exclusive),
        cmocka_unit_test(test_outside_batch_nothing),
        cmocka_unit_test(test_inflight_counts_computation_only),
        cmocka_unit_test(test_inflight_spans_batches),
        cmocka_unit_test(test_completions_never_go_negative),
        cmocka_unit_test(test_inflight_ends_mid_slice),
        cmocka_unit_test(test_threads_count_exactly),
        cmocka_unit_test(test_usage_at_edges),
        cmocka_unit_test(test_profile_off),
        cmocka_unit_test(test_region_cost),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
