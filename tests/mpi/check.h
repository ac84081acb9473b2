/* Checks for programs under mpiexec: the first that fails says what and where and ends the whole
 * job, so a broken promise can neither pass nor hang. */
#ifndef GW_TESTS_CHECK_H
#define GW_TESTS_CHECK_H

#include "base/err.h"

#include <mpi.h>
#include <stdio.h>

#define CHECK(cond, ...)                                                                           \
    do {                                                                                           \
        if (!(cond)) {                                                                             \
            int check_rank_ = -1;                                                                  \
            MPI_Comm_rank(MPI_COMM_WORLD, &check_rank_);                                           \
            fprintf(stderr, "%s:%d: rank %d: %s: ", __FILE__, __LINE__, check_rank_, #cond);       \
            fprintf(stderr, __VA_ARGS__);                                                          \
            fputc('\n', stderr);                                                                   \
            fflush(stderr);                                                                        \
            MPI_Abort(MPI_COMM_WORLD, 1);                                                          \
        }                                                                                          \
    } while (0)

/** A call of gradwire's that must succeed. */
#define CHECK_OK(call) CHECK((call) == GW_OK, "%s", gw_err_text())

#endif
