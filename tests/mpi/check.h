/** For test programs under mpiexec: a failed check ends all ranks. */
#ifndef GW_TESTS_MPI_CHECK_H
#define GW_TESTS_MPI_CHECK_H

#include <mpi.h>
#include <stdio.h>

/** Abort the job, telling rank, place and the formatted text, unless `cond` holds. */
#define CHECK(cond, ...)                                                                           \
    do {                                                                                           \
        if (!(cond)) {                                                                             \
            int check_rank_ = -1;                                                                  \
            MPI_Comm_rank(MPI_COMM_WORLD, &check_rank_);                                           \
            fprintf(stderr, "rank %d, %s:%d: not (%s): ", check_rank_, __FILE__, __LINE__, #cond); \
            fprintf(stderr, __VA_ARGS__);                                                          \
            fprintf(stderr, "\n");                                                                 \
            MPI_Abort(MPI_COMM_WORLD, 1);                                                          \
        }                                                                                          \
    } while (0)

#endif
