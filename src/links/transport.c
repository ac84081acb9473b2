#include "links/transport.h"

#include "base/mem.h"
#include "base/stats.h"
#include "mpi/wait.h"
#include "prof/clock.h"

#include <math.h>
#include <stdlib.h>

enum { LEAST = 5, MOST = 51, TAG = 2, MESSAGE = 1 << 20 };
#define BETWEEN_S 50e-6  /* two tests */
#define GAP_S     0.5e-6 /* between two readings of the clock, of some 20 ns each */
#define IDLE_S    10e-3
#define SPENT_S   0.1

typedef struct seen {
    double calls_s, gaps_s, wall_s;
    int tests;
} seen;

/* Busy until BETWEEN_S later. */
static void transport_spin(seen *s) {
    uint64_t start = gw_clock_ticks(), last = start, now;
    do {
        now = gw_clock_ticks();
        double gap = gw_clock_seconds(now - last);
        s->gaps_s += gap > GAP_S ? gap : 0;
        last = now;
    } while (gw_clock_seconds(now - start) < BETWEEN_S);
}

/* ---- with nothing on its way ---- */

/* A message that comes when all have seen that none comes. */
static gw_err transport_look_idle(int rank, int ranks, MPI_Comm comm, seen *s) {
    MPI_Request request;
    char in, out = 0;
    int done = 0;
    GW_TRY(gw_barrier(comm));
    GW_MPI(MPI_Irecv(&in, 1, MPI_CHAR, (rank + ranks - 1) % ranks, TAG, comm, &request));
    uint64_t start = gw_clock_ticks();
    while (!done && gw_clock_since(start) < IDLE_S) {
        transport_spin(s);
        uint64_t call = gw_clock_ticks();
        GW_MPI(MPI_Test(&request, &done, MPI_STATUS_IGNORE));
        s->calls_s += gw_clock_since(call);
        s->tests++;
    }
    s->wall_s = gw_clock_since(start);
    GW_TRY(gw_barrier(comm));
    MPI_Request sent;
    GW_MPI(MPI_Isend(&out, 1, MPI_CHAR, (rank + 1) % ranks, TAG, comm, &sent));
    GW_TRY(gw_wait(&sent));
    return gw_wait(&request);
}

/* ---- with messages ---- */

static gw_err transport_run_once(const gw_transport_job *job, MPI_Comm comm, seen *s) {
    bool done = false;
    if (job->prepare)
        job->prepare(job->ctx);
    GW_TRY(gw_barrier(comm));
    uint64_t start = gw_clock_ticks(), call = start;
    GW_TRY(job->start(job->ctx));
    s->calls_s += gw_clock_since(call);
    while (!done) {
        transport_spin(s);
        call = gw_clock_ticks();
        GW_TRY(job->test(job->ctx, &done));
        s->calls_s += gw_clock_since(call);
        s->tests++;
    }
    s->wall_s = gw_clock_since(start);
    return GW_OK;
}

gw_err gw_transport_measure(const gw_transport_job *job, bool oversubscribed, MPI_Comm comm,
                            double *out) {
    int rank, ranks, n = 0;
    double run[MOST], spent = 0, start = MPI_Wtime();
    seen idle = {0};
    *out = NAN;
    GW_TRY(gw_comm_place(comm, &rank, &ranks));
    if (ranks == 1 || oversubscribed)
        return GW_OK;
    gw_clock_start();
    GW_TRY(transport_look_idle(rank, ranks, comm, &idle));
    for (int k = -1; n < MOST && (n < LEAST || spent < SPENT_S); k++) {
        seen with = {0};
        GW_TRY(transport_run_once(job, comm, &with));
        double calls_s = with.calls_s - with.tests * idle.calls_s / idle.tests;
        double gaps_s = with.gaps_s - with.wall_s * idle.gaps_s / idle.wall_s;
        double both[2] = {calls_s + gaps_s, MPI_Wtime() - start};
        GW_TRY(gw_allreduce(MPI_IN_PLACE, both, 2, MPI_DOUBLE, MPI_MAX, comm));
        spent = both[1];
        if (k >= 0)
            run[n++] = both[0];
    }
    double s = gw_stats_median(run, n);
    *out = s > 0 ? s : NAN;
    return GW_OK;
}

/* ---- a byte ---- */

typedef struct pair {
    MPI_Comm comm;
    int rank, ranks;
    char *out, *in;
    MPI_Request request[2];
} pair;

static gw_err transport_pair_start(void *ctx) {
    pair *p = ctx;
    int next = (p->rank + 1) % p->ranks, last = (p->rank + p->ranks - 1) % p->ranks;
    GW_MPI(MPI_Irecv(p->in, MESSAGE, MPI_BYTE, last, TAG, p->comm, &p->request[0]));
    GW_MPI(MPI_Isend(p->out, MESSAGE, MPI_BYTE, next, TAG, p->comm, &p->request[1]));
    return GW_OK;
}

static gw_err transport_pair_test(void *ctx, bool *done) {
    pair *p = ctx;
    MPI_Status status[2];
    int flag;
    GW_MPI(MPI_Testall(2, p->request, &flag, status));
    *done = flag;
    return GW_OK;
}

gw_err gw_transport_byte(bool oversubscribed, MPI_Comm comm, double *s) {
    pair p = {.comm = comm};
    GW_TRY(gw_comm_place(comm, &p.rank, &p.ranks));
    gw_err e = gw_alloc(&p.out, MESSAGE, 1);
    GW_THEN(e, gw_alloc(&p.in, MESSAGE, 1));
    e = gw_agree(comm, e);
    GW_THEN(e, gw_transport_measure(
                   &(gw_transport_job){NULL, transport_pair_start, transport_pair_test, &p},
                   oversubscribed, comm, s));
    free(p.out);
    free(p.in);
    *s /= MESSAGE;
    return e;
}
