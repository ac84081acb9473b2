/** The common part of the interposed MPI calls (pmpi*.c). MPI's standard (MPI 4.0, chapter 15,
 *  "Profiling interface") lets a program define MPI_X itself and call the library's as PMPI_X: so
 *  every strategy, algorithm and plugin is timed and counted without knowing it.
 *
 *  Interposed are all calls of MPI 4.0 (an older library: of MPI 3.1) that move data between the
 *  ranks of an intracommunicator by messages, with their _c, nonblocking, persistent and
 *  neighbourhood forms, and the calls that start, test, wait for and free requests. Starting a
 *  nonblocking or persistent operation is charged to mpi_post, testing to mpi_poll, blocking to
 *  mpi_wait. Calls of other threads are counted, not timed.
 *
 *  Not interposed, and so charged to the phase around them, their bytes not counted: one-sided
 *  operations (MPI_Put ... and the synchronisation of windows; loads and stores in a shared window
 *  are no calls at all), partitioned ones (MPI_Psend_init, MPI_Pready ...; waiting for one is
 *  charged), files, and the making of communicators (except the requests of MPI_Comm_idup),
 *  windows, types and groups. Waiting for a request of theirs (MPI_Rput, MPI_File_iread) while
 *  interposed ones are in flight ends the flight of one of the latter in the ledger. */
#ifndef GW_PROF_PMPI_H
#define GW_PROF_PMPI_H

#include "mpi/present.h"
#include "prof/ledger.h"

#include <mpi.h>

/** End the calling function with `call`, an MPI call, and the code rc that it returns. If anybody
 *  measures, it runs in a region of `phase`, between a statement for what has to be known before it
 *  and one that tells what it did. */
#define GW_PMPI_MEASURED(phase, call, before, tell)                                                \
    do {                                                                                           \
        gw_present_enter(__func__);                                                                \
        if (!gw_probe_hooks.enter) {                                                               \
            int plain_ = (call);                                                                   \
            gw_present_leave();                                                                    \
            return plain_;                                                                         \
        }                                                                                          \
        gw_phase_enter(phase);                                                                     \
        before;                                                                                    \
        int rc = (call);                                                                           \
        tell;                                                                                      \
        gw_phase_leave();                                                                          \
        gw_present_leave();                                                                        \
        return rc;                                                                                 \
    } while (0)

/** The same; count what it sends if that counts (the three arguments are evaluated only then).
 */
#define GW_PMPI_CALL(phase, call, bytes, messages, collectives)                                    \
    GW_PMPI_MEASURED(phase, call, ,                                                                \
                     if (gw_ledger_counts() && rc == MPI_SUCCESS)                                  \
                         gw_ledger_count((bytes), (messages), (collectives)))

/** The same for a call that starts the operation *request. */
#define GW_PMPI_POST(call, request, bytes, messages, collectives)                                  \
    do {                                                                                           \
        gw_present_post(__func__);                                                                 \
        GW_PMPI_MEASURED(GW_PHASE_MPI_POST, call, ,                                                \
                         if (rc == MPI_SUCCESS && *(request) != MPI_REQUEST_NULL)                  \
                             gw_ledger_posted(1);                                                  \
                         if (gw_ledger_counts() && rc == MPI_SUCCESS)                              \
                             gw_ledger_count((bytes), (messages), (collectives)));                 \
    } while (0)

/** The same for a call that makes the persistent operation *request: it is counted at each start.
 *  `peer`: for whom, as gw_matrix_peer says. */
#define GW_PMPI_INIT(call, request, bytes, messages, collectives, peer)                            \
    do {                                                                                           \
        gw_phase_enter(GW_PHASE_MPI_POST);                                                         \
        int rc_ = (call);                                                                          \
        if (rc_ == MPI_SUCCESS)                                                                    \
            rc_ = gw_pmpi_persistent_add(*(request), (bytes), (messages), (collectives), (peer));  \
        gw_phase_leave();                                                                          \
        return rc_;                                                                                \
    } while (0)

/** Calls that came with MPI 4: nothing if the library is older. */
#if MPI_VERSION >= 4
#define GW_PMPI_4(...) __VA_ARGS__
#else
#define GW_PMPI_4(...)
#endif

/** Return the bytes of `count` elements of `type`. */
uint64_t gw_pmpi_bytes(MPI_Count count, MPI_Datatype type);

/** Remember a persistent request and what each start of it sends. MPI_ERR_NO_MEM: cannot. */
int gw_pmpi_persistent_add(MPI_Request request, uint64_t bytes, unsigned messages,
                           unsigned collectives, int peer);

#endif
