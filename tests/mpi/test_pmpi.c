/* MPI's calls, charged and counted by interposition: phases, bytes against the formulas, requests
 * in flight, and what batches.csv and trace.json make of it. */
#include "check.h"

#include "base/file.h"
#include "machine/host.h"
#include "prof/clock.h"
#include "prof/record.h"
#include "trace/trace.h"

#include <jansson.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { N = 3 * 4 * 1000 }; /* floats: divides by every number of ranks */

static int rank, ranks;
static float in[N], out[4 * N];
static MPI_Status statuses[4]; /* gcc takes MPICH's MPI_STATUSES_IGNORE for a bad pointer */

static void spin(double seconds) {
    uint64_t t0 = gw_clock_ticks();
    while (gw_clock_seconds(gw_clock_ticks() - t0) < seconds)
        ;
}

static void compute(gw_phase phase, double seconds) {
    gw_phase_enter(phase);
    spin(seconds);
    gw_phase_leave();
}

static double sum(const gw_batch_cost *c) {
    double total = 0;
    for (int p = 0; p < GW_PHASES; p++)
        total += c->phase_s[p];
    return total;
}

/* Close the batch and compare its counts. */
static gw_batch_cost expect(const char *what, uint64_t bytes, uint64_t messages,
                            uint64_t collectives) {
    gw_batch_cost c;
    gw_ledger_end(&c);
    CHECK(c.wire_bytes == bytes, "%s: %llu bytes, not %llu", what, (unsigned long long)c.wire_bytes,
          (unsigned long long)bytes);
    CHECK(c.messages == messages, "%s: %llu messages, not %llu", what,
          (unsigned long long)c.messages, (unsigned long long)messages);
    CHECK(c.collectives == collectives, "%s: %llu collectives, not %llu", what,
          (unsigned long long)c.collectives, (unsigned long long)collectives);
    CHECK(fabs(sum(&c) - c.wall_s) <= 1e-9 * c.wall_s, "%s: %g against %g", what, sum(&c),
          c.wall_s);
    return c;
}

static void test_ring(void) {
    int next = (rank + 1) % ranks, before = (rank + ranks - 1) % ranks;
    MPI_Request r[3] = {MPI_REQUEST_NULL, MPI_REQUEST_NULL, MPI_REQUEST_NULL};
    gw_ledger_begin();
    MPI_Irecv(out, N, MPI_FLOAT, before, 0, MPI_COMM_WORLD, &r[0]);
    MPI_Isend(in, N, MPI_FLOAT, next, 0, MPI_COMM_WORLD, &r[2]);
    compute(GW_PHASE_BACKWARD, 0.001);
    MPI_Waitall(3, r, statuses);
    compute(GW_PHASE_FORWARD, 0.001);
    gw_batch_cost c = expect("ring", N * sizeof(float), 1, 0);
    CHECK(c.phase_s[GW_PHASE_MPI_POST] > 0 && c.phase_s[GW_PHASE_MPI_WAIT] > 0, "not charged");
    CHECK(c.phase_s[GW_PHASE_MPI_POLL] == 0, "%g s polled", c.phase_s[GW_PHASE_MPI_POLL]);
    CHECK(fabs(c.inflight_s - c.phase_s[GW_PHASE_BACKWARD]) < 1e-9, "in flight %g of backward %g",
          c.inflight_s, c.phase_s[GW_PHASE_BACKWARD]);
}

