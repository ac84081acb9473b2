/** Ranks that are not processes: what stands behind the communicators of a simulated world.
 *
 *  A world whose ranks are coroutines (comm/fabric/sim.h) gives each of them a gw_team, and
 *  gw_team_comm makes an MPI_Comm of it: a handle that MPI does not know. All collective calls of
 *  the program go through this header and mpi/wait.h, which send those on such a handle to the
 *  team; so the same trainer runs over processes and over simulated ranks. A call of MPI itself on
 *  such a handle fails at once. */
#ifndef GW_MPI_TEAM_H
#define GW_MPI_TEAM_H

#include "mpi/check.h"

#include <stdbool.h>
#include <stddef.h>

typedef struct gw_team gw_team;

typedef struct gw_team_ops {
    /** Show `mine` to all ranks of the team: (*all)[r] is what rank r shows. It must stay as it is
     *  until its rank comes back from its next call. Collective and blocking. */
    gw_err (*show)(gw_team *g, const void *mine, const void *const **all);
    /** Make the team of the ranks with the same `color` >= 0, in their order; *out is NULL if it
     *  is below 0. Collective. */
    gw_err (*split)(gw_team *g, int color, gw_team **out);
    /** Send `bytes` bytes to rank `peer`, or receive them from it, and wait. */
    gw_err (*message)(gw_team *g, void *data, size_t bytes, int peer, int tag, bool sends);
    /** Let the time pass that an allreduce of so many bytes takes once all ranks have come. */
    void (*reduced)(gw_team *g, size_t bytes);
    void (*close)(gw_team *g);
} gw_team_ops;

/** The head of every team's own struct. */
struct gw_team {
    const gw_team_ops *ops;
    int rank, size;
    int host; /* number of the host that the rank is on */
};

/** Make a communicator of `g`, which it owns from now on; gw_comm_free it. */
gw_err gw_team_comm(gw_team *g, MPI_Comm *out);

/** Return the team behind `comm`; NULL: it is MPI's. */
gw_team *gw_team_of(MPI_Comm comm);

/** Get the caller's number in `comm`, and how many ranks it has; either may be NULL. */
gw_err gw_comm_place(MPI_Comm comm, int *rank, int *ranks);

/** MPI's calls of these names, for communicators of both kinds. Ranks keep their order in a split;
 *  `color` below 0: no part of it. */
gw_err gw_comm_split(MPI_Comm comm, int color, MPI_Comm *out);
gw_err gw_comm_split_host(MPI_Comm comm, MPI_Comm *out);
void gw_comm_free(MPI_Comm *comm);
gw_err gw_gather(const void *mine, void *all, int bytes, MPI_Comm comm); /* at rank 0 */
gw_err gw_gatherv(const void *mine, int n, void *all, const int *count, const int *at,
                  MPI_Datatype type, MPI_Comm comm); /* likewise */
gw_err gw_allgather(const void *mine, void *all, int bytes, MPI_Comm comm);

/** Those of mpi/wait.h, for a team. */
gw_err gw_team_barrier(gw_team *g);
gw_err gw_team_bcast(gw_team *g, void *data, size_t bytes, int root);
gw_err gw_team_allreduce(gw_team *g, const void *in, void *out, int count, MPI_Datatype type,
                         MPI_Op op);
gw_err gw_team_dup(gw_team *g, MPI_Comm *out);

#endif
