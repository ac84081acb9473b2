/* Blocking collectives: charged to mpi_wait, bytes after the table in pmpi.h. */
#include "prof/pmpi.h"

int MPI_Allreduce(const void *sendbuf, void *recvbuf, int count, MPI_Datatype type, MPI_Op op,
                  MPI_Comm comm) {
    GW_PMPI_CALL(GW_PHASE_MPI_WAIT, PMPI_Allreduce(sendbuf, recvbuf, count, type, op, comm),
                 gw_pmpi_share(gw_pmpi_bytes(count, type), 2, comm), 0, 1);
}

int MPI_Allreduce_c(const void *sendbuf, void *recvbuf, MPI_Count count, MPI_Datatype type,
                    MPI_Op op, MPI_Comm comm) {
    GW_PMPI_CALL(GW_PHASE_MPI_WAIT, PMPI_Allreduce_c(sendbuf, recvbuf, count, type, op, comm),
                 gw_pmpi_share(gw_pmpi_bytes(count, type), 2, comm), 0, 1);
}

int MPI_Reduce(const void *sendbuf, void *recvbuf, int count, MPI_Datatype type, MPI_Op op,
               int root, MPI_Comm comm) {
    GW_PMPI_CALL(GW_PHASE_MPI_WAIT, PMPI_Reduce(sendbuf, recvbuf, count, type, op, root, comm),
                 gw_pmpi_share(gw_pmpi_bytes(count, type), 1, comm), 0, 1);
}

int MPI_Reduce_c(const void *sendbuf, void *recvbuf, MPI_Count count, MPI_Datatype type, MPI_Op op,
                 int root, MPI_Comm comm) {
    GW_PMPI_CALL(GW_PHASE_MPI_WAIT, PMPI_Reduce_c(sendbuf, recvbuf, count, type, op, root, comm),
                 gw_pmpi_share(gw_pmpi_bytes(count, type), 1, comm), 0, 1);
}

int MPI_Bcast(void *buf, int count, MPI_Datatype type, int root, MPI_Comm comm) {
    GW_PMPI_CALL(GW_PHASE_MPI_WAIT, PMPI_Bcast(buf, count, type, root, comm),
                 gw_pmpi_share(gw_pmpi_bytes(count, type), 1, comm), 0, 1);
}

int MPI_Bcast_c(void *buf, MPI_Count count, MPI_Datatype type, int root, MPI_Comm comm) {
    GW_PMPI_CALL(GW_PHASE_MPI_WAIT, PMPI_Bcast_c(buf, count, type, root, comm),
                 gw_pmpi_share(gw_pmpi_bytes(count, type), 1, comm), 0, 1);
}

int MPI_Reduce_scatter_block(const void *sendbuf, void *recvbuf, int count, MPI_Datatype type,
                             MPI_Op op, MPI_Comm comm) {
    GW_PMPI_CALL(GW_PHASE_MPI_WAIT,
                 PMPI_Reduce_scatter_block(sendbuf, recvbuf, count, type, op, comm),
                 gw_pmpi_others(gw_pmpi_bytes(count, type), comm), 0, 1);
}

int MPI_Reduce_scatter(const void *sendbuf, void *recvbuf, const int counts[], MPI_Datatype type,
                       MPI_Op op, MPI_Comm comm) {
    GW_PMPI_CALL(GW_PHASE_MPI_WAIT, PMPI_Reduce_scatter(sendbuf, recvbuf, counts, type, op, comm),
                 gw_pmpi_share(gw_pmpi_sum(counts, type, -1, comm), 1, comm), 0, 1);
}

int MPI_Scan(const void *sendbuf, void *recvbuf, int count, MPI_Datatype type, MPI_Op op,
             MPI_Comm comm) {
    GW_PMPI_CALL(GW_PHASE_MPI_WAIT, PMPI_Scan(sendbuf, recvbuf, count, type, op, comm),
                 gw_pmpi_share(gw_pmpi_bytes(count, type), 1, comm), 0, 1);
}

int MPI_Exscan(const void *sendbuf, void *recvbuf, int count, MPI_Datatype type, MPI_Op op,
               MPI_Comm comm) {
    GW_PMPI_CALL(GW_PHASE_MPI_WAIT, PMPI_Exscan(sendbuf, recvbuf, count, type, op, comm),
                 gw_pmpi_share(gw_pmpi_bytes(count, type), 1, comm), 0, 1);
}

