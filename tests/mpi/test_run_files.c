/* batches.csv and trace.json of several ranks: rows in order, slices on one clock. */
#include "base/file.h"
#include "prof/record.h"
#include "trace/trace.h"

#include "../timed.h"
#include "check.h"

#include <jansson.h>
#include <math.h>
#include <string.h>

enum { N = 3 * 4 * 1000 }; /* floats: divides by every number of ranks */

static float in[N], out[N];

/* Index of a column of the header line. */
static int column(const char *header, const char *name) {
    size_t len = strlen(name);
    for (int i = 0;; i++) {
        size_t width = strcspn(header, ",");
        if (width == len && memcmp(header, name, len) == 0)
            return i;
        CHECK(header[width], "no column %s", name);
        header += width + 1;
    }
}

/* Number in column i of a row; a blank is NaN. */
static double cell(const char *row, int i) {
    while (i-- > 0)
        row = strchr(row, ',') + 1;
    return *row == ',' || !*row ? NAN : strtod(row, NULL);
}

static int commas(const char *line) {
    int n = 0;
    for (; *line; line++)
        n += *line == ',';
    return n;
}

/* Rows of one file line up: in order, complete, and their parts add up as written. */
static void check_rows(const char *path, int steps) {
    char *text = NULL;
    size_t len;
    CHECK(gw_file_read(path, 1 << 20, &text, &len) == GW_OK, "%s", gw_err_text());
    char *header = strtok(text, "\n");
    for (int step = 1; step <= steps; step++)
        for (int r = 0; r < ranks; r++) {
            const char *row = strtok(NULL, "\n");
            CHECK(row, "step %d of rank %d is missing", step, r);
            CHECK(commas(row) == commas(header), "columns of '%s'", row);
            CHECK(cell(row, column(header, "rank")) == r &&
                      cell(row, column(header, "step")) == step,
                  "not rank %d, step %d: %s", r, step, row);
            double parts = 0, wall = cell(row, column(header, "wall_s"));
            for (int p = 0; p < GW_PHASES; p++) {
                char name[32];
                snprintf(name, sizeof name, "%s_s", gw_phase_name((gw_phase)p));
                parts += cell(row, column(header, name));
            }
            CHECK(fabs(parts - wall) < 1e-9, "parts %.12g, wall %.12g", parts, wall);
        }
    CHECK(strtok(NULL, "\n") == NULL, "more rows than steps");
    free(text);
}

