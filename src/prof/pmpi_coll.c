/* Collectives, each in six forms: bytes after the table in pmpi.h. */
#include "prof/pmpi.h"

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

GW_PMPI_COLLECTIVE(Allreduce, allreduce, VECTOR, gw_pmpi_share(gw_pmpi_bytes(count, type), 2, comm))
GW_PMPI_COLLECTIVE(Reduce, reduce, VECTOR_ROOT, gw_pmpi_share(gw_pmpi_bytes(count, type), 1, comm))
GW_PMPI_COLLECTIVE(Bcast, bcast, ONE, gw_pmpi_share(gw_pmpi_bytes(count, type), 1, comm))
GW_PMPI_COLLECTIVE(Reduce_scatter_block, reduce_scatter_block, VECTOR,
                   gw_pmpi_others(gw_pmpi_bytes(count, type), comm))
GW_PMPI_COLLECTIVE(Reduce_scatter, reduce_scatter, VECTOR_PARTS,
                   gw_pmpi_share(gw_pmpi_sum(GW_PMPI_COUNTS(counts), type, comm), 1, comm))
GW_PMPI_COLLECTIVE(Scan, scan, VECTOR, gw_pmpi_share(gw_pmpi_bytes(count, type), 1, comm))
GW_PMPI_COLLECTIVE(Exscan, exscan, VECTOR, gw_pmpi_share(gw_pmpi_bytes(count, type), 1, comm))
GW_PMPI_COLLECTIVE(Allgather, allgather, PARTS,
                   gw_pmpi_others(gw_pmpi_bytes(recvcount, recvtype), comm))
GW_PMPI_COLLECTIVE(Allgatherv, allgatherv, GATHER_V,
                   gw_pmpi_share(gw_pmpi_sum(GW_PMPI_COUNTS(recvcounts), recvtype, comm), 1, comm))
GW_PMPI_COLLECTIVE(Gather, gather, PARTS_ROOT, gw_pmpi_gathered(sendcount, sendtype, root, comm))
GW_PMPI_COLLECTIVE(Gatherv, gatherv, GATHER_V_ROOT,
                   gw_pmpi_gathered(sendcount, sendtype, root, comm))
GW_PMPI_COLLECTIVE(Scatter, scatter, PARTS_ROOT, gw_pmpi_scattered(sendcount, sendtype, root, comm))
GW_PMPI_COLLECTIVE(Scatterv, scatterv, SCATTER_V_ROOT,
                   gw_pmpi_scattered_v(GW_PMPI_COUNTS(sendcounts), sendtype, root, comm))
GW_PMPI_COLLECTIVE(Alltoall, alltoall, PARTS,
                   gw_pmpi_others(gw_pmpi_bytes(recvcount, recvtype), comm))
GW_PMPI_COLLECTIVE(Alltoallv, alltoallv, SWAP_V,
                   gw_pmpi_swapped_v(sendbuf, GW_PMPI_COUNTS(sendcounts), sendtype,
                                     GW_PMPI_COUNTS(recvcounts), recvtype, comm))
GW_PMPI_COLLECTIVE(Alltoallw, alltoallw, SWAP_W,
                   gw_pmpi_swapped_w(sendbuf, GW_PMPI_COUNTS(sendcounts), sendtypes,
                                     GW_PMPI_COUNTS(recvcounts), recvtypes, comm))

GW_PMPI_COLLECTIVE(Neighbor_allgather, neighbor_allgather, PARTS,
                   gw_pmpi_near(sendcount, sendtype, comm))
GW_PMPI_COLLECTIVE(Neighbor_allgatherv, neighbor_allgatherv, GATHER_V,
                   gw_pmpi_near(sendcount, sendtype, comm))
GW_PMPI_COLLECTIVE(Neighbor_alltoall, neighbor_alltoall, PARTS,
                   gw_pmpi_near(sendcount, sendtype, comm))
GW_PMPI_COLLECTIVE(Neighbor_alltoallv, neighbor_alltoallv, SWAP_V,
                   gw_pmpi_near_v(GW_PMPI_COUNTS(sendcounts), sendtype, comm))
GW_PMPI_COLLECTIVE(Neighbor_alltoallw, neighbor_alltoallw, NEAR_SWAP_W,
                   gw_pmpi_near_w(GW_PMPI_COUNTS(sendcounts), sendtypes, comm))

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
