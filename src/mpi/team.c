/* Collectives of ranks that are not processes: every rank shows its data to all, and takes what it
 * needs. */
#include "mpi/team.h"

#include "base/mem.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* Handles are small numbers, which are no communicator of any MPI. */
static struct {
    gw_team **of; /* [handle - 1]; NULL: it is free */
    int n, room;
} teams;

gw_err gw_team_comm(gw_team *g, MPI_Comm *out) {
    int i = 0;
    while (i < teams.n && teams.of[i])
        i++;
    if (i == teams.room)
        GW_TRY(gw_grow(&teams.of, &teams.room, i + 1, sizeof *teams.of));
    teams.n += i == teams.n;
    teams.of[i] = g;
    *out = (MPI_Comm)(intptr_t)(i + 1);
    return GW_OK;
}

gw_team *gw_team_of(MPI_Comm comm) {
    intptr_t handle = (intptr_t)comm;
    return 0 < handle && handle <= teams.n ? teams.of[handle - 1] : NULL;
}

/* ---- a group's own ---- */

/* All have taken what they need of what was shown. */
gw_err gw_team_barrier(gw_team *g) {
    const void *const *all;
    return g->ops->show(g, NULL, &all);
}

gw_err gw_team_bcast(gw_team *g, void *data, size_t bytes, int root) {
    const void *const *all;
    GW_TRY(g->ops->show(g, data, &all));
    if (g->rank != root)
        memcpy(data, all[root], bytes);
    return gw_team_barrier(g);
}

static gw_err team_add(void *sum, const void *x, int count, MPI_Datatype type, MPI_Op op) {
    GW_MPI(MPI_Reduce_local(x, sum, count, type, op));
    return GW_OK;
}

/* In the order in which MPICH adds short messages: the ranks beyond a power of two join the first
 * ones in pairs, then neighbours are added by recursive doubling (R. Thakur, R. Rabenseifner,
 * W. Gropp, "Optimization of collective communication operations in MPICH", IJHPCA 2005). So sums
 * of floats have the bits that they have between processes. */
static gw_err team_reduce(const gw_team *g, const void *const *all, char *sum, size_t bytes,
                          int count, MPI_Datatype type, MPI_Op op) {
    int left = 1;
    while (2 * left <= g->size)
        left *= 2;
    int pairs = g->size - left;
    for (int i = 0; i < left; i++) {
        int r = i < pairs ? 2 * i : i + pairs;
        memcpy(sum + (size_t)i * bytes, all[r], bytes);
        if (i < pairs)
            GW_TRY(team_add(sum + (size_t)i * bytes, all[r + 1], count, type, op));
    }
    for (int width = 1; width < left; width *= 2)
        for (int i = 0; i < left; i += 2 * width)
            GW_TRY(team_add(sum + (size_t)i * bytes, sum + (size_t)(i + width) * bytes, count, type,
                            op));
    return GW_OK;
}

static gw_err team_bytes(MPI_Datatype type, int count, size_t *bytes) {
    MPI_Aint least, extent;
    GW_MPI(MPI_Type_get_extent(type, &least, &extent));
    *bytes = (size_t)extent * (size_t)count;
    return GW_OK;
}

gw_err gw_team_allreduce(gw_team *g, const void *in, void *out, int count, MPI_Datatype type,
                         MPI_Op op) {
    const void *const *all;
    size_t bytes = 0;
    char *sum = NULL;
    gw_err e = team_bytes(type, count, &bytes);
    GW_THEN(e, gw_alloc(&sum, (size_t)g->size, bytes));
    gw_err shown = g->ops->show(g, in == MPI_IN_PLACE ? out : in, &all);
    GW_THEN(e, shown);
    GW_THEN(e, team_reduce(g, all, sum, bytes, count, type, op));
    if (shown == GW_OK)
        GW_THEN(e, gw_team_barrier(g));
    if (e == GW_OK) {
        memcpy(out, sum, bytes);
        g->ops->reduced(g, bytes);
    }
    free(sum);
    return e;
}

