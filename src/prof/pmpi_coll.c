/* Collectives, each in six forms, and what a rank sends in one. It asks the library by PMPI_*,
 * which is not charged. */
#include "prof/pmpi.h"

/* ---- bytes ---- */

/* What a rank sends in a collective over P ranks when the algorithm moves as few bytes as any can
 * (Chan, Heimlich, Purkayastha, van de Geijn: "Collective communication: theory, practice, and
 * experience", CCPE 19, 2007; Patarasuk and Yuan, JPDC 69, 2009); the mean over the ranks where
 * they differ and cannot be told apart. MPI does not tell what its own algorithm sent.
 *
 *   allreduce              2 (P-1)/P n   n: bytes of the vector        coll_share(n, 2)
 *   reduce, bcast            (P-1)/P n   the mean: (P-1) n over P      coll_share(n, 1)
 *   reduce_scatter(_block)   (P-1)/P n   n: bytes before scattering    coll_share(n, 1)
 *   scan, exscan             (P-1)/P n   the mean of a chain           coll_share(n, 1)
 *   allgather                  (P-1) n   n: bytes of one rank's part   coll_others(n)
 *   allgatherv               (P-1)/P n   n: bytes of all parts         coll_share(n, 1)
 *   alltoall                   (P-1) n   n: bytes for each other rank  coll_others(n)
 *   alltoallv                  what goes to the others                 coll_swapped_v
 *   gather(v)                      n     but 0 at the root             coll_gathered
 *   scatter(v)                     0     but at the root all but its part coll_scattered(_v)
 *   neighbor_*             what goes to the neighbours                coll_near
 *   barrier                        0
 */

static uint64_t coll_ranks(MPI_Comm comm) {
    int n = 1;
    PMPI_Comm_size(comm, &n);
    return (uint64_t)n;
}

static int coll_rank_in(MPI_Comm comm) {
    int rank = 0;
    PMPI_Comm_rank(comm, &rank);
    return rank;
}

/* The counts of a call: ints, or MPI_Counts in its _c form, where the other is NULL; or both are,
 * and each is the same. */
typedef struct counts_of {
    const int *ints;
    const MPI_Count *wides;
    MPI_Count each;
} counts_of;

static counts_of coll_ints(const int counts[]) {
    return (counts_of){.ints = counts};
}

static counts_of coll_wides(const MPI_Count counts[]) {
    return (counts_of){.wides = counts};
}

static counts_of coll_each(MPI_Count count) {
    return (counts_of){.each = count};
}

#define COUNTS(counts)                                                                             \
    (_Generic((counts), const int * : coll_ints, const MPI_Count * : coll_wides,                   \
              default: coll_each)(counts))

static MPI_Count coll_at(counts_of counts, int i) {
    return counts.ints ? counts.ints[i] : counts.wides ? counts.wides[i] : counts.each;
}

/* passes * (P-1)/P * bytes, rounded down. */
static uint64_t coll_share(uint64_t bytes, unsigned passes, MPI_Comm comm) {
    uint64_t p = coll_ranks(comm);
    return passes * (p - 1) * bytes / p;
}

/* (P-1) * bytes. */
static uint64_t coll_others(uint64_t bytes, MPI_Comm comm) {
    return (coll_ranks(comm) - 1) * bytes;
}

static uint64_t coll_sum_but(counts_of counts, MPI_Datatype type, int skip, MPI_Comm comm) {
    MPI_Count sum = 0;
    int n = (int)coll_ranks(comm);
    for (int i = 0; i < n; i++)
        sum += i == skip ? 0 : coll_at(counts, i);
    return gw_pmpi_bytes(sum, type);
}

static uint64_t coll_sum(counts_of counts, MPI_Datatype type, MPI_Comm comm) {
    return coll_sum_but(counts, type, -1, comm);
}

/* Bytes that a rank gives to a gather: none at the root. */
static uint64_t coll_gathered(MPI_Count count, MPI_Datatype type, int root, MPI_Comm comm) {
    return coll_rank_in(comm) == root ? 0 : gw_pmpi_bytes(count, type);
}

/* Bytes that a rank gives to a scatter, a scatterv: at the root all but its own part. */
static uint64_t coll_scattered(MPI_Count count, MPI_Datatype type, int root, MPI_Comm comm) {
    return coll_rank_in(comm) == root ? coll_others(gw_pmpi_bytes(count, type), comm) : 0;
}

