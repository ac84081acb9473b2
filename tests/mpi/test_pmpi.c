/* MPI calls one after another, charged and counted by interposition: phases, and requests in
 * flight. test_pmpi_calls.c has each call by itself. */
#include "../timed.h"
#include "check.h"

#include <math.h>
#include <pthread.h>

enum { N = 3 * 4 * 1000 }; /* floats: divides by every number of ranks */

static int rank, ranks;
static float in[N], out[4 * N];
static MPI_Status statuses[4]; /* gcc warns about MPICH's MPI_STATUSES_IGNORE */

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
    CHECK(fabs(phase_sum(&c) - c.wall_s) <= 1e-9 * c.wall_s, "%s: %g against %g", what,
          phase_sum(&c), c.wall_s);
    return c;
}

static void test_ring(void) {
    int next = (rank + 1) % ranks, before = (rank + ranks - 1) % ranks;
    MPI_Request r[3] = {MPI_REQUEST_NULL, MPI_REQUEST_NULL, MPI_REQUEST_NULL};
    gw_ledger_begin();
    MPI_Irecv(out, N, MPI_FLOAT, before, 0, MPI_COMM_WORLD, &r[0]);
    MPI_Isend(in, N, MPI_FLOAT, next, 0, MPI_COMM_WORLD, &r[2]);
    spin_in(GW_PHASE_BACKWARD, 0.001);
    MPI_Waitall(3, r, statuses);
    spin_in(GW_PHASE_FORWARD, 0.001);
    gw_batch_cost c = expect("ring", N * sizeof(float), 1, 0);
    CHECK(c.phase_s[GW_PHASE_MPI_POST] > 0 && c.phase_s[GW_PHASE_MPI_WAIT] > 0, "not charged");
    CHECK(c.phase_s[GW_PHASE_MPI_POLL] == 0, "%g s polled", c.phase_s[GW_PHASE_MPI_POLL]);
    CHECK(fabs(c.inflight_s - c.phase_s[GW_PHASE_BACKWARD]) < 1e-9, "in flight %g of backward %g",
          c.inflight_s, c.phase_s[GW_PHASE_BACKWARD]);
}

static void test_blocking_hides_nothing(void) {
    gw_ledger_begin();
    spin_in(GW_PHASE_BACKWARD, 0.001);
    MPI_Allreduce(in, out, N, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    MPI_Allreduce(in, out, N, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    spin_in(GW_PHASE_UPDATE, 0.001);
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
        spin_in(GW_PHASE_BACKWARD, 0.0002);
        MPI_Test(&r, &done, MPI_STATUS_IGNORE);
        polls++;
    }
    double inside = gw_ledger_now();
    spin_in(GW_PHASE_FORWARD, 0.002);       /* nothing is in flight any more */
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
            spin_in(GW_PHASE_FORWARD, 20e-6);
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
        spin_in(GW_PHASE_UPDATE, 0.001); /* all are complete: hides nothing */
        gw_batch_cost c = expect("completions", 2 * sizeof(float), 2, 0);
        CHECK(fabs(c.inflight_s - c.phase_s[GW_PHASE_FORWARD]) < 1e-9, "way %d: %g, forward %g",
              way, c.inflight_s, c.phase_s[GW_PHASE_FORWARD]);
    }
}

#if MPI_VERSION >= 4
static void test_persistent(void) {
    MPI_Request r[2];
    uint64_t bytes = 2 * (uint64_t)(ranks - 1) * N * sizeof(float) / (uint64_t)ranks;
    MPI_Allreduce_init(in, out, N, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD, MPI_INFO_NULL, &r[0]);
    MPI_Send_init(in, 8, MPI_BYTE, MPI_PROC_NULL, 0, MPI_COMM_WORLD, &r[1]);
    gw_ledger_begin();
    spin_in(GW_PHASE_FORWARD, 0.0005); /* inactive: not in flight */
    for (int i = 0; i < 3; i++) {
        MPI_Startall(2, r);
        spin_in(GW_PHASE_BACKWARD, 0.0005);
        MPI_Waitall(2, r, statuses);
        MPI_Waitall(2, r, statuses); /* inactive: completes nothing */
    }
    spin_in(GW_PHASE_UPDATE, 0.0005);
    MPI_Start(&r[1]);
    MPI_Wait(&r[1], MPI_STATUS_IGNORE);
    gw_batch_cost c = expect("persistent", 3 * bytes, 0, 3);
    CHECK(fabs(c.inflight_s - c.phase_s[GW_PHASE_BACKWARD]) < 1e-9, "in flight %g, backward %g",
          c.inflight_s, c.phase_s[GW_PHASE_BACKWARD]);
    MPI_Request_free(&r[0]);
    MPI_Request_free(&r[1]);
}
#endif

/* Null and inactive requests complete nothing: other requests stay in flight. */
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
    spin_in(GW_PHASE_FORWARD, 0.0005);
    MPI_Send(in, 1, MPI_FLOAT, rank, 9, MPI_COMM_WORLD);
    MPI_Wait(&open, MPI_STATUS_IGNORE);
    gw_batch_cost c = expect("nothing to complete", sizeof(float), 1, 0);
    CHECK(fabs(c.inflight_s - c.phase_s[GW_PHASE_FORWARD]) < 1e-9, "in flight %g, forward %g",
          c.inflight_s, c.phase_s[GW_PHASE_FORWARD]);
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
    spin_in(GW_PHASE_FORWARD, 0.001);
    pthread_join(thread, NULL);
    uint64_t bytes = 2 * (uint64_t)(ranks - 1) * sizeof(float) / (uint64_t)ranks;
    gw_batch_cost c = expect("other thread", bytes, 0, 1);
    CHECK(c.phase_s[GW_PHASE_MPI_POST] == 0 && c.phase_s[GW_PHASE_MPI_WAIT] == 0,
          "another thread's time was charged");
    CHECK(c.inflight_s <= c.phase_s[GW_PHASE_FORWARD], "%g", c.inflight_s);
    MPI_Comm_free(&comm);
}

int main(int argc, char **argv) {
    int provided;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    ranks = check_ranks(argc, argv);
    CHECK(ranks <= 4, "made for 1 to 4 ranks");
    gw_ledger_start();
    test_ring();
    test_blocking_hides_nothing();
    test_overlap();
    test_completions();
#if MPI_VERSION >= 4
    test_persistent();
#endif
    test_nothing_to_complete();
    if (provided == MPI_THREAD_MULTIPLE)
        test_other_thread();
    MPI_Finalize();
    return 0;
}
