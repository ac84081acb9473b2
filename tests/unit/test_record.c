#include "prof/record.h"

#include "base/file.h"

#include "folder.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char path[64];

static const char header[] =
    "rank,epoch,step,samples,loss,t_start_s,wall_s,data_s,forward_s,backward_s,recompute_s,"
    "update_s,core_ctr_s,memory_ctr_s,core_twin_s,memory_twin_s,core_model_lo_s,core_model_hi_s,"
    "memory_model_lo_s,memory_model_hi_s,encode_s,decode_s,memory_codec_ctr_s,"
    "memory_codec_twin_s,mpi_post_s,mpi_poll_s,mpi_wait_s,wait_skew_s,transfer_s,checkpoint_s,"
    "other_s,inflight_s,injected_s,logical_bytes,"
    "wire_bytes,messages,collectives,cpu_s,nivcsw,minflt,clock_err_s,source,interrupted,"
    "sde:::a,cycles\n";
enum { COLUMNS = 45 };

static gw_batch_row blank_row(void) {
    gw_batch_parts parts = {.counts = gw_batch_no_counts, .split = gw_batch_no_split};
    return gw_batch_row_of(&parts);
}

/* Row `step`, all fields different; walls are 1, 2, 3, ... ms. */
static gw_batch_row sample_row(int64_t step) {
    gw_batch_row row = blank_row();
    row.epoch = 1;
    row.step = step;
    row.samples = 32;
    row.loss = 2.5 / (double)step;
    row.logical_bytes = 4000;
    row.source = GW_SPLIT_CTR;
    row.counter[1] = 1234567890123;
    for (int p = 0; p < GW_PHASES; p++) {
        row.cost.phase_s[p] = (double)step * 1e-3 / GW_PHASES;
        row.cost.wall_s += row.cost.phase_s[p];
    }
    row.cost.start_s = 0.25;
    row.cost.cpu_s = (double)step * 1e-3;
    row.cost.inflight_s = 1e-4;
    row.cost.wire_bytes = 1000 + (uint64_t)step;
    row.cost.messages = 7;
    row.cost.collectives = 3;
    row.cost.minflt = 11;
    row.wait_skew_s = (double)step * 1e-5;
    row.transfer_s = (double)step * 2e-5;
    row.skew_s[1] = (double)step * 1e-5;
    row.cost.dim[2] = (gw_dim_cost){.comm_s = (double)step * 3e-5, .bytes = 500, .messages = 7};
    return row;
}

static gw_record *open_counting(gw_rows *files) {
    gw_record *r;
    assert_int_equal(gw_record_open(&r, 4, false, MPI_COMM_SELF), GW_OK);
    gw_record_counters(r, (const char *[]){"sde:::a", "cycles"}, 2);
    assert_int_equal(gw_record_begin(r, files), GW_OK);
    return r;
}

static void test_round_trip(void **state) {
    gw_rows *files;
    assert_int_equal(gw_rows_new(&files, folder, false), GW_OK);
    gw_record *r = open_counting(files);
    for (int64_t step = 1; step <= 10; step++) {
        gw_batch_row row = sample_row(step);
        if (step == 3)
            row.loss = NAN;
        assert_int_equal(gw_record_push(r, &row), GW_OK);
        if (step % 4 == 0)
            assert_int_equal(gw_record_flush(r), GW_OK);
    }
    assert_int_equal(access(path, F_OK), -1); /* no name before the close */
    assert_int_equal(gw_record_close(r), GW_OK);
    gw_rows_close(files);
    FILE *in = fopen(path, "r");
    assert_non_null(in);
    char line[1024], lead[64];
    assert_non_null(fgets(line, sizeof line, in));
    assert_string_equal(line, header);
    for (int step = 1; step <= 10; step++) {
        assert_non_null(fgets(line, sizeof line, in));
        snprintf(lead, sizeof lead, "0,1,%d,32,%s", step, step == 3 ? ",0.25," : "");
        assert_memory_equal(line, lead, strlen(lead));
        int commas = 0;
        for (const char *c = line; *c; c++)
            commas += *c == ',';
        assert_int_equal(commas, COLUMNS - 1);
        snprintf(lead, sizeof lead, ",4000,%d,7,3,%g,0,11,,ctr,0,,1234567890123\n", 1000 + step,
                 step * 1e-3);
        assert_string_equal(line + strlen(line) - strlen(lead), lead);
    }
    assert_null(fgets(line, sizeof line, in));
    fclose(in);
    unlink(path);
}

/* Memory does not grow with the run. Of walls 1..n the middle half of the blocks counts, in pieces
 * of many steps. */
