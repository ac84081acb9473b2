/** MPI as the user knows it: ranks are numbers in MPI_COMM_WORLD. */
#ifndef GW_MPI_WORLD_H
#define GW_MPI_WORLD_H

#include "mpi/agree.h"

/** Local: (*ranks)[i] is rank i of `comm` in MPI_COMM_WORLD; the caller frees it. */
gw_err gw_world_ranks(MPI_Comm comm, int **ranks);

/** The name of an MPI thread level. */
const char *gw_world_thread_level(int level);

/** Collective, last of all before MPI_Finalize: all ranks stop polling before any disconnects. */
void gw_world_part(MPI_Comm comm);

#endif
