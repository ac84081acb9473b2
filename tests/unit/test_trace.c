#include "trace/trace.h"

#include "prof/clock.h"
#include "prof/ledger.h"

#include "../timed.h"
#include "folder.h"

#include <jansson.h>
#include <math.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>

static gw_sync *the_clock;

static void one_batch(void) {
    gw_batch_cost c;
    gw_ledger_begin();
    gw_phase_enter(GW_PHASE_BACKWARD);
    spin(20e-6);
    gw_ledger_posted(1);
    spin_in(GW_PHASE_MPI_POST, 5e-6);
    spin(20e-6);
    gw_phase_leave();
    gw_ledger_completed(1);
    spin_in(GW_PHASE_UPDATE, 5e-6);
    gw_ledger_end(&c);
}

static json_t *written(void) {
    const char *path = in_folder("trace.json");
    json_error_t why;
    assert_int_equal(gw_trace_write(folder, the_clock, MPI_COMM_SELF), GW_OK);
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

/* Tracks of rank 0. */
enum { MAIN = 1, CODEC, REQUESTS, WAITS, PIPELINE, ASIDE };

static const char *text(const json_t *e, const char *key) {
    const char *s = json_string_value(json_object_get(e, key));
    return s ? s : "";
}

static json_int_t arg(const json_t *e, const char *key) {
    return json_integer_value(json_object_get(json_object_get(e, "args"), key));
}

static bool is_slice(const json_t *e, int track) {
    return strcmp(text(e, "ph"), "X") == 0 &&
           json_integer_value(json_object_get(e, "tid")) == track;
}

static json_int_t dropped(const json_t *root, const char *kind) {
    const json_t *counts = json_object_get(json_object_get(root, "otherData"), kind);
    assert_int_equal(json_array_size(counts), 1);
    return json_integer_value(json_array_get(counts, 0));
}

static void test_slices_nest(void **state) {
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
        if (!is_slice(e, MAIN))
            continue;
        slice s = slice_of(e);
        /* The time between two regions may be below a nanosecond; that in a region is not. */
        bool between = strcmp(s.name, "other") == 0;
        assert_true(s.start >= 0 && s.end >= s.start && (between || s.end > s.start));
        if (strcmp(text(e, "cat"), "batch") == 0) {
            assert_true(s.start >= batch.end && last.end == batch.end);
            assert_int_equal(arg(e, "step"), 41 + batches++);
            batch = s;
            last = (slice){s.start, s.start, ""};
        } else {
            assert_true(s.start == last.end && s.end <= batch.end); /* gapless, inside its batch */
            posts += strcmp(s.name, "mpi_post") == 0;
            leaves++;
            last = s;
        }
    }
    assert_true(last.end == batch.end);
    assert_int_equal(batches, 3);
    assert_int_equal(posts, 3);
    assert_true(leaves >= 3 * 4);
    json_decref(root);
    gw_trace_close();
}

/* Batch 7 counts, the settling after it does not, and batch 8 follows. */
static void test_between_steps(void **state) {
    assert_int_equal(gw_trace_open(1000, MPI_COMM_SELF), GW_OK);
    static const int steps[] = {7, 0, 8};
    for (int i = 0; i < 3; i++) {
        gw_trace_step(steps[i]);
        one_batch();
    }
    json_t *root = written();
    int seen = 0;
    size_t i;
    json_t *e;
    json_array_foreach(json_object_get(root, "traceEvents"), i, e) {
        bool batch = strcmp(text(e, "cat"), "batch") == 0;
        if (!batch && strcmp(text(e, "cat"), "between") != 0)
            continue;
        assert_int_equal(batch ? arg(e, "step") : 0, steps[seen]);
        seen++;
    }
    assert_int_equal(seen, 3);
    json_decref(root);
    gw_trace_close();
}

