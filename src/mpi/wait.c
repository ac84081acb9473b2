#include "mpi/wait.h"

#include "base/turn.h"

#include <sched.h>
#include <stdatomic.h>
#include <time.h>

static atomic_bool yielding;

void gw_wait_yields(bool yields) {
    atomic_store(&yielding, yields);
}

/* An MPI call while another thread may make one. */
#define IN_TURN(call)                                                                              \
    do {                                                                                           \
        gw_turn_take();                                                                            \
        gw_err e_ = gw_mpi_check((call), #call);                                                   \
        gw_turn_leave();                                                                           \
        GW_TRY(e_);                                                                                \
    } while (0)

gw_err gw_wait(MPI_Request *request) {
    if (!atomic_load_explicit(&yielding, memory_order_relaxed) && !gw_turn_shared()) {
        GW_MPI(MPI_Wait(request, MPI_STATUS_IGNORE));
        return GW_OK;
    }
    for (int done = 0;;) {
        IN_TURN(MPI_Test(request, &done, MPI_STATUS_IGNORE));
        if (done)
            return GW_OK;
        sched_yield();
    }
}

gw_err gw_wait_asleep(MPI_Request *request) {
    const struct timespec pause = {.tv_nsec = 1000000};
    for (int done = 0;;) {
        GW_MPI(MPI_Test(request, &done, MPI_STATUS_IGNORE));
        if (done)
            return GW_OK;
        nanosleep(&pause, NULL);
    }
}

gw_err gw_message(void *data, int bytes, int peer, int tag, bool sends, MPI_Comm comm) {
    MPI_Request request;
    gw_team *g = gw_team_of(comm);
    if (g)
        return g->ops->message(g, data, (size_t)bytes, peer, tag, sends);
    GW_MPI(sends ? MPI_Isend(data, bytes, MPI_BYTE, peer, tag, comm, &request)
                 : MPI_Irecv(data, bytes, MPI_BYTE, peer, tag, comm, &request));
    return gw_wait(&request);
}

gw_err gw_barrier(MPI_Comm comm) {
    MPI_Request request;
    gw_team *g = gw_team_of(comm);
    if (g)
        return gw_team_barrier(g);
    GW_MPI(MPI_Ibarrier(comm, &request));
    return gw_wait(&request);
}

gw_err gw_bcast(void *data, int count, MPI_Datatype type, int root, MPI_Comm comm) {
    MPI_Request request;
    gw_team *g = gw_team_of(comm);
    int bytes = 1;
    if (g) {
        GW_MPI(MPI_Type_size(type, &bytes));
        return gw_team_bcast(g, data, (size_t)count * (size_t)bytes, root);
    }
    GW_MPI(MPI_Ibcast(data, count, type, root, comm, &request));
    return gw_wait(&request);
}

gw_err gw_bcast_asleep(void *data, int bytes, int root, MPI_Comm comm) {
    MPI_Request request;
    if (gw_team_of(comm))
        return gw_bcast(data, bytes, MPI_BYTE, root, comm);
    GW_MPI(MPI_Ibcast(data, bytes, MPI_BYTE, root, comm, &request));
    return gw_wait_asleep(&request);
}

gw_err gw_allreduce_begin(const void *in, void *out, int count, MPI_Datatype type, MPI_Op op,
                          MPI_Comm comm, MPI_Request *request) {
    IN_TURN(MPI_Iallreduce(in, out, count, type, op, comm, request));
    return GW_OK;
}

gw_err gw_allreduce(const void *in, void *out, int count, MPI_Datatype type, MPI_Op op,
                    MPI_Comm comm) {
    MPI_Request request;
    gw_team *g = gw_team_of(comm);
    if (g)
        return gw_team_allreduce(g, in, out, count, type, op);
    GW_TRY(gw_allreduce_begin(in, out, count, type, op, comm, &request));
    return gw_wait(&request);
}

gw_err gw_comm_dup(MPI_Comm comm, MPI_Comm *out) {
    MPI_Request request;
    gw_team *g = gw_team_of(comm);
    if (g)
        return gw_team_dup(g, out);
    GW_MPI(MPI_Comm_idup(comm, out, &request));
    return gw_wait(&request);
}
