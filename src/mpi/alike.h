/** What must be alike on all ranks before they do anything together: the program and the command,
 *  the environment that changes results, all options, and what is in the files that options name.
 *  One small allreduce tells whether it is; only if not the first difference is looked for.
 *
 *  No option may differ by rank, --threads and --quiet neither: rank 0 describes the run, for all
 *  of them. Not compared are what rank 0 alone reads (the data set and a checkpoint's manifest,
 *  which has the checksums of all its files), variables that name a host's devices or place its
 *  threads (UCX_*, FI_*, OMP_PLACES ..), and OMP_NUM_THREADS, which --threads overrides. */
#ifndef GW_MPI_ALIKE_H
#define GW_MPI_ALIKE_H

#include "base/args.h"
#include "mpi/check.h"

#include <stdio.h>

/** Facts with their names, in the order in which they are told apart. */
typedef struct gw_alike {
    FILE *to; /* NULL: there was no memory; gw_alike_compare says so */
    char *text;
    size_t size;
} gw_alike;

/** Local: begin with the command (NULL: none), the program's version and the environment. */
void gw_alike_begin(gw_alike *a, const char *command);

/** Local: one more fact, or all options of `args`, or what is in the file that option `name` (NULL:
 *  none) has named; no such file: nothing. */
void gw_alike_add(gw_alike *a, const char *name, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void gw_alike_options(gw_alike *a, const gw_args *args);
void gw_alike_file(gw_alike *a, const char *name, const char *path);

/** Collective: compare and forget them. GW_ERR_USAGE on all ranks: one differs from rank 0; the
 *  message, in the name of `owner`, names it by its number in MPI_COMM_WORLD, and the fact with
 *  both values. */
gw_err gw_alike_compare(gw_alike *a, const char *owner, MPI_Comm comm);

#endif