static void test_flights(void **state) {
    assert_int_equal(gw_trace_open(1000, MPI_COMM_SELF), GW_OK);
    for (int i = 0; i < 5; i++)
        one_batch();
    json_t *root = written();
    int flights = 0;
    long long last = 0;
    size_t i;
    json_t *e;
    json_array_foreach(json_object_get(root, "traceEvents"), i, e) {
        if (!is_slice(e, REQUESTS))
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

/* What is left of the ring begins with a whole batch. */
static void test_full_ring_drops_the_oldest(void **state) {
    enum { ROOM = 12, BATCHES = 20 };
    assert_int_equal(gw_trace_open(ROOM, MPI_COMM_SELF), GW_OK);
    for (int i = 0; i < BATCHES; i++)
        one_batch();
    json_t *root = written();
    int kept = 0;
    json_int_t newest = 0;
    size_t i;
    json_t *e;
    json_array_foreach(json_object_get(root, "traceEvents"), i, e) {
        if (!is_slice(e, MAIN))
            continue;
        assert_true(kept > 0 || strcmp(text(e, "cat"), "batch") == 0);
        kept++;
        newest = arg(e, "step") > newest ? arg(e, "step") : newest;
    }
    assert_in_range(kept, ROOM / 2, ROOM); /* but for what is left of one batch */
    assert_int_equal(newest, BATCHES);
    assert_true(dropped(root, "dropped_slices") >= BATCHES * 5 - ROOM);
    assert_int_equal(dropped(root, "dropped_flights"), BATCHES - ROOM);
    json_decref(root);
    one_batch(); /* the trace continues, without its own messages */
    root = written();
    assert_int_equal(dropped(root, "dropped_flights"), BATCHES + 1 - ROOM);
    json_decref(root);
    gw_trace_close();
}

static void tell(gw_exchange_event event, int schedule, uint64_t run) {
    const gw_exchange x = {
        .lane = 2, .schedule = schedule, .run = run, .off = 10, .n = 5, .name = "grad\"ients\n"};
    gw_exchange_tell(event, &x);
}

/* What test_exchanges expects, in the order of time. */
typedef struct told {
    const char *ph;
    int schedule, run, open; /* open: the counter behind it */
} told;

static void test_exchanges(void **state) {
    static const told want[] = {{"b", 0, 1, 1}, {"b", 1, 1, 2}, {"e", 0, 1, 1},
                                {"b", 0, 2, 2}, {"e", 1, 1, 1}, {"e", 0, 2, 0}};
    assert_int_equal(gw_trace_open(1000, MPI_COMM_SELF), GW_OK);
    tell(GW_EXCHANGE_DONE, 5, 1); /* began before the trace, so it is unknown */
    for (int i = 0; i < 6; i++) {
        bool begin = *want[i].ph == 'b';
        spin(2e-6);
        tell(begin ? GW_EXCHANGE_START : GW_EXCHANGE_DONE, want[i].schedule, (uint64_t)want[i].run);
    }
    tell(GW_EXCHANGE_START, 3, 1); /* never ends, so it is not written */
    json_t *root = written();
    int seen = 0, counted = 0;
    char id[8][32];
    size_t i;
    json_t *e;
    json_array_foreach(json_object_get(root, "traceEvents"), i, e) {
        const char *ph = text(e, "ph");
        if (strcmp(ph, "C") == 0) {
            assert_int_equal(arg(e, "in flight"), want[counted++].open);
            continue;
        }
        if (strcmp(ph, "b") != 0 && strcmp(ph, "e") != 0)
            continue;
        const told *w = &want[seen++];
        assert_string_equal(ph, w->ph);
        assert_string_equal(text(e, "name"), "grad?ients? [10,+5)");
        if (*ph == 'b') {
            snprintf(id[w->schedule], sizeof *id, "%s", text(e, "id"));
            assert_int_equal(arg(e, "run"), w->run);
            assert_int_equal(arg(e, "bytes"), 20);
        }
        assert_string_equal(text(e, "id"), id[w->schedule]);
    }
    assert_int_equal(seen, 6);
    assert_int_equal(counted, 6);
    assert_string_not_equal(id[0], id[1]);
    json_decref(root);
    gw_trace_close();
}

static void test_waits(void **state) {
    gw_batch_cost c;
    assert_int_equal(gw_trace_open(1000, MPI_COMM_SELF), GW_OK);
    gw_trace_step(3);
    gw_ledger_begin();
    tell(GW_EXCHANGE_START, 0, 9);
    gw_phase_enter(GW_PHASE_MPI_WAIT);
    tell(GW_EXCHANGE_BLOCK, 0, 9);
    spin(30e-6);
    tell(GW_EXCHANGE_DONE, 0, 9);
    tell(GW_EXCHANGE_UNBLOCK, 0, 9);
    gw_phase_leave();
    gw_ledger_end(&c);
    json_t *root = written();
    int waits = 0;
    size_t i;
    json_t *e;
    json_array_foreach(json_object_get(root, "traceEvents"), i, e) {
        if (!is_slice(e, WAITS))
            continue;
        slice s = slice_of(e);
        assert_true(s.end - s.start >= 29000);
        assert_int_equal(arg(e, "run"), 9);
        assert_int_equal(arg(e, "step"), 3);
        waits++;
    }
    assert_int_equal(waits, 1);
    json_decref(root);
    gw_trace_close();
}

/* More exchanges than can be told apart, and than the ring holds. */
static void test_too_many_exchanges(void **state) {
    enum { MANY = 3000, ROOM = 400 };
    assert_int_equal(gw_trace_open(ROOM, MPI_COMM_SELF), GW_OK);
    for (int i = 0; i < MANY; i++)
        tell(GW_EXCHANGE_START, i, 1);
    for (int i = 0; i < MANY; i++)
        tell(GW_EXCHANGE_DONE, i, 1);
    json_t *root = written();
    int begun = 0, ended = 0;
    size_t i;
    json_t *e;
    json_array_foreach(json_object_get(root, "traceEvents"), i, e) {
        begun += strcmp(text(e, "ph"), "b") == 0;
        ended += strcmp(text(e, "ph"), "e") == 0;
    }
    assert_int_equal(begun, ROOM / 4);
    assert_int_equal(ended, begun);
    assert_int_equal(dropped(root, "dropped_exchanges"), MANY - begun);
    json_decref(root);
    gw_trace_close();
}

static void *code_aside(void *unused) {
    for (int i = 0; i < 50; i++) {
        gw_phase_enter(GW_PHASE_ENCODE);
        spin_in(GW_PHASE_DECODE, 3e-6); /* inside: belongs to the outer one */
        gw_phase_leave();
        gw_phase_enter(GW_PHASE_MPI_POLL); /* no codec: not told */
        gw_phase_leave();
    }
    return unused;
}

/* Encoding on the main thread and two others at once: a track each, none lost. */
static void test_codec_tracks(void **state) {
    gw_batch_cost c;
    pthread_t threads[2];
    assert_int_equal(gw_trace_open(1000, MPI_COMM_SELF), GW_OK);
    gw_ledger_begin();
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, code_aside, NULL), 0);
    for (int i = 0; i < 50; i++) {
        spin_in(GW_PHASE_DECODE, 3e-6);
    }
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    gw_ledger_end(&c);
    json_t *root = written();
    int runs[ASIDE + 2] = {0};
    long long last[ASIDE + 2] = {0}, decode = 0;
    size_t i;
    json_t *e;
    json_array_foreach(json_object_get(root, "traceEvents"), i, e) {
        for (int track = CODEC; track < ASIDE + 2; track++) {
            if (!is_slice(e, track))
                continue;
            slice s = slice_of(e);
            assert_true(s.start >= last[track]);
            assert_string_equal(s.name, track == CODEC ? "decode" : "encode");
            last[track] = s.end;
            decode += track == CODEC ? s.end - s.start : 0;
            runs[track]++;
        }
    }
    assert_int_equal(runs[CODEC], 50);
    assert_int_equal(runs[ASIDE], 50);
    assert_int_equal(runs[ASIDE + 1], 50);
    assert_true(fabs((double)decode * 1e-9 - c.phase_s[GW_PHASE_DECODE]) <=
                1e-3 * c.phase_s[GW_PHASE_DECODE] + 100e-9);
    json_decref(root);
    gw_trace_close();
}

