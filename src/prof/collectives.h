/** collectives.csv: one row a rank and exchange, written between batches. */
#ifndef GW_PROF_COLLECTIVES_H
#define GW_PROF_COLLECTIVES_H

#include "base/rows.h"
#include "prof/exchange.h"
#include "prof/sync.h"

#include <mpi.h>

#define GW_COLLECTIVES "collectives.csv"
#define GW_COLLECTIVES_HEADER                                                                      \
    "rank,step,lane,schedule,run,offset,elements,start_s,block_s,unblock_s,done_s,waiting_s,"      \
    "transfer_s,last_rank,skew_s"

/** Rank 0: begin it, or go on with it. */
gw_err gw_collectives_open(FILE **to, gw_rows *files);

/** Collective: rank 0 appends to it (NULL elsewhere), rank by rank, the finished exchanges of
 *  recorded batches in `v`. */
gw_err gw_collectives_write(FILE *to, const gw_exchange_view *v, const gw_sync *sync,
                            MPI_Comm comm);

#endif
