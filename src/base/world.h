/** Ranks by the numbers that a user knows: those in MPI_COMM_WORLD. */
#ifndef GW_BASE_WORLD_H
#define GW_BASE_WORLD_H

#include "base/agree.h"

/** Local: (*ranks)[i] is rank i of `comm` in MPI_COMM_WORLD; the caller frees it. */
gw_err gw_world_ranks(MPI_Comm comm, int **ranks);

#endif
