#include "prof/trace.h"

#include "prof/clock.h"
#include "prof/ledger.h"

#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static char dir[] = "/tmp/gradwire-trace-XXXXXX";

static void spin(double seconds) {
    uint64_t t0 = gw_clock_ticks();
    while (gw_clock_seconds(gw_clock_ticks() - t0) < seconds)
        ;
}

static void one_batch(void) {
    gw_batch_cost c;
    gw_ledger_begin();
    gw_phase_enter(GW_PHASE_BACKWARD);
    spin(20e-6);
    gw_ledger_posted(1);
    gw_phase_enter(GW_PHASE_MPI_POST);
    spin(5e-6);
    gw_phase_leave();
    spin(20e-6);
    gw_phase_leave();
    gw_ledger_completed(1);
    gw_phase_enter(GW_PHASE_UPDATE);
    spin(5e-6);
    gw_phase_leave();
    gw_ledger_end(&c);
}

static json_t *written(void) {
    char path[64];
    json_error_t why;
    assert_int_equal(gw_trace_write(dir, MPI_COMM_SELF), GW_OK);
    snprintf(path, sizeof path, "%s/trace.json", dir);
    json_t *root = json_load_file(path, 0, &why);
    if (!root)
        fail_msg("trace.json line %d: %s", why.line, why.text);
    unlink(path);
    return root;
}

typedef struct slice {
    long long start, end; /* ns */
    const char *name;
} slice;

/* Microseconds with three decimals are whole nanoseconds. */
static slice slice_of(const json_t *e) {
    double ts = json_number_value(json_object_get(e, "ts"));
    double dur = json_number_value(json_object_get(e, "dur"));
    long long start = (long long)(ts * 1000 + 0.5);
    return (slice){start, start + (long long)(dur * 1000 + 0.5),
                   json_string_value(json_object_get(e, "name"))};
}

static bool is_slice(const json_t *e, int thread) {
    return strcmp(json_string_value(json_object_get(e, "ph")), "X") == 0 &&
           json_integer_value(json_object_get(e, "tid")) == thread;
}

static void test_slices_nest(void **state) {
    (void)state;
    assert_int_equal(gw_trace_open(1000, MPI_COMM_SELF), GW_OK);
    gw_trace_step(41);
    for (int i = 0; i < 3; i++)
        one_batch();
    json_t *root = written();
    slice batch = {0}, last = {0};
    int batches = 0, leaves = 0, posts = 0;
    size_t i;
    json_t *e;
    json_array_foreach(json_object_get(root, "traceEvents"), i, e) {
        if (!is_slice(e, 0))
            continue;
        slice s = slice_of(e);
        json_t *step = json_object_get(json_object_get(e, "args"), "step");
        assert_true(s.start >= 0 && s.end > s.start);
        if (step) {
            assert_true(s.start >= batch.end);
            assert_int_equal(json_integer_value(step), 41 + batches++);
            batch = s;
            last = (slice){s.start, s.start, ""};
        } else {
            assert_true(s.start == last.end && s.end <= batch.end); /* gapless, inside its batch */
            posts += strcmp(s.name, "mpi_post") == 0;
            leaves++;
            last = s;
        }
    }
    assert_int_equal(batches, 3);
    assert_int_equal(posts, 3);
    assert_true(leaves >= 3 * 4);
    json_decref(root);
    gw_trace_close();
}

static void test_flights(void **state) {
    (void)state;
    assert_int_equal(gw_trace_open(1000, MPI_COMM_SELF), GW_OK);
    for (int i = 0; i < 5; i++)
        one_batch();
    json_t *root = written();
    int flights = 0;
    long long last = 0;
    size_t i;
    json_t *e;
    json_array_foreach(json_object_get(root, "traceEvents"), i, e) {
        if (!is_slice(e, 1))
            continue;
        slice s = slice_of(e);
        assert_true(s.start >= last && s.end - s.start >= 25000);
        last = s.end;
        flights++;
    }
    assert_int_equal(flights, 5);
    json_decref(root);
    gw_trace_close();
}

static void test_full_ring_drops_the_oldest(void **state) {
    (void)state;
    enum { ROOM = 12, BATCHES = 20 };
    assert_int_equal(gw_trace_open(ROOM, MPI_COMM_SELF), GW_OK);
    for (int i = 0; i < BATCHES; i++)
        one_batch();
    json_t *root = written();
    int kept = 0;
    long long newest = 0;
    size_t i;
    json_t *e;
    json_array_foreach(json_object_get(root, "traceEvents"), i, e) {
        json_t *step = json_object_get(json_object_get(e, "args"), "step");
        kept += is_slice(e, 0);
        if (step && json_integer_value(step) > newest)
            newest = json_integer_value(step);
    }
    json_t *dropped = json_object_get(json_object_get(root, "otherData"), "dropped_slices");
    assert_int_equal(kept, ROOM);
    assert_int_equal(newest, BATCHES);
    assert_true(json_integer_value(json_array_get(dropped, 0)) >= BATCHES * 5 - ROOM);
    json_decref(root);
    gw_trace_close();
}

static void test_closed_trace_listens_no_more(void **state) {
    (void)state;
    gw_trace_close();
    one_batch(); /* nothing to write to: must not crash */
    assert_int_equal(gw_trace_write(dir, MPI_COMM_SELF), GW_ERR_INTERNAL);
    assert_int_equal(gw_trace_open(0, MPI_COMM_SELF), GW_ERR_USAGE);
}

static void test_unwritable_folder(void **state) {
    (void)state;
    assert_int_equal(gw_trace_open(10, MPI_COMM_SELF), GW_OK);
    assert_int_equal(gw_trace_write("/nonexistent/folder", MPI_COMM_SELF), GW_ERR_INPUT);
    assert_non_null(strstr(gw_err_text(), "/nonexistent/folder/trace.json"));
    gw_trace_close();
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    if (!mkdtemp(dir))
        return 1;
    gw_ledger_start();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_slices_nest),
        cmocka_unit_test(test_flights),
        cmocka_unit_test(test_full_ring_drops_the_oldest),
        cmocka_unit_test(test_closed_trace_listens_no_more),
        cmocka_unit_test(test_unwritable_folder),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    rmdir(dir);
    MPI_Finalize();
    return failed;
}