static void test_blocking_hides_nothing(void) {
    gw_ledger_begin();
    compute(GW_PHASE_BACKWARD, 0.001);
    MPI_Allreduce(in, out, N, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    MPI_Allreduce_c(in, out, N, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    compute(GW_PHASE_UPDATE, 0.001);
    uint64_t each = 2 * (uint64_t)(ranks - 1) * N * sizeof(float) / (uint64_t)ranks;
    gw_batch_cost c = expect("allreduce", 2 * each, 0, 2);
    CHECK(c.inflight_s == 0, "%g s in flight", c.inflight_s);
    CHECK(c.phase_s[GW_PHASE_MPI_WAIT] > 0, "blocking is waiting");
    CHECK(c.phase_s[GW_PHASE_MPI_POST] == 0, "nothing was posted");
}

static void test_overlap(void) {
    MPI_Request r;
    int done = 0, polls = 0;
    gw_ledger_begin();
    MPI_Iallreduce(in, out, N, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD, &r);
    while (!done) {
        compute(GW_PHASE_BACKWARD, 0.0002);
        MPI_Test(&r, &done, MPI_STATUS_IGNORE);
        polls++;
    }
    double inside = gw_ledger_now();
    compute(GW_PHASE_FORWARD, 0.002);       /* nothing is in flight any more */
    MPI_Test(&r, &done, MPI_STATUS_IGNORE); /* a null request is no completion */
    uint64_t bytes = 2 * (uint64_t)(ranks - 1) * N * sizeof(float) / (uint64_t)ranks;
    gw_batch_cost c = expect("iallreduce", bytes, 0, 1);
    CHECK(inside > c.start_s, "the ledger's time stands still");
    CHECK(c.phase_s[GW_PHASE_MPI_POLL] > 0, "%d polls not charged", polls);
    CHECK(fabs(c.inflight_s - c.phase_s[GW_PHASE_BACKWARD]) < 1e-9, "in flight %g, backward %g",
          c.inflight_s, c.phase_s[GW_PHASE_BACKWARD]);
}

/* Each way to complete requests must count each completion once. */
static void test_completions(void) {
    for (int way = 0; way < 6; way++) {
        MPI_Request r[4];
        int flag = 0, at, some, indices[4], left = 4;
        gw_ledger_begin();
        for (int i = 0; i < 2; i++) {
            MPI_Irecv(out + i, 1, MPI_FLOAT, rank, i, MPI_COMM_WORLD, &r[2 * i]);
            MPI_Isend(in + i, 1, MPI_FLOAT, rank, i, MPI_COMM_WORLD, &r[2 * i + 1]);
        }
        while (left > 0) {
            compute(GW_PHASE_FORWARD, 20e-6);
            some = 0;
            if (way == 0) {
                MPI_Waitany(4, r, &at, MPI_STATUS_IGNORE);
                some = 1;
            } else if (way == 1) {
                MPI_Testany(4, r, &at, &flag, MPI_STATUS_IGNORE);
                some = flag;
            } else if (way == 2) {
                MPI_Waitsome(4, r, &some, indices, statuses);
            } else if (way == 3) {
                MPI_Testsome(4, r, &some, indices, statuses);
            } else if (way == 4) {
                MPI_Testall(4, r, &flag, statuses);
                some = flag ? 4 : 0;
            } else {
                MPI_Wait(&r[--left], MPI_STATUS_IGNORE);
            }
            left -= some;
        }
        compute(GW_PHASE_UPDATE, 0.001); /* all are complete: hides nothing */
        gw_batch_cost c = expect("completions", 2 * sizeof(float), 2, 0);
        CHECK(fabs(c.inflight_s - c.phase_s[GW_PHASE_FORWARD]) < 1e-9, "way %d: %g, forward %g",
              way, c.inflight_s, c.phase_s[GW_PHASE_FORWARD]);
    }
}

static void test_persistent(void) {
    MPI_Request r[2];
    uint64_t bytes = 2 * (uint64_t)(ranks - 1) * N * sizeof(float) / (uint64_t)ranks;
    MPI_Allreduce_init(in, out, N, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD, MPI_INFO_NULL, &r[0]);
    MPI_Send_init(in, 8, MPI_BYTE, MPI_PROC_NULL, 0, MPI_COMM_WORLD, &r[1]);
    gw_ledger_begin();
    compute(GW_PHASE_FORWARD, 0.0005); /* inactive: not in flight */
    for (int i = 0; i < 3; i++) {
        MPI_Startall(2, r);
        compute(GW_PHASE_BACKWARD, 0.0005);
        MPI_Waitall(2, r, statuses);
        MPI_Waitall(2, r, statuses); /* inactive: completes nothing */
    }
    compute(GW_PHASE_UPDATE, 0.0005);
    MPI_Start(&r[1]);
    MPI_Wait(&r[1], MPI_STATUS_IGNORE);
    gw_batch_cost c = expect("persistent", 3 * bytes, 0, 3);
    CHECK(fabs(c.inflight_s - c.phase_s[GW_PHASE_BACKWARD]) < 1e-9, "in flight %g, backward %g",
          c.inflight_s, c.phase_s[GW_PHASE_BACKWARD]);
    MPI_Request_free(&r[0]);
    MPI_Request_free(&r[1]);
}

/* Null and inactive requests complete nothing: what else is in flight stays so. */
static void test_nothing_to_complete(void) {
    MPI_Request open, idle[2] = {MPI_REQUEST_NULL, MPI_REQUEST_NULL};
    int flag, some, at, indices[2];
    MPI_Recv_init(out, 1, MPI_FLOAT, rank, 8, MPI_COMM_WORLD, &idle[1]);
    gw_ledger_begin();
    MPI_Irecv(out, 1, MPI_FLOAT, rank, 9, MPI_COMM_WORLD, &open);
    MPI_Wait(&idle[0], MPI_STATUS_IGNORE);
    MPI_Wait(&idle[1], MPI_STATUS_IGNORE);
    MPI_Test(&idle[0], &flag, MPI_STATUS_IGNORE);
    MPI_Test(&idle[1], &flag, MPI_STATUS_IGNORE);
    MPI_Waitall(2, idle, statuses);
    MPI_Testall(2, idle, &flag, statuses);
    MPI_Waitany(2, idle, &at, MPI_STATUS_IGNORE);
    MPI_Testany(2, idle, &at, &flag, MPI_STATUS_IGNORE);
    MPI_Waitsome(2, idle, &some, indices, statuses);
    MPI_Testsome(2, idle, &some, indices, statuses);
    MPI_Request_free(&idle[1]);
    compute(GW_PHASE_FORWARD, 0.0005);
    MPI_Send(in, 1, MPI_FLOAT, rank, 9, MPI_COMM_WORLD);
    MPI_Wait(&open, MPI_STATUS_IGNORE);
    gw_batch_cost c = expect("nothing to complete", sizeof(float), 1, 0);
    CHECK(fabs(c.inflight_s - c.phase_s[GW_PHASE_FORWARD]) < 1e-9, "in flight %g, forward %g",
          c.inflight_s, c.phase_s[GW_PHASE_FORWARD]);
}

static void test_point_to_point(void) {
    int next = (rank + 1) % ranks, before = (rank + ranks - 1) % ranks, flag = 0;
    MPI_Request r;
    MPI_Status status;
    gw_ledger_begin();
    MPI_Sendrecv(in, 10, MPI_FLOAT, next, 1, out, 10, MPI_FLOAT, before, 1, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
    MPI_Send(in, 5, MPI_FLOAT, MPI_PROC_NULL, 1, MPI_COMM_WORLD); /* nothing is sent */
    MPI_Isend_c(in, 3, MPI_DOUBLE, next, 2, MPI_COMM_WORLD, &r);
    while (!flag)
        MPI_Iprobe(before, 2, MPI_COMM_WORLD, &flag, &status);
    MPI_Recv(out, 3, MPI_DOUBLE, before, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Wait(&r, MPI_STATUS_IGNORE);
    gw_batch_cost c = expect("point to point", 10 * 4 + 3 * 8, 2, 0);
    CHECK(c.phase_s[GW_PHASE_MPI_POLL] > 0, "Iprobe polls");
}

/* One call, its bytes on this rank. */
static void test_collectives(void) {
    const uint64_t p = (uint64_t)ranks, n = N * sizeof(float), part = n / p;
    int counts[4] = {0}, at[4] = {0}, own = N / ranks;
    for (int i = 0; i < ranks; i++) {
        counts[i] = own;
        at[i] = i * own;
    }
    MPI_Request r;
    gw_ledger_begin();
    MPI_Bcast(in, N, MPI_FLOAT, 0, MPI_COMM_WORLD);
    expect("bcast", (p - 1) * n / p, 0, 1);
    gw_ledger_begin();
    MPI_Reduce(in, out, N, MPI_FLOAT, MPI_SUM, 0, MPI_COMM_WORLD);
    expect("reduce", (p - 1) * n / p, 0, 1);
    gw_ledger_begin();
    MPI_Reduce_scatter_block(in, out, own, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    expect("reduce_scatter_block", (p - 1) * n / p, 0, 1);
    gw_ledger_begin();
    MPI_Reduce_scatter(in, out, counts, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    expect("reduce_scatter", (p - 1) * n / p, 0, 1);
    gw_ledger_begin();
    MPI_Iallgather(in, own, MPI_FLOAT, out, own, MPI_FLOAT, MPI_COMM_WORLD, &r);
    MPI_Wait(&r, MPI_STATUS_IGNORE);
    expect("iallgather", (p - 1) * part, 0, 1);
    gw_ledger_begin();
    MPI_Allgatherv(in, own, MPI_FLOAT, out, counts, at, MPI_FLOAT, MPI_COMM_WORLD);
    expect("allgatherv", (p - 1) * part, 0, 1);
    gw_ledger_begin();
    MPI_Gatherv(in, own, MPI_FLOAT, out, counts, at, MPI_FLOAT, 0, MPI_COMM_WORLD);
    expect("gatherv", rank == 0 ? 0 : part, 0, 1);
    gw_ledger_begin();
    MPI_Scatter(in, own, MPI_FLOAT, out, own, MPI_FLOAT, 0, MPI_COMM_WORLD);
    MPI_Scatterv(in, counts, at, MPI_FLOAT, out, own, MPI_FLOAT, 0, MPI_COMM_WORLD);
    expect("scatter(v)", rank == 0 ? 2 * (n - part) : 0, 0, 2);
    gw_ledger_begin();
    MPI_Alltoall(in, own, MPI_FLOAT, out, own, MPI_FLOAT, MPI_COMM_WORLD);
    MPI_Alltoallv(in, counts, at, MPI_FLOAT, out, counts, at, MPI_FLOAT, MPI_COMM_WORLD);
    expect("alltoall(v)", 2 * (p - 1) * part, 0, 2);
    gw_ledger_begin();
    MPI_Ibarrier(MPI_COMM_WORLD, &r);
    MPI_Wait(&r, MPI_STATUS_IGNORE);
    MPI_Barrier(MPI_COMM_WORLD);
    expect("barriers", 0, 0, 2);
}

static void *exchange_beside(void *arg) {
    MPI_Comm comm = *(MPI_Comm *)arg;
    float mine = 1, all = 0;
    MPI_Request r;
    MPI_Iallreduce(&mine, &all, 1, MPI_FLOAT, MPI_SUM, comm, &r);
    MPI_Wait(&r, MPI_STATUS_IGNORE);
    CHECK(all == (float)ranks, "%g", (double)all);
    return NULL;
}

/* Calls of another thread are counted, not timed. */
static void test_other_thread(void) {
    MPI_Comm comm;
    pthread_t thread;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    gw_ledger_begin();
    CHECK(pthread_create(&thread, NULL, exchange_beside, &comm) == 0, "no thread");
    compute(GW_PHASE_FORWARD, 0.001);
    pthread_join(thread, NULL);
    uint64_t bytes = 2 * (uint64_t)(ranks - 1) * sizeof(float) / (uint64_t)ranks;
    gw_batch_cost c = expect("other thread", bytes, 0, 1);
    CHECK(c.phase_s[GW_PHASE_MPI_POST] == 0 && c.phase_s[GW_PHASE_MPI_WAIT] == 0,
          "another thread's time was charged");
    CHECK(c.inflight_s <= c.phase_s[GW_PHASE_FORWARD], "%g", c.inflight_s);
    MPI_Comm_free(&comm);
}

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
    CHECK(gw_record_open(&record, 5, MPI_COMM_WORLD) == GW_OK, "%s", gw_err_text());
    CHECK(gw_record_begin(record, files) == GW_OK, "%s", gw_err_text());
    for (int step = 1; step <= STEPS; step++) {
        gw_batch_parts parts = {.rank = rank,
                                .epoch = 1,
                                .step = step,
                                .samples = 4,
                                .loss_sum = 2,
                                .logical_bytes = N * sizeof(float)};
        gw_ledger_begin();
        compute(GW_PHASE_FORWARD, 0.0002);
        MPI_Allreduce(in, out, N, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
        gw_ledger_end(&parts.cost);
        gw_batch_row row = gw_batch_row_of(&parts);
        CHECK(gw_record_push(record, &row) == GW_OK, "%s", gw_err_text());
        if (step % 5 == 0)
            CHECK(gw_record_flush(record) == GW_OK, "%s", gw_err_text());
    }
    CHECK(gw_record_flush(record) == GW_OK, "%s", gw_err_text());
    gw_batch_summary s;
    gw_record_summary(record, 2, &s);
    if (rank == 0) {
        double wire = 2.0 * (ranks - 1) / ranks * N * sizeof(float);
        CHECK(s.batches == STEPS - 2, "%lld", (long long)s.batches);
        CHECK(s.wall_s > 0.0002 && s.inflight_s == 0, "wall %g, in flight %g", s.wall_s,
              s.inflight_s);
        CHECK(fabs(s.wire_bytes - wire) < 1, "%g bytes, not %g", s.wire_bytes, wire);
    } else {
        CHECK(s.batches == 0, "only rank 0 knows");
    }
    CHECK(gw_record_close(record) == GW_OK, "%s", gw_err_text());
    gw_rows_close(files);
    if (rank == 0) {
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
    CHECK(gw_record_open(&record, 5, MPI_COMM_WORLD) == GW_OK, "%s", gw_err_text());
    gw_err e = gw_record_begin(record, files);
    CHECK(e == GW_ERR_INPUT && strstr(gw_err_text(), "/nonexistent"), "%d %s", e, gw_err_text());
    gw_record_abandon(record);
    gw_rows_close(files);
}

/* apart: as if each rank were a host of its own, whose clock is only known by looking. */
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
        compute(GW_PHASE_FORWARD, 0.0002);
        MPI_Barrier(MPI_COMM_WORLD);
        gw_ledger_end(&c);
        wall[step - 1] = c.wall_s;
        /* Looks close together know little of a rate: the slices' lengths must not show it. */
        CHECK(gw_sync_again(sync) == GW_OK, "%s", gw_err_text());
        error_us = apart ? fmax(error_us, 10e6 * gw_sync_error(sync)) : 0;
    }
    MPI_Gather(wall, STEPS, MPI_DOUBLE, walls, STEPS, MPI_DOUBLE, 0, MPI_COMM_WORLD);
    CHECK(gw_trace_write(dir, sync, MPI_COMM_WORLD) == GW_OK, "%s", gw_err_text());
    gw_trace_close();
    gw_sync_close(sync);
    if (rank != 0)
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
        /* A barrier ends each batch: no rank leaves before the last has come, on one clock. */
        for (int b = 0; b < ranks; b++)
            for (int k = 0; k < STEPS; k++)
                CHECK(end[a][k] > start[b][k] - error_us,
                      "rank %d ends step %d at %g us, %d starts at %g", a, k + 1, end[a][k], b,
                      start[b][k]);
    }
    json_decref(root);
    unlink(path);
}

static void test_host_node(void) {
    gw_host_node node;
    CHECK(gw_host_node_of(&node, 3, MPI_COMM_WORLD) == GW_OK, "%s", gw_err_text());
    CHECK(node.nodes == 1 && node.ranks == ranks && node.threads == 3 * ranks, "%d hosts %d ranks",
          node.nodes, node.ranks);
    CHECK(node.cpus >= 1, "%d", node.cpus);
    CHECK(gw_host_oversubscribed(&node) || node.cpus >= 3 * ranks, "%d CPUs", node.cpus);
    CHECK(gw_host_node_of(&node, 100000, MPI_COMM_WORLD) == GW_OK, "%s", gw_err_text());
    CHECK(gw_host_oversubscribed(&node), "100000 threads fit nowhere");
}

/* Emulated hosts share one machine's cores; what the testbed says of itself must make sense. */
static void test_emulated_hosts(void) {
    static const struct {
        const char *hosts, *rate;
        bool fine;
    } cases[] = {{"4", "1000000000", true},     {"4096", "1", true}, {"4", NULL, false},
                 {NULL, "1000000000", false},   {"", "1", false},    {"4", "1e9", false},
                 {"4097", "1000000000", false}, {"4", "0", false},   {" 4", "1", false},
                 {"4", "1000000000001", false}, {"4 ", "1", false},  {"-4", "1", false}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        unsetenv("GRADWIRE_TESTBED");
        unsetenv("GRADWIRE_LINK_RATE");
        if (cases[i].hosts)
            setenv("GRADWIRE_TESTBED", cases[i].hosts, 1);
        if (cases[i].rate)
            setenv("GRADWIRE_LINK_RATE", cases[i].rate, 1);
        gw_host_link link;
        gw_err e = gw_host_link_read(&link);
        CHECK((e == GW_OK) == cases[i].fine && link.emulated == cases[i].fine, "case %zu", i);
        gw_host_node node;
        /* One rank's malformed variable is all ranks' error. */
        if (rank == ranks - 1 && !cases[i].fine && ranks > 1)
            unsetenv("GRADWIRE_TESTBED"), unsetenv("GRADWIRE_LINK_RATE");
        CHECK(gw_host_node_of(&node, 1, MPI_COMM_WORLD) == (cases[i].fine ? GW_OK : GW_ERR_USAGE),
              "case %zu", i);
        if (cases[i].fine)
            CHECK(node.sharers == ranks && node.threads == ranks, "%d sharers", node.sharers);
    }
    unsetenv("GRADWIRE_TESTBED");
    unsetenv("GRADWIRE_LINK_RATE");
    gw_host_link none;
    CHECK(gw_host_link_read(&none) == GW_OK && !none.emulated && none.hosts == 0, "none");
}

int main(int argc, char **argv) {
    int provided;
    char dir[] = "/tmp/gradwire-pmpi-XXXXXX";
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    ranks = check_ranks(argc, argv);
    CHECK(ranks <= 4, "made for 1 to 4 ranks");
    gw_ledger_start();
    if (rank == 0)
        CHECK(mkdtemp(dir), "no temporary folder");
    test_ring();
    test_blocking_hides_nothing();
    test_overlap();
    test_completions();
    test_persistent();
    test_nothing_to_complete();
    test_point_to_point();
    test_collectives();
    if (provided == MPI_THREAD_MULTIPLE)
        test_other_thread();
    test_batches_csv(dir);
    test_record_errors_reach_all();
    test_trace(dir, false);
    test_trace(dir, true);
    test_host_node();
    test_emulated_hosts();
    if (rank == 0)
        rmdir(dir);
    MPI_Finalize();
    return 0;
}