/* Counters of a batch, at its start; a missing one is left out. */
static void test_figures(void **state) {
    static const char *const names[] = {"PAPI_TOT_CYC", "PAPI_TOT_INS"};
    gw_record *record;
    gw_batch_parts parts = {.counts = gw_batch_no_counts, .split = gw_batch_no_split};
    gw_batch_row row = gw_batch_row_of(&parts);
    assert_int_equal(gw_trace_open(1000, MPI_COMM_SELF), GW_OK);
    assert_int_equal(gw_record_open(&record, 1, false, MPI_COMM_SELF), GW_OK);
    gw_record_counters(record, names, 2);
    gw_trace_counters(record);
    gw_record_abandon(record);
    one_batch();
    row.cost.wire_bytes = 1234567890123;
    row.cost.phase_s[GW_PHASE_FORWARD] = 3;
    row.cost.phase_s[GW_PHASE_UPDATE] = 1;
    row.split.memory_ctr_s = 1;
    row.counter[1] = 42;
    gw_trace_row(&row);
    json_t *root = written();
    int wire = 0, share = 0, others = 0;
    long long batch = -1;
    size_t i;
    json_t *e;
    json_array_foreach(json_object_get(root, "traceEvents"), i, e) {
        if (strcmp(text(e, "cat"), "batch") == 0)
            batch = slice_of(e).start;
        if (strcmp(text(e, "ph"), "C") != 0)
            continue;
        const json_t *args = json_object_get(e, "args");
        assert_int_equal(json_object_size(args), 1);
        assert_int_equal(slice_of(e).start, batch);
        if (strcmp(text(e, "name"), "wire") == 0)
            wire += arg(e, "bytes") == 1234567890123;
        else if (strcmp(text(e, "name"), "memory-bound share") == 0)
            share += json_number_value(json_object_get(args, "ctr")) == 0.25;
        else
            others += strcmp(text(e, "name"), names[1]) == 0 && arg(e, "count") == 42;
    }
    assert_int_equal(wire, 1);
    assert_int_equal(share, 1);
    assert_int_equal(others, 1);
    json_decref(root);
    gw_trace_close();
    gw_trace_row(&row); /* no trace: nothing happens */
}

