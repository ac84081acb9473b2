/** What the interposed MPI calls (pmpi*.c) share. MPI's standard (MPI 4.0, chapter 15, "Profiling
 *  interface") lets a program define MPI_X itself and reach the library's as PMPI_X: so every
 *  strategy, algorithm and plugin is timed and counted without knowing it.
 *
 *  Interposed are all calls of MPI 4.0, or those of MPI 3.1 that an older library has, that move
 *  data between the ranks of an intracommunicator by messages, with their _c, nonblocking and
 *  persistent forms, neighbourhoods included, and what starts, tests, waits for and frees requests.
 *  Starting a nonblocking or persistent operation is charged to mpi_post, testing to mpi_poll,
 *  blocking to mpi_wait. Calls of other threads are counted, not timed.
 *
 *  Not interposed, and so charged to the phase around them, their bytes not counted: one-sided
 *  operations (MPI_Put ... and the synchronisation of windows; loads and stores in a shared window
 *  are no calls at all), partitioned ones (MPI_Psend_init, MPI_Pready ...; waiting for one is
 *  charged), files, and the making of communicators (but for the requests of MPI_Comm_idup),
 * windows, types and groups. To wait for a request of theirs (MPI_Rput, MPI_File_iread) while
 * others are in flight ends the flight of one of those in the ledger. */
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

/** The same; count what it sends where that counts (the three arguments are evaluated only then).
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

/** Calls that came with MPI 4: nothing where the library is older. */
#if MPI_VERSION >= 4
#define GW_PMPI_4(...) __VA_ARGS__
#else
#define GW_PMPI_4(...)
#endif

/** Define a collective's six forms: blocking MPI_Name, nonblocking MPI_Iname and persistent
 *  MPI_Name_init, each with int counts and displacements and, as _c, with MPI_Count and MPI_Aint.
 *  PARAMS(count_t, displ_t) are the parameters of the blocking form, PARAMS_ARGS their names, and
 *  `bytes` is what this rank sends, in those names. */
#define GW_PMPI_COLLECTIVE(Name, name, PARAMS, bytes)                                              \
    GW_PMPI_FORMS(Name, name, , PARAMS, int, int, bytes)                                           \
    GW_PMPI_4(GW_PMPI_FORMS(Name, name, _c, PARAMS, MPI_Count, MPI_Aint, bytes))

#define GW_PMPI_FORMS(Name, name, c, PARAMS, count_t, displ_t, bytes)                              \
    int MPI_##Name##c(PARAMS(count_t, displ_t)) {                                                  \
        GW_PMPI_CALL(GW_PHASE_MPI_WAIT, PMPI_##Name##c(PARAMS##_ARGS), bytes, 0, 1);               \
    }                                                                                              \
    int MPI_I##name##c(PARAMS(count_t, displ_t), MPI_Request *request) {                           \
        GW_PMPI_POST(PMPI_I##name##c(PARAMS##_ARGS, request), request, bytes, 0, 1);               \
    }                                                                                              \
    GW_PMPI_4(                                                                                     \
        int MPI_##Name##_init##c(PARAMS(count_t, displ_t), MPI_Info info, MPI_Request *request) {  \
            GW_PMPI_INIT(PMPI_##Name##_init##c(PARAMS##_ARGS, info, request), request, bytes, 0,   \
                         1, -1);                                                                   \
        })

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
 *   neighbor_*             what goes to the neighbours                gw_pmpi_near(_v, _w)
 *   barrier                        0
 */

/** The counts of a call: ints, or MPI_Counts in its _c form, where the other is NULL; or both are,
 *  and each is the same. */
typedef struct gw_pmpi_counts {
    const int *ints;
    const MPI_Count *wides;
    MPI_Count each;
} gw_pmpi_counts;

gw_pmpi_counts gw_pmpi_ints(const int counts[]);
gw_pmpi_counts gw_pmpi_wides(const MPI_Count counts[]);
#define GW_PMPI_COUNTS(counts)                                                                     \
    (_Generic((counts), const int * : gw_pmpi_ints, const MPI_Count * : gw_pmpi_wides)(counts))

/** passes * (P-1)/P * bytes, rounded down. */
uint64_t gw_pmpi_share(uint64_t bytes, unsigned passes, MPI_Comm comm);

/** (P-1) * bytes. */
uint64_t gw_pmpi_others(uint64_t bytes, MPI_Comm comm);

/** Bytes of counts[0..P) elements of `type`. */
uint64_t gw_pmpi_sum(gw_pmpi_counts counts, MPI_Datatype type, MPI_Comm comm);

/** Bytes that a rank gives to a gather: none at the root. */
uint64_t gw_pmpi_gathered(MPI_Count count, MPI_Datatype type, int root, MPI_Comm comm);

/** Bytes that a rank gives to a scatter, a scatterv: at the root all but its own part. */
uint64_t gw_pmpi_scattered(MPI_Count count, MPI_Datatype type, int root, MPI_Comm comm);
uint64_t gw_pmpi_scattered_v(gw_pmpi_counts counts, MPI_Datatype type, int root, MPI_Comm comm);

/** Bytes that a rank gives to an alltoallv, an alltoallw (a type for each rank); in place, what it
 *  receives is what it sends. */
uint64_t gw_pmpi_swapped_v(const void *sendbuf, gw_pmpi_counts sendcounts, MPI_Datatype sendtype,
                           gw_pmpi_counts recvcounts, MPI_Datatype recvtype, MPI_Comm comm);
uint64_t gw_pmpi_swapped_w(const void *sendbuf, gw_pmpi_counts sendcounts,
                           const MPI_Datatype sendtypes[], gw_pmpi_counts recvcounts,
                           const MPI_Datatype recvtypes[], MPI_Comm comm);

/** Bytes that a rank sends to its neighbours in `comm`, a grid or graph: the same to each, or
 *  counts[i] (of types[i]) to the i-th. A neighbour that is the rank itself counts. */
uint64_t gw_pmpi_near(MPI_Count count, MPI_Datatype type, MPI_Comm comm);
uint64_t gw_pmpi_near_v(gw_pmpi_counts counts, MPI_Datatype type, MPI_Comm comm);
uint64_t gw_pmpi_near_w(gw_pmpi_counts counts, const MPI_Datatype types[], MPI_Comm comm);

/** Remember a persistent request and what each start of it sends. MPI_ERR_NO_MEM: cannot. */
int gw_pmpi_persistent_add(MPI_Request request, uint64_t bytes, unsigned messages,
                           unsigned collectives, int peer);

#endif
