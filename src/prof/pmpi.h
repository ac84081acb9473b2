/** What the interposed MPI calls (pmpi*.c) share. MPI's standard (MPI 4.0, chapter 15, "Profiling
 *  interface") lets a program define MPI_X itself and reach the library's as PMPI_X: so every
 *  strategy, algorithm and plugin is timed and counted without knowing it.
 *
 *  Starting a nonblocking operation is charged to mpi_post, testing to mpi_poll, blocking to
 *  mpi_wait. Calls of other threads are counted, not timed. Not interposed, and so charged to the
 *  phase around them: one-sided, neighbourhood, partitioned and file operations, and the making of
 *  communicators, types and groups. Intracommunicators only. */
#ifndef GW_PROF_PMPI_H
#define GW_PROF_PMPI_H

#include "prof/ledger.h"

#include <mpi.h>

/** Run `call` in a region of `phase`; inside a batch count what it sends (the three arguments are
 *  evaluated only then). Ends the calling function with MPI's return code. */
#define GW_PMPI_CALL(phase, call, bytes, messages, collectives)                                    \
    do {                                                                                           \
        gw_phase_enter(phase);                                                                     \
        int rc_ = (call);                                                                          \
        if (gw_ledger_counting() && rc_ == MPI_SUCCESS)                                            \
            gw_ledger_count((bytes), (messages), (collectives));                                   \
        gw_phase_leave();                                                                          \
        return rc_;                                                                                \
    } while (0)

/** The same for a call that starts the operation *request. */
#define GW_PMPI_POST(call, request, bytes, messages, collectives)                                  \
    do {                                                                                           \
        gw_phase_enter(GW_PHASE_MPI_POST);                                                         \
        int rc_ = (call);                                                                          \
        if (rc_ == MPI_SUCCESS && *(request) != MPI_REQUEST_NULL)                                  \
            gw_ledger_posted(1);                                                                   \
        if (gw_ledger_counting() && rc_ == MPI_SUCCESS)                                            \
            gw_ledger_count((bytes), (messages), (collectives));                                   \
        gw_phase_leave();                                                                          \
        return rc_;                                                                                \
    } while (0)

/** The same for a call that makes the persistent operation *request: it is counted at each start.
 */
#define GW_PMPI_INIT(call, request, bytes, messages, collectives)                                  \
    do {                                                                                           \
        gw_phase_enter(GW_PHASE_MPI_POST);                                                         \
        int rc_ = (call);                                                                          \
        if (rc_ == MPI_SUCCESS)                                                                    \
            rc_ = gw_pmpi_persistent_add(*(request), (bytes), (messages), (collectives));          \
        gw_phase_leave();                                                                          \
        return rc_;                                                                                \
    } while (0)

/** Bytes of `count` elements of `type`. */
uint64_t gw_pmpi_bytes(MPI_Count count, MPI_Datatype type);

/** Bytes of a message to `dest`: none to MPI_PROC_NULL. */
uint64_t gw_pmpi_sent(MPI_Count count, MPI_Datatype type, int dest);

/* What a rank sends in a collective over P ranks when the algorithm moves as few bytes as any can
 * (Chan, Heimlich, Purkayastha, van de Geijn: "Collective communication: theory, practice, and
 * experience", CCPE 19, 2007; Patarasuk and Yuan, JPDC 69, 2009); the mean over the ranks where
 * they differ and cannot be told apart. MPI does not tell what its own algorithm sent.
 *
 *   allreduce              2 (P-1)/P n   n: bytes of the vector        gw_pmpi_share(n, 2)
 *   reduce, bcast            (P-1)/P n   the mean: (P-1) n over P      gw_pmpi_share(n, 1)
 *   reduce_scatter(_block)   (P-1)/P n   n: bytes before scattering    gw_pmpi_share(n, 1)
 *   scan, exscan             (P-1)/P n   the mean of a chain           gw_pmpi_share(n, 1)
 *   allgather                  (P-1) n   n: bytes of one rank's part   gw_pmpi_others(n)
 *   allgatherv               (P-1)/P n   n: bytes of all parts         gw_pmpi_share(n, 1)
 *   alltoall                   (P-1) n   n: bytes for each other rank  gw_pmpi_others(n)
 *   alltoallv                  what goes to the others                 gw_pmpi_swapped_v
 *   gather(v)                      n     but 0 at the root             gw_pmpi_gathered
 *   scatter(v)                     0     but at the root all but its part gw_pmpi_scattered(_v)
 *   barrier                        0
 */

/** passes * (P-1)/P * bytes, rounded down. */
uint64_t gw_pmpi_share(uint64_t bytes, unsigned passes, MPI_Comm comm);

/** (P-1) * bytes. */
uint64_t gw_pmpi_others(uint64_t bytes, MPI_Comm comm);

/** Bytes of counts[0..P) elements of `type`, leaving out counts[skip] (-1: none). */
uint64_t gw_pmpi_sum(const int counts[], MPI_Datatype type, int skip, MPI_Comm comm);

/** Bytes that a rank gives to a gather: none at the root. */
uint64_t gw_pmpi_gathered(MPI_Count count, MPI_Datatype type, int root, MPI_Comm comm);

/** Bytes that a rank gives to a scatter, a scatterv: at the root all but its own part. */
uint64_t gw_pmpi_scattered(MPI_Count count, MPI_Datatype type, int root, MPI_Comm comm);
uint64_t gw_pmpi_scattered_v(const int counts[], MPI_Datatype type, int root, MPI_Comm comm);

/** Bytes that a rank gives to an alltoallv; in place, what it receives is what it sends. */
uint64_t gw_pmpi_swapped_v(const void *sendbuf, const int sendcounts[], MPI_Datatype sendtype,
                           const int recvcounts[], MPI_Datatype recvtype, MPI_Comm comm);

/** Remember a persistent request and what each start of it sends. MPI_ERR_NO_MEM: cannot. */
int gw_pmpi_persistent_add(MPI_Request request, uint64_t bytes, unsigned messages,
                           unsigned collectives);

#endif