int MPI_Allgather(const void *sendbuf, int sendcount, MPI_Datatype sendtype, void *recvbuf,
                  int recvcount, MPI_Datatype recvtype, MPI_Comm comm) {
    GW_PMPI_CALL(GW_PHASE_MPI_WAIT,
                 PMPI_Allgather(sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, comm),
                 gw_pmpi_others(gw_pmpi_bytes(recvcount, recvtype), comm), 0, 1);
}

int MPI_Allgather_c(const void *sendbuf, MPI_Count sendcount, MPI_Datatype sendtype, void *recvbuf,
                    MPI_Count recvcount, MPI_Datatype recvtype, MPI_Comm comm) {
    GW_PMPI_CALL(GW_PHASE_MPI_WAIT,
                 PMPI_Allgather_c(sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, comm),
                 gw_pmpi_others(gw_pmpi_bytes(recvcount, recvtype), comm), 0, 1);
}

int MPI_Allgatherv(const void *sendbuf, int sendcount, MPI_Datatype sendtype, void *recvbuf,
                   const int recvcounts[], const int displs[], MPI_Datatype recvtype,
                   MPI_Comm comm) {
    GW_PMPI_CALL(
        GW_PHASE_MPI_WAIT,
        PMPI_Allgatherv(sendbuf, sendcount, sendtype, recvbuf, recvcounts, displs, recvtype, comm),
        gw_pmpi_share(gw_pmpi_sum(recvcounts, recvtype, -1, comm), 1, comm), 0, 1);
}

int MPI_Gather(const void *sendbuf, int sendcount, MPI_Datatype sendtype, void *recvbuf,
               int recvcount, MPI_Datatype recvtype, int root, MPI_Comm comm) {
    GW_PMPI_CALL(
        GW_PHASE_MPI_WAIT,
        PMPI_Gather(sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, root, comm),
        gw_pmpi_gathered(sendcount, sendtype, root, comm), 0, 1);
}

int MPI_Gatherv(const void *sendbuf, int sendcount, MPI_Datatype sendtype, void *recvbuf,
                const int recvcounts[], const int displs[], MPI_Datatype recvtype, int root,
                MPI_Comm comm) {
    GW_PMPI_CALL(GW_PHASE_MPI_WAIT,
                 PMPI_Gatherv(sendbuf, sendcount, sendtype, recvbuf, recvcounts, displs, recvtype,
                              root, comm),
                 gw_pmpi_gathered(sendcount, sendtype, root, comm), 0, 1);
}

int MPI_Scatter(const void *sendbuf, int sendcount, MPI_Datatype sendtype, void *recvbuf,
                int recvcount, MPI_Datatype recvtype, int root, MPI_Comm comm) {
    GW_PMPI_CALL(
        GW_PHASE_MPI_WAIT,
        PMPI_Scatter(sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, root, comm),
        gw_pmpi_scattered(sendcount, sendtype, root, comm), 0, 1);
}

int MPI_Scatterv(const void *sendbuf, const int sendcounts[], const int displs[],
                 MPI_Datatype sendtype, void *recvbuf, int recvcount, MPI_Datatype recvtype,
                 int root, MPI_Comm comm) {
    GW_PMPI_CALL(GW_PHASE_MPI_WAIT,
                 PMPI_Scatterv(sendbuf, sendcounts, displs, sendtype, recvbuf, recvcount, recvtype,
                               root, comm),
                 gw_pmpi_scattered_v(sendcounts, sendtype, root, comm), 0, 1);
}

int MPI_Alltoall(const void *sendbuf, int sendcount, MPI_Datatype sendtype, void *recvbuf,
                 int recvcount, MPI_Datatype recvtype, MPI_Comm comm) {
    GW_PMPI_CALL(GW_PHASE_MPI_WAIT,
                 PMPI_Alltoall(sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, comm),
                 gw_pmpi_others(gw_pmpi_bytes(recvcount, recvtype), comm), 0, 1);
}

int MPI_Alltoallv(const void *sendbuf, const int sendcounts[], const int sdispls[],
                  MPI_Datatype sendtype, void *recvbuf, const int recvcounts[], const int rdispls[],
                  MPI_Datatype recvtype, MPI_Comm comm) {
    GW_PMPI_CALL(GW_PHASE_MPI_WAIT,
                 PMPI_Alltoallv(sendbuf, sendcounts, sdispls, sendtype, recvbuf, recvcounts,
                                rdispls, recvtype, comm),
                 gw_pmpi_swapped_v(sendbuf, sendcounts, sendtype, recvcounts, recvtype, comm), 0,
                 1);
}

int MPI_Barrier(MPI_Comm comm) {
    GW_PMPI_CALL(GW_PHASE_MPI_WAIT, PMPI_Barrier(comm), 0, 0, 1);
}
