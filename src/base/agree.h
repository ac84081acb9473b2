/** Agreement on errors: what one rank finds wrong, all learn before the next collective. */
#ifndef GW_BASE_AGREE_H
#define GW_BASE_AGREE_H

#include "base/err.h"

#include <mpi.h>

/** Collective. Returns GW_OK on all ranks, or on all ranks the error of the lowest failing rank,
 *  with its message. Call it after each phase in which ranks can fail on their own. An error that
 *  this rank is alone with (gw_err_alone) comes back at once: the others may never get here. */
gw_err gw_agree(MPI_Comm comm, gw_err mine);

/** GW_OK, or GW_ERR_MPI with MPI's own words for the code `rc` that `call` returned. */
gw_err gw_mpi_check(int rc, const char *call);

/** Call MPI and hand a failure up: GW_MPI(MPI_Barrier(comm)). */
#define GW_MPI(call) GW_TRY(gw_mpi_check((call), #call))

#endif
