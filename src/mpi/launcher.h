/** Launchers that do not fit this MPI library: they start processes that each believe to be
 *  alone. */
#ifndef GW_MPI_LAUNCHER_H
#define GW_MPI_LAUNCHER_H

#include "mpi/check.h"

/** After MPI_Init: the variable by which a launcher told this process of how many it is one (or, of
 *  PMIX_RANK, that it is not the first), though MPI_COMM_WORLD has this process alone; NULL: none.
 *  Several ranks, however many, and variables that say 1 are never taken for that: MPI may run
 *  within the step or the group of another launcher. */
const char *gw_launcher_foreign(void);

/** GW_ERR_USAGE, with what to do, if there is one. */
gw_err gw_launcher_check(void);

#endif
