/* Nonblocking and persistent collectives: their start is charged to mpi_post; bytes after the table
 * in pmpi.h, counted when posted or started. */
#include "prof/pmpi.h"

int MPI_Iallreduce(const void *sendbuf, void *recvbuf, int count, MPI_Datatype type, MPI_Op op,
                   MPI_Comm comm, MPI_Request *request) {
    GW_PMPI_POST(PMPI_Iallreduce(sendbuf, recvbuf, count, type, op, comm, request), request,
                 gw_pmpi_share(gw_pmpi_bytes(count, type), 2, comm), 0, 1);
}

int MPI_Iallreduce_c(const void *sendbuf, void *recvbuf, MPI_Count count, MPI_Datatype type,
                     MPI_Op op, MPI_Comm comm, MPI_Request *request) {
    GW_PMPI_POST(PMPI_Iallreduce_c(sendbuf, recvbuf, count, type, op, comm, request), request,
                 gw_pmpi_share(gw_pmpi_bytes(count, type), 2, comm), 0, 1);
}

int MPI_Allreduce_init(const void *sendbuf, void *recvbuf, int count, MPI_Datatype type, MPI_Op op,
                       MPI_Comm comm, MPI_Info info, MPI_Request *request) {
    GW_PMPI_INIT(PMPI_Allreduce_init(sendbuf, recvbuf, count, type, op, comm, info, request),
                 request, gw_pmpi_share(gw_pmpi_bytes(count, type), 2, comm), 0, 1);
}

int MPI_Allreduce_init_c(const void *sendbuf, void *recvbuf, MPI_Count count, MPI_Datatype type,
                         MPI_Op op, MPI_Comm comm, MPI_Info info, MPI_Request *request) {
    GW_PMPI_INIT(PMPI_Allreduce_init_c(sendbuf, recvbuf, count, type, op, comm, info, request),
                 request, gw_pmpi_share(gw_pmpi_bytes(count, type), 2, comm), 0, 1);
}

int MPI_Ireduce(const void *sendbuf, void *recvbuf, int count, MPI_Datatype type, MPI_Op op,
                int root, MPI_Comm comm, MPI_Request *request) {
    GW_PMPI_POST(PMPI_Ireduce(sendbuf, recvbuf, count, type, op, root, comm, request), request,
                 gw_pmpi_share(gw_pmpi_bytes(count, type), 1, comm), 0, 1);
}

int MPI_Ireduce_c(const void *sendbuf, void *recvbuf, MPI_Count count, MPI_Datatype type, MPI_Op op,
                  int root, MPI_Comm comm, MPI_Request *request) {
    GW_PMPI_POST(PMPI_Ireduce_c(sendbuf, recvbuf, count, type, op, root, comm, request), request,
                 gw_pmpi_share(gw_pmpi_bytes(count, type), 1, comm), 0, 1);
}

int MPI_Reduce_init(const void *sendbuf, void *recvbuf, int count, MPI_Datatype type, MPI_Op op,
                    int root, MPI_Comm comm, MPI_Info info, MPI_Request *request) {
    GW_PMPI_INIT(PMPI_Reduce_init(sendbuf, recvbuf, count, type, op, root, comm, info, request),
                 request, gw_pmpi_share(gw_pmpi_bytes(count, type), 1, comm), 0, 1);
}

int MPI_Ibcast(void *buf, int count, MPI_Datatype type, int root, MPI_Comm comm,
               MPI_Request *request) {
    GW_PMPI_POST(PMPI_Ibcast(buf, count, type, root, comm, request), request,
                 gw_pmpi_share(gw_pmpi_bytes(count, type), 1, comm), 0, 1);
}

int MPI_Ibcast_c(void *buf, MPI_Count count, MPI_Datatype type, int root, MPI_Comm comm,
                 MPI_Request *request) {
    GW_PMPI_POST(PMPI_Ibcast_c(buf, count, type, root, comm, request), request,
                 gw_pmpi_share(gw_pmpi_bytes(count, type), 1, comm), 0, 1);
}

