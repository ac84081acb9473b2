/** Compares what must be alike on all ranks before they do anything together: the program and the
 *  command, the environment that changes results, all options, and the contents of the files that
 *  options name. One small allreduce finds out; only if something differs, the first difference is
 *  searched.
 *
 *  No option may differ by rank, not even --threads and --quiet: rank 0 describes the run for all.
 *  Not compared: what only rank 0 reads (the data set, and a checkpoint's manifest, which has the
 *  checksums of all its files), variables that name a host's devices or place its threads (UCX_*,
 *  FI_*, OMP_PLACES ..), and OMP_NUM_THREADS, which --threads overrides. */
#ifndef GW_MPI_ALIKE_H
#define GW_MPI_ALIKE_H

#include "base/args.h"
#include "mpi/check.h"

#include <stdio.h>

/** Facts with their names, in the order of comparison. */
typedef struct gw_alike {
    FILE *to; /* NULL: there was no memory; gw_alike_compare says so */
    char *text;
    size_t size;
} gw_alike;

/** Begin with the command (NULL: none), the program's version and the environment. Local. */
void gw_alike_begin(gw_alike *a, const char *command);

/** Add a fact, all options of `args`, or the contents of the file that option `name` names (NULL:
 *  none); nothing if there is no such file. Local. */
void gw_alike_add(gw_alike *a, const char *name, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void gw_alike_options(gw_alike *a, const gw_args *args);
void gw_alike_file(gw_alike *a, const char *name, const char *path);

/** Compare and forget the facts. GW_ERR_USAGE on all ranks: a rank differs from rank 0; the message
 *  of `owner` names that rank in MPI_COMM_WORLD, and the fact with both values. Collective. */
gw_err gw_alike_compare(gw_alike *a, const char *owner, MPI_Comm comm);

#endif
