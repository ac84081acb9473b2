/* The fabric of the program: MPI. Whoever times MPI does so below these calls (src/prof/pmpi.c). */
#include "comm/fabric/fabric.h"

#include "base/mem.h"
#include "comm/fabric/sim.h"
#include "mpi/agree.h"
#include "mpi/large.h"
#include "mpi/wait.h"
#include "mpi/world.h"

#include <sched.h>
#include <stdlib.h>
#include <time.h>

struct gw_posts {
    MPI_Request *request;
    MPI_Status *status;
    size_t *len[]; /* where the length goes; NULL: nothing is received */
};

static gw_err mpi_room(int n, gw_posts **out) {
    gw_posts *p = NULL;
    size_t count = (size_t)n, lens = sizeof *p + count * sizeof p->len[0];
    GW_TRY(gw_alloc(&p, lens + count * (sizeof *p->status + sizeof *p->request), 1));
    p->status = (MPI_Status *)((char *)p + lens);
    p->request = (MPI_Request *)(p->status + count);
    *out = p;
    return GW_OK;
}

/* ---- messages ---- */

static gw_err mpi_isend(gw_fabric *f, gw_posts *p, int i, const void *data, size_t len, int peer,
                        int tag) {
    p->len[i] = NULL;
    GW_MPI(gw_large_isend(data, len, peer, tag, f->comm, &p->request[i]));
    return GW_OK;
}

static gw_err mpi_irecv(gw_fabric *f, gw_posts *p, int i, void *data, size_t cap, int peer, int tag,
                        size_t *len) {
    p->len[i] = len;
    GW_MPI(gw_large_irecv(data, cap, peer, tag, f->comm, &p->request[i]));
    return GW_OK;
}

static gw_err mpi_call(gw_posts *p, int i, gw_err (*issue)(void *ctx, MPI_Request *request),
                       void *ctx) {
    p->len[i] = NULL;
    return issue(ctx, &p->request[i]);
}

static gw_err mpi_take_lengths(gw_posts *p, int first, int n) {
    for (int i = first; i < first + n; i++)
        if (p->len[i])
            GW_MPI(gw_large_length(&p->status[i], p->len[i]));
    return GW_OK;
}

/* MPICH 4.0's MPI_Testall takes a persistent collective's completion for an error; its MPI_Test
 * does not, and such a request is alone in its round. */
static gw_err mpi_test(gw_fabric *f, gw_posts *p, int first, int n, bool *done) {
    (void)f;
    int all = 0;
    if (n == 1)
        GW_MPI(MPI_Test(&p->request[first], &all, &p->status[first]));
    else
        GW_MPI(MPI_Testall(n, &p->request[first], &all, &p->status[first]));
    *done = all;
    return all ? mpi_take_lengths(p, first, n) : GW_OK;
}

/* The waits of MPICH 5 call sched_yield between two looks, which adds 0.4 us to a message of 4 KiB.
 * There look first for as long as messages within a host take; other libraries lose by that. */
#if defined MPICH_NUMVERSION && MPICH_NUMVERSION >= 50000000
enum { MPI_LOOKS = 1000 };
#else
enum { MPI_LOOKS = 0 };
#endif

static gw_err mpi_wait(gw_fabric *f, gw_posts *p, int first, int n) {
    bool done = false;
    for (int i = 0; i < MPI_LOOKS && !done; i++)
        GW_TRY(mpi_test(f, p, first, n, &done));
    if (done)
        return GW_OK;
    if (n == 1)
        GW_MPI(MPI_Wait(&p->request[first], &p->status[first]));
    else
        GW_MPI(MPI_Waitall(n, &p->request[first], &p->status[first]));
    return mpi_take_lengths(p, first, n);
}

static gw_err mpi_called(gw_fabric *f, int tag, bool *called) {
    int flag = 0;
    GW_MPI(MPI_Iprobe(MPI_ANY_SOURCE, tag, f->comm, &flag, MPI_STATUS_IGNORE));
    *called = flag;
    return GW_OK;
}

/* ---- the process ---- */