static gw_err team_split(gw_team *g, int color, MPI_Comm *out) {
    gw_team *part;
    *out = MPI_COMM_NULL;
    GW_TRY(g->ops->split(g, color, &part));
    gw_err e = part ? gw_team_comm(part, out) : GW_OK;
    if (e != GW_OK)
        part->ops->close(part);
    return e;
}

gw_err gw_team_dup(gw_team *g, MPI_Comm *out) {
    return team_split(g, 0, out);
}

/* ---- for communicators of both kinds ---- */

gw_err gw_comm_place(MPI_Comm comm, int *rank, int *ranks) {
    const gw_team *g = gw_team_of(comm);
    if (rank && g)
        *rank = g->rank;
    else if (rank)
        GW_MPI(MPI_Comm_rank(comm, rank));
    if (ranks && g)
        *ranks = g->size;
    else if (ranks)
        GW_MPI(MPI_Comm_size(comm, ranks));
    return GW_OK;
}

gw_err gw_comm_split(MPI_Comm comm, int color, MPI_Comm *out) {
    gw_team *g = gw_team_of(comm);
    int rank;
    if (g)
        return team_split(g, color, out);
    GW_MPI(MPI_Comm_rank(comm, &rank));
    GW_MPI(MPI_Comm_split(comm, color < 0 ? MPI_UNDEFINED : color, rank, out));
    if (*out != MPI_COMM_NULL)
        GW_MPI(MPI_Comm_set_errhandler(*out, MPI_ERRORS_RETURN));
    return GW_OK;
}

gw_err gw_comm_split_host(MPI_Comm comm, MPI_Comm *out) {
    gw_team *g = gw_team_of(comm);
    if (g)
        return team_split(g, g->host, out);
    GW_MPI(MPI_Comm_split_type(comm, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, out));
    return GW_OK;
}

void gw_comm_free(MPI_Comm *comm) {
    gw_team *g = gw_team_of(*comm);
    if (!g) {
        if (*comm != MPI_COMM_NULL)
            MPI_Comm_free(comm);
        return;
    }
    teams.of[(intptr_t)*comm - 1] = NULL;
    g->ops->close(g);
    *comm = MPI_COMM_NULL;
}

gw_err gw_gather(const void *mine, void *all, int bytes, MPI_Comm comm) {
    gw_team *g = gw_team_of(comm);
    const void *const *shown;
    if (!g) {
        GW_MPI(MPI_Gather(mine, bytes, MPI_BYTE, all, bytes, MPI_BYTE, 0, comm));
        return GW_OK;
    }
    GW_TRY(g->ops->show(g, mine, &shown));
    for (int r = 0; g->rank == 0 && r < g->size; r++)
        memcpy((char *)all + (size_t)r * (size_t)bytes, shown[r], (size_t)bytes);
    return gw_team_barrier(g);
}

gw_err gw_gatherv(const void *mine, int n, void *all, const int *count, const int *at,
                  MPI_Datatype type, MPI_Comm comm) {
    gw_team *g = gw_team_of(comm);
    const void *const *shown;
    size_t row;
    if (!g) {
        GW_MPI(MPI_Gatherv(mine, n, type, all, count, at, type, 0, comm));
        return GW_OK;
    }
    GW_TRY(team_bytes(type, 1, &row));
    GW_TRY(g->ops->show(g, mine, &shown));
    for (int r = 0; g->rank == 0 && r < g->size; r++)
        memcpy((char *)all + (size_t)at[r] * row, shown[r], (size_t)count[r] * row);
    return gw_team_barrier(g);
}

gw_err gw_allgather(const void *mine, void *all, int bytes, MPI_Comm comm) {
    gw_team *g = gw_team_of(comm);
    const void *const *shown;
    if (!g) {
        GW_MPI(MPI_Allgather(mine, bytes, MPI_BYTE, all, bytes, MPI_BYTE, comm));
        return GW_OK;
    }
    GW_TRY(g->ops->show(g, mine, &shown));
    for (int r = 0; r < g->size; r++)
        memcpy((char *)all + (size_t)r * (size_t)bytes, shown[r], (size_t)bytes);
    return gw_team_barrier(g);
}
