/** Running a command on all ranks: MPI started, errors told once, exit statuses agreed. */
#ifndef GW_CLI_PARALLEL_H
#define GW_CLI_PARALLEL_H

#include "base/err.h"

#include <mpi.h>
#include <stdbool.h>

/** Start MPI at thread level `level`, run `body` on all ranks, end MPI; returns the exit status.
 *  `parsed` is the result of reading the command line. If any rank found an error there (such as a
 *  plugin that its host lacks), rank 0 prints it and `body` runs on no rank. Rank 0 also prints an
 *  error that `body` returns, unless `body` set *own: then the failing rank prints it and ends the
 *  whole job. */
int gw_cli_parallel(int level, gw_err parsed, gw_err (*body)(void *ctx, MPI_Comm comm, bool *own),
                    void *ctx);

/** Report a bad command line of a command that runs on one rank: once, on any number of ranks.
 *  Returns the exit status. */
int gw_cli_refuse(gw_err e);

#endif
