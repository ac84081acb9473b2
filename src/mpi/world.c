#include "mpi/world.h"

#include "base/mem.h"

#include <stdlib.h>

static gw_err world_translate(MPI_Group from, MPI_Group to, int n, int *ranks) {
    int *own = NULL;
    GW_TRY(gw_alloc(&own, (size_t)n, sizeof *own));
    for (int i = 0; i < n; i++)
        own[i] = i;
    gw_err e = gw_mpi_check(MPI_Group_translate_ranks(from, n, own, to, ranks),
                            "MPI_Group_translate_ranks");
    free(own);
    return e;
}

gw_err gw_world_ranks(MPI_Comm comm, int **ranks) {
    int n;
    MPI_Group from, to;
    GW_MPI(MPI_Comm_size(comm, &n));
    GW_TRY(gw_alloc(ranks, (size_t)n, sizeof **ranks));
    GW_MPI(MPI_Comm_group(comm, &from));
    GW_MPI(MPI_Comm_group(MPI_COMM_WORLD, &to));
    gw_err e = world_translate(from, to, n, *ranks);
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
