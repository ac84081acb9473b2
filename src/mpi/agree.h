/** Agreement on errors: what one rank finds wrong, all learn before the next collective. */
#ifndef GW_MPI_AGREE_H
#define GW_MPI_AGREE_H

#include "mpi/check.h"

/** Collective. Returns GW_OK on all ranks, or on all ranks the error of the lowest failing rank,
 *  with its message. Call it after each phase in which ranks can fail on their own. An error that
 *  this rank is alone with (gw_err_alone) comes back at once: the others may never get here. */
gw_err gw_agree(MPI_Comm comm, gw_err mine);

#endif
