/* Checks for programs under mpiexec. The first failure prints what and where, and aborts the whole
 * job, so that a broken promise neither passes nor hangs. */
#ifndef GW_TESTS_CHECK_H
#define GW_TESTS_CHECK_H

#include "base/err.h"
#include "comm/algo.h"
#include "mpi/wait.h"
#include "prof/clock.h"
#include "prof/ledger.h"

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <zlib.h>

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

static int me, ranks; /* this rank, and how many there are */

/** Start MPI and all that a test in the program's place needs; return this rank. There may be more
 *  ranks than cores, so whoever waits gives its core away. */
static inline int check_start(int argc, char **argv) {
    int level;
    CHECK_MPI(MPI_Init_thread(&argc, &argv, MPI_THREAD_SERIALIZED, &level));
    CHECK(level >= MPI_THREAD_SERIALIZED, "MPI gives thread level %d", level);
    CHECK_MPI(MPI_Comm_rank(MPI_COMM_WORLD, &me));
    gw_wait_yields(true);
    gw_clock_start();
    gw_ledger_start();
    ranks = check_ranks(argc, argv);
    return me;
}

/** Collective: are these bytes the same on all ranks? */
static inline bool same_on_all(const void *x, size_t bytes) {
    uint32_t crc = (uint32_t)crc32_z(0, x, bytes), all[2] = {crc, ~crc};
    CHECK_OK(gw_allreduce(MPI_IN_PLACE, all, 2, MPI_UINT32_T, MPI_MAX, MPI_COMM_WORLD));
    return all[0] == crc && all[1] == ~crc;
}

/** Collective: what all ranks were charged is what the formula says. For a collective of MPI's each
 *  of them is charged a whole number of bytes. */
static inline void check_charges(const char *what, const gw_batch_cost *c, gw_cost want) {
    uint64_t all[3] = {c->wire_bytes, c->messages, c->collectives};
    CHECK_OK(gw_allreduce(MPI_IN_PLACE, all, 3, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD));
    CHECK(all[0] <= want.bytes && all[0] + all[2] >= want.bytes && all[1] == want.messages,
          "%s: %llu bytes in %llu messages, the formula says %llu in %llu", what,
          (unsigned long long)all[0], (unsigned long long)all[1], (unsigned long long)want.bytes,
          (unsigned long long)want.messages);
}

#endif
