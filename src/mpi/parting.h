/** Parting before MPI_Finalize. */
#ifndef GW_MPI_PARTING_H
#define GW_MPI_PARTING_H

#include <mpi.h>

/** Collective, last of all: all ranks stop polling before any disconnects. */
void gw_world_part(MPI_Comm comm);

#endif
