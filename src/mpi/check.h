/** MPI's return codes as errors. */
#ifndef GW_MPI_CHECK_H
#define GW_MPI_CHECK_H

#include "base/err.h"

#include <mpi.h>

/** GW_OK, or GW_ERR_MPI with MPI's own text for the code `rc` that `call` returned. */
gw_err gw_mpi_check(int rc, const char *call);

/** Call MPI and return a failure: GW_MPI(MPI_Barrier(comm)). */
#define GW_MPI(call) GW_TRY(gw_mpi_check((call), #call))

#endif
