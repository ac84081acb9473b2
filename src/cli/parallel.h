/** Running a command on all ranks: MPI started, errors told once, exit statuses agreed. */
#ifndef GW_CLI_PARALLEL_H
#define GW_CLI_PARALLEL_H

#include "base/args.h"

#include <mpi.h>
#include <stdbool.h>

/** What all ranks must have been told alike: by the command line, and by a file that it names
 *  beside those of its options. */
typedef struct gw_cli_told {
    const char *command, *part; /* "bench", "step"; part NULL: it has none */
    const gw_args *args;
    const char *file; /* NULL: none */
} gw_cli_told;

/** Collective: GW_ERR_USAGE, in the command's name, if the ranks were told different things, or
 *  differ as mpi/alike.h says. */
gw_err gw_cli_alike(const gw_cli_told *told, MPI_Comm comm);

/** Start MPI at thread level `level`, run `body` on all ranks, end MPI; returns the exit status.
 *  `parsed` is the result of reading the command line. If any rank found an error there (such as a
 *  plugin that its host lacks), or the ranks were `told` different things, rank 0 prints it and
 *  `body` runs on no rank. So if another MPI's launcher has started them. Rank 0 also prints an
 *  error that `body` returns, unless `body` set *own: then the failing rank prints it and ends the
 *  whole job. */
int gw_cli_parallel(const gw_cli_told *told, int level, gw_err parsed,
                    gw_err (*body)(void *ctx, MPI_Comm comm, bool *own), void *ctx);

/** Report a bad command line of a command that runs on one rank: once, on any number of ranks.
 *  Returns the exit status. */
int gw_cli_refuse(gw_err e);

#endif