static void test_long_run(void **state) {
    enum { STEPS = 500000 };
    gw_record *r;
    gw_batch_summary s;
    gw_record_rank one;
    assert_int_equal(gw_record_open(&r, 1000, false, MPI_COMM_SELF), GW_OK);
    for (int64_t step = 1; step <= STEPS; step++) {
        gw_batch_row row = blank_row();
        row.step = step;
        row.cost.wall_s = (double)step;
        row.transfer_s = step == 7 ? NAN : 1;
        assert_int_equal(gw_record_push(r, &row), GW_OK);
        if (step % 1000 == 0)
            assert_int_equal(gw_record_flush(r), GW_OK);
    }
    gw_record_summary(r, &s);
    assert_int_equal(s.batches, STEPS - GW_RECORD_WARMUP);
    assert_true(fabs(s.wall_s / (0.5 * STEPS) - 1) < 1e-3);
    assert_true(s.transfer_s == 1);
    assert_true(isnan(s.waiting_s));
    gw_record_ranks(r, false, &one);
    assert_true(fabs(one.wall_s / (0.5 * (STEPS + 1.0)) - 1) < 1e-9);
    assert_true(isnan(one.transfer_s));
    gw_record_ranks(r, true, &one);
    assert_true(one.transfer_s == 1);
    gw_record_abandon(r);
}

static void test_full_buffer(void **state) {
    gw_record *r;
    gw_batch_row row = sample_row(1);
    assert_int_equal(gw_record_open(&r, 1, false, MPI_COMM_SELF), GW_OK);
    assert_int_equal(gw_record_push(r, &row), GW_OK);
    assert_int_equal(gw_record_push(r, &row), GW_ERR_INTERNAL);
    assert_int_equal(gw_record_close(r), GW_OK);
}

static void test_summary(void **state) {
    gw_record *r;
    gw_batch_summary s;
    assert_int_equal(gw_record_open(&r, 2000, true, MPI_COMM_SELF), GW_OK);
    gw_record_summary(r, &s);
    assert_int_equal(s.batches, 0);
    assert_true(isnan(s.split.memory_ctr_s));
    for (int64_t step = 1; step <= 1500; step++) {
        gw_batch_row row = sample_row(step);
        row.interrupted = step % 5 == 0;
        if (step % 2 == 0) /* the others counted something else */
            row.split.memory_ctr_s = 1e-3 * (double)step;
        assert_int_equal(gw_record_push(r, &row), GW_OK);
    }
    assert_int_equal(gw_record_flush(r), GW_OK);
    gw_record_summary(r, &s); /* of steps 11..1500 the middle half, 383..1127 */
    assert_int_equal(s.batches, 1490);
    assert_true(fabs(s.wall_s - 0.755) < 1e-9);
    double parts = 0;
    for (int p = 0; p < GW_PHASES; p++)
        parts += s.phase_s[p];
    assert_true(fabs(parts - s.wall_s) < 1e-9);
    assert_true(fabs(s.inflight_s - 1e-4) < 1e-9);
    assert_true(fabs(s.split.memory_ctr_s - 0.755) < 1e-9); /* of 384, 386, .. 1126 */
    assert_true(fabs(s.wire_bytes - 1755) < 1e-6);
    assert_true(fabs(s.logical_bytes - 4000) < 1e-6);
    assert_true(fabs(s.interrupted - 0.2) < 1e-9);
    assert_true(fabs(s.waiting_s - 0.00755) < 1e-9);
    assert_true(fabs(s.transfer_s - 0.0151) < 1e-9);
    assert_true(fabs(s.dim_waiting_s[1] - 0.00755) < 1e-9 && isnan(s.dim_waiting_s[0]));
    assert_true(fabs(s.dim_comm_s[2] - 0.02265) < 1e-9 && s.dim_comm_s[1] == 0);
    assert_true(s.dim_bytes[2] == 500 && s.dim_messages[2] == 7 && s.dim_bytes[0] == 0);
    gw_record_rank one;
    gw_record_ranks(r, false, &one);
    assert_true(fabs(one.wall_s - 0.7505) < 1e-9);
    assert_true(fabs(one.compute_s - 0.7505 * 4 / GW_PHASES) < 1e-9);
    gw_record_ranks(r, true, &one); /* steps 11..1500 */
    assert_true(fabs(one.waiting_s - 0.007555) < 1e-9);
    assert_true(fabs(one.transfer_s - 0.01511) < 1e-9);
    assert_true(fabs(one.own_s - 0.7555 * (GW_PHASES - 3) / GW_PHASES) < 1e-9);
    gw_record_abandon(r);
}