static void test_closed_trace_listens_no_more(void **state) {
    gw_trace_close();
    one_batch(); /* nothing to write to: must not crash */
    assert_int_equal(gw_trace_write(folder, the_clock, MPI_COMM_SELF), GW_ERR_INTERNAL);
    assert_int_equal(gw_trace_open(0, MPI_COMM_SELF), GW_ERR_USAGE);
}

static void test_unwritable_folder(void **state) {
    assert_int_equal(gw_trace_open(10, MPI_COMM_SELF), GW_OK);
    assert_fails(gw_trace_write("/nonexistent/folder", the_clock, MPI_COMM_SELF), GW_ERR_INPUT,
                 "/nonexistent/folder/trace.json");
    gw_trace_close();
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    gw_ledger_start();
    if (gw_sync_open(&the_clock, NULL, MPI_COMM_SELF) != GW_OK)
        return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_slices_nest),
        cmocka_unit_test(test_between_steps),
        cmocka_unit_test(test_flights),
        cmocka_unit_test(test_full_ring_drops_the_oldest),
        cmocka_unit_test(test_exchanges),
        cmocka_unit_test(test_waits),
        cmocka_unit_test(test_too_many_exchanges),
        cmocka_unit_test(test_codec_tracks),
        cmocka_unit_test(test_figures),
        cmocka_unit_test(test_closed_trace_listens_no_more),
        cmocka_unit_test(test_unwritable_folder),
    };
    int failed = cmocka_run_group_tests(tests, make_folder, remove_folder);
    gw_sync_close(the_clock);
    MPI_Finalize();
    return failed;
}