static uint64_t coll_scattered_v(counts_of counts, MPI_Datatype type, int root, MPI_Comm comm) {
    return coll_rank_in(comm) == root ? coll_sum_but(counts, type, root, comm) : 0;
}

/* Bytes that a rank gives to an alltoallv, an alltoallw (a type for each rank); in place, what it
 * receives is what it sends. */
static uint64_t coll_swapped_v(const void *sendbuf, counts_of sendcounts, MPI_Datatype sendtype,
                               counts_of recvcounts, MPI_Datatype recvtype, MPI_Comm comm) {
    if (sendbuf == MPI_IN_PLACE)
        return coll_sum_but(recvcounts, recvtype, coll_rank_in(comm), comm);
    return coll_sum_but(sendcounts, sendtype, coll_rank_in(comm), comm);
}

static uint64_t coll_swapped_w(const void *sendbuf, counts_of sendcounts,
                               const MPI_Datatype sendtypes[], counts_of recvcounts,
                               const MPI_Datatype recvtypes[], MPI_Comm comm) {
    bool in_place = sendbuf == MPI_IN_PLACE;
    uint64_t sum = 0;
    int n = (int)coll_ranks(comm), self = coll_rank_in(comm);
    for (int i = 0; i < n; i++)
        if (i != self)
            sum += gw_pmpi_bytes(coll_at(in_place ? recvcounts : sendcounts, i),
                                 (in_place ? recvtypes : sendtypes)[i]);
    return sum;
}

/* Bytes that a rank sends to its neighbours in `comm`, a grid or graph (MPI 4.0, section 8.6):
 * counts[i] to the i-th, of types[i] or (types NULL) all of one. On a Cartesian grid they are, for
 * each dimension, the one below and the one above; behind the border of a grid that is not periodic
 * there is none. A neighbour that is the rank itself counts. */
static uint64_t coll_near(counts_of counts, const MPI_Datatype types[], MPI_Datatype type,
                          MPI_Comm comm) {
    int kind = MPI_UNDEFINED, n = 0, in = 0, weighted = 0;
    uint64_t sum = 0;
    PMPI_Topo_test(comm, &kind);
    if (kind == MPI_CART)
        PMPI_Cartdim_get(comm, &n);
    else if (kind == MPI_GRAPH)
        PMPI_Graph_neighbors_count(comm, coll_rank_in(comm), &n);
    else if (kind == MPI_DIST_GRAPH)
        PMPI_Dist_graph_neighbors_count(comm, &in, &n, &weighted);
    for (int i = 0; i < (kind == MPI_CART ? 2 * n : n); i++) {
        int below = MPI_PROC_NULL, above = MPI_PROC_NULL;
        if (kind == MPI_CART)
            PMPI_Cart_shift(comm, i / 2, 1, &below, &above);
        if (kind != MPI_CART || (i % 2 ? above : below) != MPI_PROC_NULL)
            sum += gw_pmpi_bytes(coll_at(counts, i), types ? types[i] : type);
    }
    return sum;
}

/* ---- the calls ---- */

/* Define a collective's six forms: blocking MPI_Name, nonblocking MPI_Iname and persistent
 * MPI_Name_init, each with int counts and displacements and, as _c, with MPI_Count and MPI_Aint.
 * PARAMS(count_t, displ_t) are the parameters of the blocking form, PARAMS_ARGS their names, and
 * `bytes` is what this rank sends, in those names. */
#define COLLECTIVE(Name, name, PARAMS, bytes)                                                      \
    FORMS(Name, name, , PARAMS, int, int, bytes)                                                   \
    GW_PMPI_4(FORMS(Name, name, _c, PARAMS, MPI_Count, MPI_Aint, bytes))

#define FORMS(Name, name, c, PARAMS, count_t, displ_t, bytes)                                      \
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

/* Parameters by the type of a count and that of a displacement, and the same as arguments. */
#define VECTOR(count_t, displ_t)                                                                   \
    const void *sendbuf, void *recvbuf, count_t count, MPI_Datatype type, MPI_Op op, MPI_Comm comm
#define VECTOR_ARGS sendbuf, recvbuf, count, type, op, comm

