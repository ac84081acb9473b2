#include "mpi/world.h"

#include "base/mem.h"

#include <stdlib.h>
#include <time.h>

gw_err gw_world_ranks(MPI_Comm comm, int **ranks) {
    int n, *own = NULL;
    MPI_Group from, to;
    GW_MPI(MPI_Comm_size(comm, &n));
    GW_TRY(gw_alloc(ranks, (size_t)n, sizeof **ranks));
    GW_MPI(MPI_Comm_group(comm, &from));
    GW_MPI(MPI_Comm_group(MPI_COMM_WORLD, &to));
    gw_err e = gw_alloc(&own, (size_t)n, sizeof *own);
    for (int i = 0; e == GW_OK && i < n; i++)
        own[i] = i;
    GW_THEN(e, gw_mpi_check(MPI_Group_translate_ranks(from, n, own, to, *ranks),
                            "MPI_Group_translate_ranks"));
    free(own);
    MPI_Group_free(&from);
    MPI_Group_free(&to);
    return e;
}

const char *gw_world_thread_level(int level) {
    return level == MPI_THREAD_SINGLE       ? "MPI_THREAD_SINGLE"
           : level == MPI_THREAD_FUNNELED   ? "MPI_THREAD_FUNNELED"
           : level == MPI_THREAD_SERIALIZED ? "MPI_THREAD_SERIALIZED"
                                            : "MPI_THREAD_MULTIPLE";
}

/* A message from every rank to every other one. */
static int world_meet(MPI_Comm comm, int ranks) {
    int rank = 0, status = MPI_Comm_rank(comm, &rank);
    for (int k = 1; k < ranks && status == MPI_SUCCESS; k++)
        status = MPI_Sendrecv(NULL, 0, MPI_BYTE, (rank + k) % ranks, 0, NULL, 0, MPI_BYTE,
                              (rank - k + ranks) % ranks, 0, comm, MPI_STATUS_IGNORE);
    return status;
}

/* MPICH 4 over UCX hangs in MPI_Finalize if a rank still polls MPI while another has begun to
 * disconnect: the first's answer sends the other into a blocking barrier, where it answers nobody
 * (pmodels/mpich pull request 6596). So between hosts all ranks stop polling before any
 * disconnects. Nor may a connection be made as late as that: two ranks are connected by their first
 * message, which with some algorithms would be the barrier's. */
void gw_world_part(MPI_Comm comm) {
    MPI_Comm host;
    int ranks = 1, here = 1;
    if (MPI_Comm_split_type(comm, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &host) != MPI_SUCCESS)
        return;
    MPI_Comm_size(comm, &ranks);
    MPI_Comm_size(host, &here);
    MPI_Comm_free(&host);
    if (here < ranks && world_meet(comm, ranks) == MPI_SUCCESS && MPI_Barrier(comm) == MPI_SUCCESS)
        nanosleep(&(struct timespec){.tv_nsec = 200000000}, NULL);
}