static void test_batches_csv(const char *dir) {
    enum { STEPS = 12 };
    gw_record *record;
    gw_rows *files;
    CHECK(gw_rows_new(&files, dir, false) == GW_OK, "%s", gw_err_text());
    CHECK(gw_record_open(&record, 5, false, MPI_COMM_WORLD) == GW_OK, "%s", gw_err_text());
    CHECK(gw_record_begin(record, files) == GW_OK, "%s", gw_err_text());
    for (int step = 1; step <= STEPS; step++) {
        gw_batch_parts parts = {.rank = me,
                                .epoch = 1,
                                .step = step,
                                .samples = 4,
                                .loss_sum = 2,
                                .logical_bytes = N * sizeof(float)};
        gw_ledger_begin();
        spin_in(GW_PHASE_FORWARD, 0.0002);
        MPI_Allreduce(in, out, N, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
        gw_ledger_end(&parts.cost);
        gw_batch_row row = gw_batch_row_of(&parts);
        CHECK(gw_record_push(record, &row) == GW_OK, "%s", gw_err_text());
        if (step % 5 == 0)
            CHECK(gw_record_flush(record) == GW_OK, "%s", gw_err_text());
    }
    CHECK(gw_record_flush(record) == GW_OK, "%s", gw_err_text());
    gw_batch_summary s;
    gw_record_summary(record, &s);
    if (me == 0) {
        double wire = 2.0 * (ranks - 1) / ranks * N * sizeof(float);
        CHECK(s.batches == STEPS, "%lld", (long long)s.batches);
        CHECK(s.wall_s > 0.0002 && s.inflight_s == 0, "wall %g, in flight %g", s.wall_s,
              s.inflight_s);
        CHECK(fabs(s.wire_bytes - wire) < 1, "%g bytes, not %g", s.wire_bytes, wire);
    } else {
        CHECK(s.batches == 0, "only rank 0 knows");
    }
    CHECK(gw_record_close(record) == GW_OK, "%s", gw_err_text());
    gw_rows_close(files);
    if (me == 0) {
        char path[128];
        snprintf(path, sizeof path, "%s/batches.csv", dir);
        check_rows(path, STEPS);
        unlink(path);
    }
}

static void test_record_errors_reach_all(void) {
    gw_record *record;
    gw_rows *files;
    CHECK(gw_rows_new(&files, "/nonexistent/folder", false) == GW_OK, "%s", gw_err_text());
    CHECK(gw_record_open(&record, 5, false, MPI_COMM_WORLD) == GW_OK, "%s", gw_err_text());
    gw_err e = gw_record_begin(record, files);
    CHECK(e == GW_ERR_INPUT && strstr(gw_err_text(), "/nonexistent"), "%d %s", e, gw_err_text());
    gw_record_abandon(record);
    gw_rows_close(files);
}

/* apart: as if each rank were its own host, whose clock is known only by measuring. */
static void test_trace(const char *dir, bool apart) {
    enum { STEPS = 6 };
    double wall[STEPS], walls[4][STEPS], error_us = 0;
    gw_sync *sync;
    CHECK(gw_sync_open(&sync, &(gw_sync_setup){.apart = apart}, MPI_COMM_WORLD) == GW_OK, "%s",
          gw_err_text());
    CHECK(gw_trace_open(500, MPI_COMM_WORLD) == GW_OK, "%s", gw_err_text());
    for (int step = 1; step <= STEPS; step++) {
        gw_batch_cost c;
        gw_ledger_begin();
        spin_in(GW_PHASE_FORWARD, 0.0002);
        MPI_Barrier(MPI_COMM_WORLD);
        gw_ledger_end(&c);
        wall[step - 1] = c.wall_s;
        /* Measurements close together give a poor rate, which must not change the slices'
         * lengths. */
        CHECK(gw_sync_again(sync) == GW_OK, "%s", gw_err_text());
        error_us = apart ? fmax(error_us, 10e6 * gw_sync_error(sync)) : 0;
    }
    MPI_Gather(wall, STEPS, MPI_DOUBLE, walls, STEPS, MPI_DOUBLE, 0, MPI_COMM_WORLD);
    CHECK(gw_trace_write(dir, sync, MPI_COMM_WORLD) == GW_OK, "%s", gw_err_text());
    gw_trace_close();
    gw_sync_close(sync);
    if (me != 0)
        return;
    char path[128];
    snprintf(path, sizeof path, "%s/trace.json", dir);
    json_t *root = json_load_file(path, 0, NULL), *e;
    CHECK(root, "trace.json does not parse");
    int batches[4] = {0};
    double start[4][STEPS], end[4][STEPS];
    size_t i;
    json_array_foreach(json_object_get(root, "traceEvents"), i, e) {
        json_t *step = json_object_get(json_object_get(e, "args"), "step");
        if (!step)
            continue;
        int who = (int)json_integer_value(json_object_get(e, "pid"));
        int k = batches[who]++;
        CHECK(who < ranks && k + 1 == json_integer_value(step), "rank %d step %d", who, k + 1);
        double us = json_number_value(json_object_get(e, "dur"));
        start[who][k] = json_number_value(json_object_get(e, "ts"));
        end[who][k] = start[who][k] + us;
        CHECK(fabs(us - 1e6 * walls[who][k]) <= 1e3 * walls[who][k] + 2e-3,
              "rank %d step %d: %g us, by its own clock %g s", who, k + 1, us, walls[who][k]);
    }
    for (int a = 0; a < ranks; a++) {
        CHECK(batches[a] == STEPS, "rank %d has %d batches", a, batches[a]);
        /* A barrier ends each batch: on one clock, no rank leaves before the last has arrived. */
        for (int b = 0; b < ranks; b++)
            for (int k = 0; k < STEPS; k++)
                CHECK(end[a][k] > start[b][k] - error_us,
                      "rank %d ends step %d at %g us, %d starts at %g", a, k + 1, end[a][k], b,
                      start[b][k]);
    }
    json_decref(root);
    unlink(path);
}

int main(int argc, char **argv) {
    char dir[] = "/tmp/gradwire-rows-XXXXXX";
    check_start(argc, argv);
    CHECK(ranks <= 4, "made for 1 to 4 ranks");
    if (me == 0)
        CHECK(mkdtemp(dir), "no temporary folder");
    test_batches_csv(dir);
    test_record_errors_reach_all();
    test_trace(dir, false);
    test_trace(dir, true);
    if (me == 0)
        rmdir(dir);
    MPI_Finalize();
    return 0;
}
