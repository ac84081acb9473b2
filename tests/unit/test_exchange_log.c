#include "prof/exchange.h"

#include "prof/clock.h"
#include "prof/ledger.h"

#include "../timed.h"
#include "unit.h"

enum { ROWS = 64, FEW = 8, ENTRIES = 16384, STRETCHES = 65536 };

static void begin(int64_t step) {
    gw_exchange_log_begin(step);
    gw_ledger_begin();
}

static gw_batch_cost end(void) {
    gw_batch_cost c;
    gw_ledger_end(&c);
    gw_exchange_log_end();
    return c;
}

static void blocked(const gw_exchange *x, double seconds) {
    gw_phase_enter(GW_PHASE_MPI_WAIT);
    gw_exchange_tell(GW_EXCHANGE_BLOCK, x);
    spin(seconds);
    spin_in(GW_PHASE_DECODE, seconds); /* work in between is no waiting */
    gw_phase_enter(GW_PHASE_MPI_POLL); /* counts as waiting, and does not cut the stretch */
    gw_phase_leave();
    spin(seconds);
    gw_exchange_tell(GW_EXCHANGE_DONE, x);
    gw_exchange_tell(GW_EXCHANGE_UNBLOCK, x);
    gw_phase_leave();
}

static uint64_t waited(const gw_exchange_view *v, int entry, int row) {
    uint64_t sum = 0;
    for (int i = 0; i < v->n_stretches; i++)
        if (v->stretches[i].entry == entry && v->stretches[i].row == row)
            sum += v->stretches[i].end - v->stretches[i].start;
    return sum;
}

/* What is waited for an exchange is mpi_wait's, tick for tick, and of the row it was waited in. */
static void test_stretches(void **state) {
    gw_exchange a = {.lane = 1, .schedule = 3, .run = 1}, b = {.lane = 0, .schedule = 3, .run = 1};
    begin(11);
    gw_exchange_tell(GW_EXCHANGE_START, &a);
    gw_exchange_tell(GW_EXCHANGE_START, &b);
    blocked(&a, 1e-4);
    gw_batch_cost first = end();
    begin(12);
    blocked(&b, 2e-4);
    gw_batch_cost second = end();
    gw_exchange_view v = gw_exchange_log_view();
    assert_int_equal(v.rows, 2);
    assert_int_equal(v.n_entries, 2);
    assert_int_equal(v.n_stretches, 4);
    assert_int_equal(v.dropped, 0);
    assert_false(v.lost[0] || v.lost[1]);
    assert_int_equal(v.entries[0].step, 11);
    assert_int_equal(v.entries[1].step, 11);
    for (int i = 0; i < 2; i++) {
        const gw_exchange_entry *e = &v.entries[i];
        assert_true(v.finished[i]);
        assert_true(e->start <= e->block && e->block < e->done && e->done <= e->unblock);
    }
    assert_int_equal(waited(&v, 0, 1) + waited(&v, 1, 0), 0);
    /* But for what lies between region and block, which no sum of seconds may exceed. */
    double in_first = gw_clock_seconds(waited(&v, 0, 0));
    double in_second = gw_clock_seconds(waited(&v, 1, 1));
    assert_true(in_first >= 2e-4 && in_first <= first.phase_s[GW_PHASE_MPI_WAIT]);
    assert_true(in_second >= 4e-4 && in_second <= second.phase_s[GW_PHASE_MPI_WAIT]);
    gw_exchange_log_clear(false);
    assert_int_equal(gw_exchange_log_view().n_entries, 0);
}

/* An exchange that is under way at a flush stays, and is found again. */
static void test_carried(void **state) {
    gw_exchange done = {.schedule = 1, .run = 9}, open = {.schedule = 2, .run = 5};
    begin(1);
    gw_exchange_tell(GW_EXCHANGE_START, &done);
    gw_exchange_tell(GW_EXCHANGE_START, &open);
    gw_exchange_tell(GW_EXCHANGE_DONE, &done);
    end();
    gw_exchange_log_view().entries[1].latest_s = 42;
    gw_exchange_log_clear(false);
    gw_exchange_view v = gw_exchange_log_view();
    assert_int_equal(v.n_entries, 1);
    assert_int_equal(v.entries[0].x.schedule, 2);
    assert_true(v.entries[0].latest_s == 42);
    assert_int_equal(v.rows, 0);
    begin(2);
    blocked(&open, 1e-5);
    end();
    v = gw_exchange_log_view();
    assert_true(v.finished[0]);
    assert_int_equal(v.entries[0].step, 1);
    assert_true(waited(&v, 0, 0) > 0);
    gw_exchange_log_clear(false);
}

