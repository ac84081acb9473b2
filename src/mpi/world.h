/** MPI as the user knows it: ranks are numbers in MPI_COMM_WORLD. */
#ifndef GW_MPI_WORLD_H
#define GW_MPI_WORLD_H

#include "mpi/agree.h"

/** Set (*ranks)[i] to rank i of `comm` in MPI_COMM_WORLD; the caller frees it. Local. */
gw_err gw_world_ranks(MPI_Comm comm, int **ranks);

/** Return the name of an MPI thread level. */
const char *gw_world_thread_level(int level);

/** Last call before MPI_Finalize: all ranks stop polling before any disconnects. Collective. */
void gw_world_part(MPI_Comm comm);

#endif