static void test_abandon_leaves_nothing(void **state) {
    gw_rows *files;
    gw_batch_row row = sample_row(1);
    assert_int_equal(gw_rows_new(&files, folder, false), GW_OK);
    gw_record *r = open_counting(files);
    assert_int_equal(gw_record_push(r, &row), GW_OK);
    assert_int_equal(gw_record_flush(r), GW_OK);
    gw_record_abandon(r);
    gw_record_abandon(NULL);
    gw_rows_close(files);
    assert_int_equal(access(path, F_OK), -1);
    assert_int_equal(gw_rows_new(&files, "/nonexistent/folder", false), GW_OK);
    assert_int_equal(gw_record_open(&r, 4, false, MPI_COMM_SELF), GW_OK);
    assert_fails(gw_record_begin(r, files), GW_ERR_INPUT, "/nonexistent/folder/batches.csv");
    gw_record_abandon(r);
    gw_rows_close(files);
}

/* Step 6 of 12 is saved; two more are written and lost. The second start adds what a single start
 * would have, and so does the summary over both. */
static void push_steps(gw_record *r, int64_t from, int64_t to) {
    for (int64_t step = from; step <= to; step++) {
        gw_batch_row row = sample_row(step);
        row.source = step > 6 ? GW_SPLIT_NONE : GW_SPLIT_CTR;
        row.split.memory_ctr_s = step % 3 ? NAN : 1e-4;
        row.loss = step == 2 ? INFINITY : step == 3 ? NAN : row.loss;
        assert_int_equal(gw_record_push(r, &row), GW_OK);
        assert_int_equal(gw_record_flush(r), GW_OK);
    }
}

static json_t *first_start(void) {
    gw_rows *files;
    json_t *marks;
    assert_int_equal(gw_rows_new(&files, folder, true), GW_OK);
    gw_record *r = open_counting(files);
    push_steps(r, 1, 6);
    assert_int_equal(gw_rows_mark(files, &marks), GW_OK);
    push_steps(r, 7, 8);
    gw_record_abandon(r);
    gw_rows_close(files);
    return marks;
}

static gw_rows *resumed_files(json_t *marks) {
    gw_rows *files;
    assert_int_equal(gw_rows_new(&files, folder, true), GW_OK);
    assert_int_equal(gw_rows_resume(files, NULL, marks, NULL), GW_OK);
    return files;
}

/* Up to the digits of the file. */
static void assert_same_summary(gw_record *a, gw_record *b) {
    gw_batch_summary one, other;
    gw_record_summary(a, &one);
    gw_record_summary(b, &other);
    assert_int_equal(one.batches, 12);
    assert_int_equal(other.batches, 12);
    assert_int_equal(one.source, other.source);
    for (size_t i = 0; i < sizeof one.figure / sizeof *one.figure; i++) {
        double x = one.figure[i], y = other.figure[i];
        assert_true(isnan(x) ? isnan(y) : fabs(x - y) <= 1e-10 * fabs(x));
    }
    assert_true(one.wire_bytes == other.wire_bytes && one.logical_bytes == other.logical_bytes);
}

static void test_goes_on(void **state) {
    gw_record *whole;
    gw_record_rank ranks;
    char *data;
    size_t len;
    json_t *marks = first_start();
    gw_rows *files = resumed_files(marks);
    gw_record *r = open_counting(files);
    push_steps(r, 7, 12);
    assert_int_equal(gw_record_open(&whole, 4, false, MPI_COMM_SELF), GW_OK);
    push_steps(whole, 1, 12);
    assert_same_summary(r, whole);
    gw_record_ranks(r, false, &ranks); /* of this start alone: steps 7..12 */
    assert_true(fabs(ranks.wall_s - 0.0095) < 1e-12);
    gw_record_abandon(whole);
    assert_int_equal(gw_record_close(r), GW_OK);
    gw_rows_close(files);
    assert_int_equal(gw_file_read(path, 1 << 20, &data, &len), GW_OK);
    char *line = strtok(data, "\n");
    for (int step = 1; step <= 12; step++) {
        char lead[32];
        snprintf(lead, sizeof lead, "0,1,%d,", step);
        assert_non_null(line = strtok(NULL, "\n"));
        assert_memory_equal(line, lead, strlen(lead));
    }
    assert_null(strtok(NULL, "\n"));
    free(data);
    json_decref(marks);
    unlink(path);
}