/* Outside rows arrivals are kept, without a step, since the other ranks' lists have them, too; what
 * is waited then is nobody's. */
static void test_between_batches(void **state) {
    gw_exchange x = {.schedule = 4, .run = 1};
    gw_batch_cost c;
    gw_ledger_begin();
    gw_exchange_tell(GW_EXCHANGE_START, &x);
    blocked(&x, 1e-5);
    gw_ledger_end(&c);
    gw_exchange_view v = gw_exchange_log_view();
    assert_int_equal(v.n_entries, 1);
    assert_int_equal(v.entries[0].step, 0);
    assert_int_equal(v.n_stretches, 0);
    gw_exchange_log_clear(false);
}

/* Full: counted, and the rows it hits are marked; the others are right as before. */
static void test_full(void **state) {
    assert_int_equal(gw_exchange_log_room(), ROWS);
    begin(1);
    end();
    begin(2);
    for (int i = 0; i < ENTRIES + 3; i++) {
        gw_exchange x = {.schedule = i % FEW, .run = (uint64_t)i + 1};
        gw_exchange_tell(GW_EXCHANGE_START, &x);
        gw_exchange_tell(GW_EXCHANGE_DONE, &x);
    }
    end();
    begin(3); /* what was dropped is waited for: nobody knows for whom */
    gw_exchange last = {.schedule = (ENTRIES + 2) % FEW, .run = ENTRIES + 3};
    blocked(&last, 1e-6);
    end();
    begin(4);
    end();
    gw_exchange_view v = gw_exchange_log_view();
    assert_int_equal(v.n_entries, ENTRIES);
    assert_int_equal(v.dropped, 3);
    assert_false(v.lost[0]);
    assert_true(v.lost[1]);
    assert_true(v.lost[2]);
    assert_false(v.lost[3]);
    assert_int_equal(v.n_stretches, 0);
    assert_int_equal(gw_exchange_log_room(), 1); /* such a row does not fit twice */
    gw_exchange_log_clear(false);
    begin(5);
    end();
    assert_false(gw_exchange_log_view().lost[0]);
    gw_exchange_log_clear(false);
}

/* The rows until the next flush follow from the fullest row, with as much again to spare. */
static void test_room(void **state) {
    begin(1);
    for (int i = 0; i < ENTRIES / 20; i++) {
        gw_exchange x = {.schedule = i, .run = 1};
        gw_exchange_tell(GW_EXCHANGE_START, &x);
        gw_exchange_tell(GW_EXCHANGE_DONE, &x);
    }
    end();
    (void)gw_exchange_log_view();
    gw_exchange_log_clear(false);
    assert_int_equal(gw_exchange_log_room(), 10);
    begin(2);
    gw_exchange x = {.schedule = 0, .run = 2};
    gw_exchange_tell(GW_EXCHANGE_START, &x);
    gw_phase_enter(GW_PHASE_MPI_WAIT);
    gw_exchange_tell(GW_EXCHANGE_BLOCK, &x);
    for (int i = 0; i < STRETCHES / 8; i++) {
        spin_in(GW_PHASE_DECODE, 1e-7);
        spin(1e-7);
    }
    gw_exchange_tell(GW_EXCHANGE_UNBLOCK, &x);
    gw_phase_leave();
    end();
    assert_int_equal(gw_exchange_log_room(), 3);
    gw_exchange_log_clear(false);
}

static int open_log(void **state) {
    return gw_exchange_log_open(ROWS);
}

static int close_log(void **state) {
    gw_exchange_log_close();
    return 0;
}

int main(void) {
    gw_ledger_start();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_stretches, open_log, close_log),
        cmocka_unit_test_setup_teardown(test_carried, open_log, close_log),
        cmocka_unit_test_setup_teardown(test_between_batches, open_log, close_log),
        cmocka_unit_test_setup_teardown(test_full, open_log, close_log),
        cmocka_unit_test_setup_teardown(test_room, open_log, close_log),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