int MPI_Bcast_init(void *buf, int count, MPI_Datatype type, int root, MPI_Comm comm, MPI_Info info,
                   MPI_Request *request) {
    GW_PMPI_INIT(PMPI_Bcast_init(buf, count, type, root, comm, info, request), request,
                 gw_pmpi_share(gw_pmpi_bytes(count, type), 1, comm), 0, 1);
}

int MPI_Ireduce_scatter_block(const void *sendbuf, void *recvbuf, int count, MPI_Datatype type,
                              MPI_Op op, MPI_Comm comm, MPI_Request *request) {
    GW_PMPI_POST(PMPI_Ireduce_scatter_block(sendbuf, recvbuf, count, type, op, comm, request),
                 request, gw_pmpi_others(gw_pmpi_bytes(count, type), comm), 0, 1);
}

int MPI_Reduce_scatter_block_init(const void *sendbuf, void *recvbuf, int count, MPI_Datatype type,
                                  MPI_Op op, MPI_Comm comm, MPI_Info info, MPI_Request *request) {
    GW_PMPI_INIT(
        PMPI_Reduce_scatter_block_init(sendbuf, recvbuf, count, type, op, comm, info, request),
        request, gw_pmpi_others(gw_pmpi_bytes(count, type), comm), 0, 1);
}

int MPI_Ireduce_scatter(const void *sendbuf, void *recvbuf, const int counts[], MPI_Datatype type,
                        MPI_Op op, MPI_Comm comm, MPI_Request *request) {
    GW_PMPI_POST(PMPI_Ireduce_scatter(sendbuf, recvbuf, counts, type, op, comm, request), request,
                 gw_pmpi_share(gw_pmpi_sum(counts, type, -1, comm), 1, comm), 0, 1);
}

int MPI_Iscan(const void *sendbuf, void *recvbuf, int count, MPI_Datatype type, MPI_Op op,
              MPI_Comm comm, MPI_Request *request) {
    GW_PMPI_POST(PMPI_Iscan(sendbuf, recvbuf, count, type, op, comm, request), request,
                 gw_pmpi_share(gw_pmpi_bytes(count, type), 1, comm), 0, 1);
}

int MPI_Iexscan(const void *sendbuf, void *recvbuf, int count, MPI_Datatype type, MPI_Op op,
                MPI_Comm comm, MPI_Request *request) {
    GW_PMPI_POST(PMPI_Iexscan(sendbuf, recvbuf, count, type, op, comm, request), request,
                 gw_pmpi_share(gw_pmpi_bytes(count, type), 1, comm), 0, 1);
}

int MPI_Iallgather(const void *sendbuf, int sendcount, MPI_Datatype sendtype, void *recvbuf,
                   int recvcount, MPI_Datatype recvtype, MPI_Comm comm, MPI_Request *request) {
    GW_PMPI_POST(
        PMPI_Iallgather(sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, comm, request),
        request, gw_pmpi_others(gw_pmpi_bytes(recvcount, recvtype), comm), 0, 1);
}

int MPI_Iallgather_c(const void *sendbuf, MPI_Count sendcount, MPI_Datatype sendtype, void *recvbuf,
                     MPI_Count recvcount, MPI_Datatype recvtype, MPI_Comm comm,
                     MPI_Request *request) {
    GW_PMPI_POST(PMPI_Iallgather_c(sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, comm,
                                   request),
                 request, gw_pmpi_others(gw_pmpi_bytes(recvcount, recvtype), comm), 0, 1);
}

int MPI_Allgather_init(const void *sendbuf, int sendcount, MPI_Datatype sendtype, void *recvbuf,
                       int recvcount, MPI_Datatype recvtype, MPI_Comm comm, MPI_Info info,
                       MPI_Request *request) {
    GW_PMPI_INIT(PMPI_Allgather_init(sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype,
                                     comm, info, request),
                 request, gw_pmpi_others(gw_pmpi_bytes(recvcount, recvtype), comm), 0, 1);
}