static int64_t mpi_now_ns(const gw_fabric *f) {
    (void)f;
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void mpi_yield(const gw_fabric *f, int64_t ns) {
    (void)f;
    if (ns > 0)
        nanosleep(&(struct timespec){.tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000}, NULL);
    else
        sched_yield();
}

static void mpi_tell(const gw_fabric *f, gw_exchange_event event, const gw_exchange *x) {
    (void)f;
    gw_exchange_tell(event, x);
}

/* ---- collectives ---- */

static gw_err mpi_agree(gw_fabric *f, gw_err mine) {
    return gw_agree(f->comm, mine);
}

static gw_err mpi_sum(gw_fabric *f, int *x) {
    return gw_allreduce(MPI_IN_PLACE, x, 1, MPI_INT, MPI_SUM, f->comm);
}

static gw_err mpi_bcast(gw_fabric *f, void *data, size_t bytes, int root) {
    return gw_bcast(data, (int)bytes, MPI_BYTE, root, f->comm);
}

static gw_err mpi_barrier(gw_fabric *f) {
    return gw_barrier(f->comm);
}

static void mpi_close(gw_fabric *f) {
    MPI_Comm_free(&f->comm);
    free(f->world);
    free(f);
}

static const gw_fabric_ops mpi_ops;

static gw_err mpi_fill(gw_fabric *f) {
    static int lanes;
    int *most = NULL, found = 0;
    f->ops = &mpi_ops;
    f->lanes = &lanes;
    GW_MPI(MPI_Comm_set_errhandler(f->comm, MPI_ERRORS_RETURN));
    GW_MPI(MPI_Comm_rank(f->comm, &f->rank));
    GW_MPI(MPI_Comm_size(f->comm, &f->size));
    GW_MPI(MPI_Comm_get_attr(f->comm, MPI_TAG_UB, (void *)&most, &found));
    f->most_tag = found ? *most : 32767; /* the least that MPI grants */
    return gw_world_ranks(f->comm, &f->world);
}

/* Takes `comm` over, unless it is MPI_COMM_NULL. Collective over `all`. */
static gw_err mpi_open(gw_fabric **out, MPI_Comm comm, MPI_Comm all) {
    gw_fabric *f = NULL;
    gw_err e = comm == MPI_COMM_NULL ? GW_OK : gw_alloc(&f, 1, sizeof *f);
    if (f) {
        f->comm = comm;
        e = mpi_fill(f);
    }
    e = gw_agree(all, e);
    if (e != GW_OK && f)
        mpi_close(f);
    else if (e != GW_OK && comm != MPI_COMM_NULL)
        MPI_Comm_free(&comm);
    else if (e == GW_OK)
        *out = f;
    return e;
}

static gw_err mpi_split(gw_fabric *f, int color, gw_fabric **out) {
    MPI_Comm comm;
    GW_MPI(MPI_Comm_split(f->comm, color < 0 ? MPI_UNDEFINED : color, f->rank, &comm));
    return mpi_open(out, comm, f->comm);
}

static const gw_fabric_ops mpi_ops = {.room = mpi_room,
                                      .isend = mpi_isend,
                                      .irecv = mpi_irecv,
                                      .call = mpi_call,
                                      .test = mpi_test,
                                      .wait = mpi_wait,
                                      .called = mpi_called,
                                      .now_ns = mpi_now_ns,
                                      .yield = mpi_yield,
                                      .tell = mpi_tell,
                                      .agree = mpi_agree,
                                      .sum = mpi_sum,
                                      .bcast = mpi_bcast,
                                      .barrier = mpi_barrier,
                                      .split = mpi_split,
                                      .close = mpi_close};

gw_err gw_fabric_of(gw_fabric **out, MPI_Comm parent) {
    MPI_Comm comm;
    gw_fabric *simulated = gw_sim_fabric_of(parent);
    if (simulated)
        return simulated->ops->split(simulated, 0, out);
    GW_TRY(gw_comm_dup(parent, &comm));
    return mpi_open(out, comm, comm);
}