#define VECTOR_ROOT(count_t, displ_t)                                                              \
    const void *sendbuf, void *recvbuf, count_t count, MPI_Datatype type, MPI_Op op, int root,     \
        MPI_Comm comm
#define VECTOR_ROOT_ARGS sendbuf, recvbuf, count, type, op, root, comm

#define VECTOR_PARTS(count_t, displ_t)                                                             \
    const void *sendbuf, void *recvbuf, const count_t counts[], MPI_Datatype type, MPI_Op op,      \
        MPI_Comm comm
#define VECTOR_PARTS_ARGS sendbuf, recvbuf, counts, type, op, comm

#define ONE(count_t, displ_t) void *buf, count_t count, MPI_Datatype type, int root, MPI_Comm comm
#define ONE_ARGS              buf, count, type, root, comm

#define SEND(count_t) const void *sendbuf, count_t sendcount, MPI_Datatype sendtype
#define RECV(count_t) void *recvbuf, count_t recvcount, MPI_Datatype recvtype
#define SEND_V(count_t, displ_t)                                                                   \
    const void *sendbuf, const count_t sendcounts[], const displ_t sdispls[], MPI_Datatype sendtype
#define RECV_V(count_t, displ_t)                                                                   \
    void *recvbuf, const count_t recvcounts[], const displ_t rdispls[], MPI_Datatype recvtype
#define SEND_ARGS   sendbuf, sendcount, sendtype
#define RECV_ARGS   recvbuf, recvcount, recvtype
#define SEND_V_ARGS sendbuf, sendcounts, sdispls, sendtype
#define RECV_V_ARGS recvbuf, recvcounts, rdispls, recvtype

#define PARTS(count_t, displ_t)      SEND(count_t), RECV(count_t), MPI_Comm comm
#define PARTS_ARGS                   SEND_ARGS, RECV_ARGS, comm
#define PARTS_ROOT(count_t, displ_t) SEND(count_t), RECV(count_t), int root, MPI_Comm comm
#define PARTS_ROOT_ARGS              SEND_ARGS, RECV_ARGS, root, comm
#define GATHER_V(count_t, displ_t)   SEND(count_t), RECV_V(count_t, displ_t), MPI_Comm comm
#define GATHER_V_ARGS                SEND_ARGS, RECV_V_ARGS, comm
#define GATHER_V_ROOT(count_t, displ_t)                                                            \
    SEND(count_t), RECV_V(count_t, displ_t), int root, MPI_Comm comm
#define GATHER_V_ROOT_ARGS SEND_ARGS, RECV_V_ARGS, root, comm
#define SCATTER_V_ROOT(count_t, displ_t)                                                           \
    SEND_V(count_t, displ_t), RECV(count_t), int root, MPI_Comm comm
#define SCATTER_V_ROOT_ARGS      SEND_V_ARGS, RECV_ARGS, root, comm
#define SWAP_V(count_t, displ_t) SEND_V(count_t, displ_t), RECV_V(count_t, displ_t), MPI_Comm comm
#define SWAP_V_ARGS              SEND_V_ARGS, RECV_V_ARGS, comm
#define SWAP_W(count_t, displ_t)                                                                   \
    const void *sendbuf, const count_t sendcounts[], const displ_t sdispls[],                      \
        const MPI_Datatype sendtypes[], void *recvbuf, const count_t recvcounts[],                 \
        const displ_t rdispls[], const MPI_Datatype recvtypes[], MPI_Comm comm
#define SWAP_W_ARGS                                                                                \
    sendbuf, sendcounts, sdispls, sendtypes, recvbuf, recvcounts, rdispls, recvtypes, comm
/* Displacements of the neighbourhood's alltoallw are MPI_Aint in all forms. */
#define NEAR_SWAP_W(count_t, displ_t) SWAP_W(count_t, MPI_Aint)
#define NEAR_SWAP_W_ARGS              SWAP_W_ARGS

COLLECTIVE(Allreduce, allreduce, VECTOR, coll_share(gw_pmpi_bytes(count, type), 2, comm))
COLLECTIVE(Reduce, reduce, VECTOR_ROOT, coll_share(gw_pmpi_bytes(count, type), 1, comm))
COLLECTIVE(Bcast, bcast, ONE, coll_share(gw_pmpi_bytes(count, type), 1, comm))
COLLECTIVE(Reduce_scatter_block, reduce_scatter_block, VECTOR,
           coll_others(gw_pmpi_bytes(count, type), comm))
