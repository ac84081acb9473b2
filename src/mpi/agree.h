/** Agreement on errors: all ranks learn one rank's error before the next collective. */
#ifndef GW_MPI_AGREE_H
#define GW_MPI_AGREE_H

#include "mpi/team.h"

/** Collective. Returns GW_OK on all ranks, or on all ranks the error of the lowest failing rank,
 *  with its message. Call it after each phase in which ranks can fail on their own. An error that
 *  a rank meets alone (gw_err_alone) returns at once, since the others may never get here. */
gw_err gw_agree(MPI_Comm comm, gw_err mine);

#endif
