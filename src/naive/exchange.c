/* The exchange of a step, and the update. Compiled without vectorisation: see CMakeLists.txt. */
#include "mpi/wait.h"
#include "naive/naive_parts.h"

/* The gradient's sum, on all ranks or at rank 0; rank 0's parameters. A wait that gives the core
 * away takes MPI's nonblocking form. */
typedef gw_err exchange_call(gw_naive *n, MPI_Request *r);

static gw_err exchange_allreduce(gw_naive *n, MPI_Request *r) {
    int size = (int)n->size; /* GW_MAX_PARAMS is that of an int */
    MPI_Comm comm = n->setup.comm;
    GW_MPI(r ? MPI_Iallreduce(MPI_IN_PLACE, n->grad, size, MPI_DOUBLE, MPI_SUM, comm, r)
             : MPI_Allreduce(MPI_IN_PLACE, n->grad, size, MPI_DOUBLE, MPI_SUM, comm));
    return GW_OK;
}

static gw_err exchange_reduce(gw_naive *n, MPI_Request *r) {
    int size = (int)n->size;
    MPI_Comm comm = n->setup.comm;
    const void *mine = n->rank == 0 ? MPI_IN_PLACE : (const void *)n->grad;
    GW_MPI(r ? MPI_Ireduce(mine, n->grad, size, MPI_DOUBLE, MPI_SUM, 0, comm, r)
             : MPI_Reduce(mine, n->grad, size, MPI_DOUBLE, MPI_SUM, 0, comm));
    return GW_OK;
}

static gw_err exchange_bcast(gw_naive *n, MPI_Request *r) {
    int size = (int)n->size;
    GW_MPI(r ? MPI_Ibcast(n->param, size, MPI_DOUBLE, 0, n->setup.comm, r)
             : MPI_Bcast(n->param, size, MPI_DOUBLE, 0, n->setup.comm));
    return GW_OK;
}

/* What lies around the calls is communication, too; MPI's own time is charged as such anyway. */
static gw_err exchange_run(gw_naive *n, exchange_call *call, gw_exchange *told) {
    MPI_Request r;
    told->run++;
    gw_phase_enter(GW_PHASE_MPI_WAIT);
    gw_exchange_tell(GW_EXCHANGE_START, told);
    gw_exchange_tell(GW_EXCHANGE_BLOCK, told);
    gw_err e = call(n, n->setup.yield ? &r : NULL);
    if (n->setup.yield)
        GW_THEN(e, gw_wait(&r));
    gw_exchange_tell(GW_EXCHANGE_DONE, told);
    gw_exchange_tell(GW_EXCHANGE_UNBLOCK, told);
    gw_phase_leave();
    return e;
}

void gw_naive_descend(gw_naive *n, double lr) {
    gw_phase_enter(GW_PHASE_UPDATE);
#pragma omp parallel for num_threads(n->setup.threads) schedule(static)
    for (size_t i = 0; i < n->size; i++)
        n->param[i] -= lr * n->grad[i];
    gw_phase_leave();
}

gw_err gw_naive_reduce(gw_naive *n) {
    bool root = n->setup.options.exchange == GW_NAIVE_ROOT;
    return n->ranks > 1
               ? exchange_run(n, root ? exchange_reduce : exchange_allreduce, &n->setup.gradients)
               : GW_OK;
}

bool gw_naive_publishes(const gw_naive *n) {
    return n->ranks > 1 && n->setup.options.exchange == GW_NAIVE_ROOT;
}

bool gw_naive_descends(const gw_naive *n) {
    return n->rank == 0 || !gw_naive_publishes(n);
}

gw_err gw_naive_publish(gw_naive *n) {
    return gw_naive_publishes(n) ? exchange_run(n, exchange_bcast, &n->setup.parameters) : GW_OK;
}
