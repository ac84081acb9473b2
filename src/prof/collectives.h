/** collectives.csv: one row a rank and exchange, written between batches. */
#ifndef GW_PROF_COLLECTIVES_H
#define GW_PROF_COLLECTIVES_H

#include "base/file.h"
#include "prof/exchange.h"
#include "prof/sync.h"

#include <mpi.h>

/** Rank 0: begin DIR/collectives.csv with its header. */
gw_err gw_collectives_open(gw_file **out, const char *dir);

/** Collective: rank 0 appends to `file` (NULL elsewhere), rank by rank, the finished exchanges of
 *  recorded batches in `v`. */
gw_err gw_collectives_write(gw_file *file, const gw_exchange_view *v, const gw_sync *sync,
                            MPI_Comm comm);

#endif