/* A file with other columns, or without rows, is not continued. */
static void test_refuses_rows(void **state) {
    gw_record *r;
    char part[80], *data;
    size_t len;
    json_t *marks = first_start();
    gw_rows *files = resumed_files(marks);
    snprintf(part, sizeof part, "%s.part", path);
    assert_int_equal(gw_file_read(part, 1 << 20, &data, &len), GW_OK);
    assert_int_equal(gw_record_open(&r, 4, false, MPI_COMM_SELF), GW_OK);
    gw_record_counters(r, (const char *[]){"cycles"}, 1);
    assert_fails(gw_record_begin(r, files), GW_ERR_INPUT, "columns");
    gw_record_abandon(r);
    gw_rows_close(files);
    char *now;
    size_t now_len;
    assert_int_equal(gw_file_read(part, 1 << 20, &now, &now_len), GW_OK);
    assert_int_equal(now_len, len); /* nothing was cut off */
    free(now);
    /* A changed comma, digit, line end or step: each is noticed. */
    char *second = strchr(strchr(data, '\n') + 1, '\n') + 1;
    static const struct {
        int at;
        char c;
    } damage[] = {{1, ';'}, {4, 'x'}, {4, '9'}, {4, '0'}, {-1, ' '}};
    for (size_t i = 0; i < sizeof damage / sizeof *damage; i++) {
        char kept = second[damage[i].at];
        second[damage[i].at] = damage[i].c;
        put_bytes("batches.csv.part", data, len);
        second[damage[i].at] = kept;
        files = resumed_files(marks);
        assert_int_equal(gw_record_open(&r, 4, false, MPI_COMM_SELF), GW_OK);
        gw_record_counters(r, (const char *[]){"sde:::a", "cycles"}, 2);
        assert_fails(gw_record_begin(r, files), GW_ERR_INPUT, "batches.csv, line ");
        gw_record_abandon(r);
        gw_rows_close(files);
    }
    free(data);
    json_decref(marks);
    unlink(part);
}

static void test_interrupted(void **state) {
    gw_batch_parts p = {.cost = sample_row(1).cost};
    gw_batch_cost *c = &p.cost;
    assert_int_equal(gw_batch_row_of(&p).interrupted, 0);
    c->nivcsw = 1;
    assert_int_equal(gw_batch_row_of(&p).interrupted, 1);
    c->nivcsw = 0;
    c->cpu_s = c->wall_s - c->phase_s[GW_PHASE_MPI_WAIT]; /* asleep while it waited: fine */
    assert_int_equal(gw_batch_row_of(&p).interrupted, 0);
    c->cpu_s = 0.5 * c->wall_s; /* four phases of eleven may sleep, not half of the batch */
    assert_int_equal(gw_batch_row_of(&p).interrupted, 1);
    c->nivcsw = -1; /* not measured */
    assert_int_equal(gw_batch_row_of(&p).interrupted, -1);
}

/* A row follows from its parts: it names the best source that knows something. */
static void test_parts(void **state) {
    gw_batch_parts p = {.counts = gw_batch_no_counts, .split = gw_batch_no_split};
    gw_batch_row row = gw_batch_row_of(&p);
    assert_true(row.source == GW_SPLIT_NONE && isnan(row.loss));
    p.samples = 4;
    p.loss_sum = 10;
    p.split.memory_twin_s = 2;
    row = gw_batch_row_of(&p);
    assert_true(row.source == GW_SPLIT_TWIN_MODEL && row.loss == 2.5);
    p.counts.memory_s = 3;
    row = gw_batch_row_of(&p);
    assert_true(row.source == GW_SPLIT_CTR && row.split.memory_ctr_s == 3 &&
                row.split.memory_twin_s == 2);
    row.cost.phase_s[GW_PHASE_MPI_WAIT] = 5;
    gw_batch_row_wait(&row, &(gw_batch_wait){.start_s = 7, .waiting_s = {1}, .clock_err_s = 8});
    assert_true(row.cost.start_s == 7 && row.wait_skew_s == 1 && row.transfer_s == 4 &&
                row.clock_err_s == 8);
    row.cost.phase_s[GW_PHASE_MPI_WAIT] = NAN; /* not measured */
    gw_batch_row_wait(&row, &(gw_batch_wait){.waiting_s = {0}});
    assert_true(isnan(row.wait_skew_s) && isnan(row.transfer_s));
}

static int set_up(void **state) {
    int failed = make_folder(state);
    snprintf(path, sizeof path, "%s/batches.csv", folder);
    return failed;
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_long_run),
        cmocka_unit_test(test_full_buffer),
        cmocka_unit_test(test_summary),
        cmocka_unit_test(test_abandon_leaves_nothing),
        cmocka_unit_test(test_goes_on),
        cmocka_unit_test(test_refuses_rows),
        cmocka_unit_test(test_interrupted),
        cmocka_unit_test(test_parts),
    };
    int failed = cmocka_run_group_tests(tests, set_up, remove_folder);
    MPI_Finalize();
    return failed;
}
