/* Checks for programs under mpiexec. The first failure prints what and where, and aborts the whole
 * job, so that a broken promise neither passes nor hangs. */
#ifndef GW_TESTS_CHECK_H
#define GW_TESTS_CHECK_H

#include "base/err.h"

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define CHECK(cond, ...)                                                                           \
    do {                                                                                           \
        if (!(cond)) {                                                                             \
            int check_rank_ = -1;                                                                  \
            MPI_Comm_rank(MPI_COMM_WORLD, &check_rank_);                                           \
            fprintf(stderr, "%s:%d: rank %d: %s: ", __FILE__, __LINE__, check_rank_, #cond);       \
            fprintf(stderr, __VA_ARGS__);                                                          \
            fputc('\n', stderr);                                                                   \
            fflush(stderr);                                                                        \
            usleep(200000); /* after an abort the launcher drops output that it has not read */    \
            MPI_Abort(MPI_COMM_WORLD, 1);                                                          \
        }                                                                                          \
    } while (0)

/** A call of gradwire's that must succeed. */
#define CHECK_OK(call) CHECK((call) == GW_OK, "%s", gw_err_text())

/** A call of MPI's that must succeed. */
#define CHECK_MPI(call) CHECK((call) == MPI_SUCCESS, "MPI refuses")

/** After MPI_Init: the number of ranks. The suite passes in argv[1] how many it has started. The
 *  launcher of another MPI would start that many programs that each believe to be alone, and the
 *  test would pass without ever having had a neighbour. By hand argv[1] may be left out. */
static inline int check_ranks(int argc, char **argv) {
    int size = 0;
    CHECK_MPI(MPI_Comm_size(MPI_COMM_WORLD, &size));
    CHECK(argc < 2 || atoi(argv[1]) == size, "%s ranks were started, but there are %d", argv[1],
          size);
    return size;
}

#endif