COLLECTIVE(Reduce_scatter, reduce_scatter, VECTOR_PARTS,
           coll_share(coll_sum(COUNTS(counts), type, comm), 1, comm))
COLLECTIVE(Scan, scan, VECTOR, coll_share(gw_pmpi_bytes(count, type), 1, comm))
COLLECTIVE(Exscan, exscan, VECTOR, coll_share(gw_pmpi_bytes(count, type), 1, comm))
COLLECTIVE(Allgather, allgather, PARTS, coll_others(gw_pmpi_bytes(recvcount, recvtype), comm))
COLLECTIVE(Allgatherv, allgatherv, GATHER_V,
           coll_share(coll_sum(COUNTS(recvcounts), recvtype, comm), 1, comm))
COLLECTIVE(Gather, gather, PARTS_ROOT, coll_gathered(sendcount, sendtype, root, comm))
COLLECTIVE(Gatherv, gatherv, GATHER_V_ROOT, coll_gathered(sendcount, sendtype, root, comm))
COLLECTIVE(Scatter, scatter, PARTS_ROOT, coll_scattered(sendcount, sendtype, root, comm))
COLLECTIVE(Scatterv, scatterv, SCATTER_V_ROOT,
           coll_scattered_v(COUNTS(sendcounts), sendtype, root, comm))
COLLECTIVE(Alltoall, alltoall, PARTS, coll_others(gw_pmpi_bytes(recvcount, recvtype), comm))
COLLECTIVE(Alltoallv, alltoallv, SWAP_V,
           coll_swapped_v(sendbuf, COUNTS(sendcounts), sendtype, COUNTS(recvcounts), recvtype,
                          comm))
COLLECTIVE(Alltoallw, alltoallw, SWAP_W,
           coll_swapped_w(sendbuf, COUNTS(sendcounts), sendtypes, COUNTS(recvcounts), recvtypes,
                          comm))

COLLECTIVE(Neighbor_allgather, neighbor_allgather, PARTS,
           coll_near(COUNTS(sendcount), NULL, sendtype, comm))
COLLECTIVE(Neighbor_allgatherv, neighbor_allgatherv, GATHER_V,
           coll_near(COUNTS(sendcount), NULL, sendtype, comm))
COLLECTIVE(Neighbor_alltoall, neighbor_alltoall, PARTS,
           coll_near(COUNTS(sendcount), NULL, sendtype, comm))
COLLECTIVE(Neighbor_alltoallv, neighbor_alltoallv, SWAP_V,
           coll_near(COUNTS(sendcounts), NULL, sendtype, comm))
COLLECTIVE(Neighbor_alltoallw, neighbor_alltoallw, NEAR_SWAP_W,
           coll_near(COUNTS(sendcounts), sendtypes, MPI_DATATYPE_NULL, comm))

/* No data, no counts, so no _c. */
int MPI_Barrier(MPI_Comm comm) {
    GW_PMPI_CALL(GW_PHASE_MPI_WAIT, PMPI_Barrier(comm), 0, 0, 1);
}

int MPI_Ibarrier(MPI_Comm comm, MPI_Request *request) {
    GW_PMPI_POST(PMPI_Ibarrier(comm, request), request, 0, 0, 1);
}

/* Makes a communicator, which counts nothing; but its request is waited for like any other's. */
int MPI_Comm_idup(MPI_Comm comm, MPI_Comm *copy, MPI_Request *request) {
    GW_PMPI_POST(PMPI_Comm_idup(comm, copy, request), request, 0, 0, 0);
}

#if MPI_VERSION >= 4
int MPI_Comm_idup_with_info(MPI_Comm comm, MPI_Info info, MPI_Comm *copy, MPI_Request *request) {
    GW_PMPI_POST(PMPI_Comm_idup_with_info(comm, info, copy, request), request, 0, 0, 0);
}

int MPI_Barrier_init(MPI_Comm comm, MPI_Info info, MPI_Request *request) {
    GW_PMPI_INIT(PMPI_Barrier_init(comm, info, request), request, 0, 0, 1, -1);
}
#endif
