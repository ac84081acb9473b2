/** Detects launchers that do not fit this MPI library: each process that they start believes to be
 *  alone. */
#ifndef GW_MPI_LAUNCHER_H
#define GW_MPI_LAUNCHER_H

#include "mpi/check.h"

/** After MPI_Init: return the variable by which a launcher told this process that it is one of
 *  several (PMIX_RANK: that it is not the first), although MPI_COMM_WORLD has only this process;
 *  NULL: none. A world of several ranks, and variables that say 1, never count as foreign: MPI may
 *  run within the step or the group of another launcher. */
const char *gw_launcher_foreign(void);

/** Return how this MPI library's ranks are started, for messages: its launcher, and srun's word for
 *  the dialect of PMI that it speaks. Static string. */
const char *gw_launcher_right(void);

/** Return the name of the MPI library whose launcher started this process alone, if it is not this
 *  library: several ranks would each be alone, too. NULL: none did, or it cannot be told. */
const char *gw_launcher_other(void);

/** Return GW_ERR_USAGE, with what to do, if there is such a variable. */
gw_err gw_launcher_check(void);

#endif