int MPI_Iallgatherv(const void *sendbuf, int sendcount, MPI_Datatype sendtype, void *recvbuf,
                    const int recvcounts[], const int displs[], MPI_Datatype recvtype,
                    MPI_Comm comm, MPI_Request *request) {
    GW_PMPI_POST(PMPI_Iallgatherv(sendbuf, sendcount, sendtype, recvbuf, recvcounts, displs,
                                  recvtype, comm, request),
                 request, gw_pmpi_share(gw_pmpi_sum(recvcounts, recvtype, -1, comm), 1, comm), 0,
                 1);
}

int MPI_Igather(const void *sendbuf, int sendcount, MPI_Datatype sendtype, void *recvbuf,
                int recvcount, MPI_Datatype recvtype, int root, MPI_Comm comm,
                MPI_Request *request) {
    GW_PMPI_POST(PMPI_Igather(sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, root,
                              comm, request),
                 request, gw_pmpi_gathered(sendcount, sendtype, root, comm), 0, 1);
}

int MPI_Igatherv(const void *sendbuf, int sendcount, MPI_Datatype sendtype, void *recvbuf,
                 const int recvcounts[], const int displs[], MPI_Datatype recvtype, int root,
                 MPI_Comm comm, MPI_Request *request) {
    GW_PMPI_POST(PMPI_Igatherv(sendbuf, sendcount, sendtype, recvbuf, recvcounts, displs, recvtype,
                               root, comm, request),
                 request, gw_pmpi_gathered(sendcount, sendtype, root, comm), 0, 1);
}

int MPI_Iscatter(const void *sendbuf, int sendcount, MPI_Datatype sendtype, void *recvbuf,
                 int recvcount, MPI_Datatype recvtype, int root, MPI_Comm comm,
                 MPI_Request *request) {
    GW_PMPI_POST(PMPI_Iscatter(sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, root,
                               comm, request),
                 request, gw_pmpi_scattered(sendcount, sendtype, root, comm), 0, 1);
}

int MPI_Iscatterv(const void *sendbuf, const int sendcounts[], const int displs[],
                  MPI_Datatype sendtype, void *recvbuf, int recvcount, MPI_Datatype recvtype,
                  int root, MPI_Comm comm, MPI_Request *request) {
    GW_PMPI_POST(PMPI_Iscatterv(sendbuf, sendcounts, displs, sendtype, recvbuf, recvcount, recvtype,
                                root, comm, request),
                 request, gw_pmpi_scattered_v(sendcounts, sendtype, root, comm), 0, 1);
}

int MPI_Ialltoall(const void *sendbuf, int sendcount, MPI_Datatype sendtype, void *recvbuf,
                  int recvcount, MPI_Datatype recvtype, MPI_Comm comm, MPI_Request *request) {
    GW_PMPI_POST(
        PMPI_Ialltoall(sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, comm, request),
        request, gw_pmpi_others(gw_pmpi_bytes(recvcount, recvtype), comm), 0, 1);
}

int MPI_Ialltoallv(const void *sendbuf, const int sendcounts[], const int sdispls[],
                   MPI_Datatype sendtype, void *recvbuf, const int recvcounts[],
                   const int rdispls[], MPI_Datatype recvtype, MPI_Comm comm,
                   MPI_Request *request) {
    GW_PMPI_POST(PMPI_Ialltoallv(sendbuf, sendcounts, sdispls, sendtype, recvbuf, recvcounts,
                                 rdispls, recvtype, comm, request),
                 request,
                 gw_pmpi_swapped_v(sendbuf, sendcounts, sendtype, recvcounts, recvtype, comm), 0,
                 1);
}

int MPI_Ibarrier(MPI_Comm comm, MPI_Request *request) {
    GW_PMPI_POST(PMPI_Ibarrier(comm, request), request, 0, 0, 1);
}

int MPI_Barrier_init(MPI_Comm comm, MPI_Info info, MPI_Request *request) {
    GW_PMPI_INIT(PMPI_Barrier_init(comm, info, request), request, 0, 0, 1);
}
