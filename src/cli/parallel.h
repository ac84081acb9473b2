/** Running a command on all ranks: MPI started, errors told once, exit statuses agreed. */
#ifndef GW_CLI_PARALLEL_H
#define GW_CLI_PARALLEL_H

#include "base/err.h"

#include <mpi.h>
#include <stdbool.h>

/** Start MPI at thread level `level`, run `body` on all ranks, end MPI; returns the exit status.
 *  `parsed` is the outcome of reading the command line; what one rank found wrong (a plugin that
 *  its host lacks, say) is printed by rank 0 alone and `body` runs nowhere. An error that `body`
 * returns is printed by rank 0, too, unless it set *own: then the failing rank speaks and ends the
 * whole job. */
int gw_cli_parallel(int level, gw_err parsed, gw_err (*body)(void *ctx, MPI_Comm comm, bool *own),
                    void *ctx);

/** A command line that cannot be used, by a command that runs on one rank: said once, however many
 *  ranks were started with it. Returns the exit status. */
int gw_cli_refuse(gw_err e);

#endif
