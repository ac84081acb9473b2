/** The rows of all ranks in one table. */
#ifndef GW_MPI_COLLECT_H
#define GW_MPI_COLLECT_H

#include "base/table.h"
#include "mpi/agree.h"

/** Let rank 0 write all ranks' rows[0..n) to `to` (NULL elsewhere, or if no file is wanted), rank
 *  by rank, in memory that does not grow with their number. Collective. */
gw_err gw_collect_rows(const gw_table *t, FILE *to, void *rows, int n, MPI_Comm comm);

#endif
