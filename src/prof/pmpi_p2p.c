/* Point-to-point operations: a send counts its bytes and one message, a receive nothing. */
#include "prof/pmpi.h"

#define SENDS(call, count, type, dest)                                                             \
    GW_PMPI_CALL(GW_PHASE_MPI_WAIT, call, gw_pmpi_sent(count, type, dest), dest != MPI_PROC_NULL, 0)
#define POSTS_SEND(call, count, type, dest)                                                        \
    GW_PMPI_POST(call, request, gw_pmpi_sent(count, type, dest), dest != MPI_PROC_NULL, 0)
#define RECEIVES(call)      GW_PMPI_CALL(GW_PHASE_MPI_WAIT, call, 0, 0, 0)
#define POSTS_RECEIVE(call) GW_PMPI_POST(call, request, 0, 0, 0)

int MPI_Send(const void *buf, int count, MPI_Datatype type, int dest, int tag, MPI_Comm comm) {
    SENDS(PMPI_Send(buf, count, type, dest, tag, comm), count, type, dest);
}

int MPI_Send_c(const void *buf, MPI_Count count, MPI_Datatype type, int dest, int tag,
               MPI_Comm comm) {
    SENDS(PMPI_Send_c(buf, count, type, dest, tag, comm), count, type, dest);
}

int MPI_Ssend(const void *buf, int count, MPI_Datatype type, int dest, int tag, MPI_Comm comm) {
    SENDS(PMPI_Ssend(buf, count, type, dest, tag, comm), count, type, dest);
}

int MPI_Rsend(const void *buf, int count, MPI_Datatype type, int dest, int tag, MPI_Comm comm) {
    SENDS(PMPI_Rsend(buf, count, type, dest, tag, comm), count, type, dest);
}

int MPI_Bsend(const void *buf, int count, MPI_Datatype type, int dest, int tag, MPI_Comm comm) {
    SENDS(PMPI_Bsend(buf, count, type, dest, tag, comm), count, type, dest);
}

int MPI_Isend(const void *buf, int count, MPI_Datatype type, int dest, int tag, MPI_Comm comm,
              MPI_Request *request) {
    POSTS_SEND(PMPI_Isend(buf, count, type, dest, tag, comm, request), count, type, dest);
}

int MPI_Isend_c(const void *buf, MPI_Count count, MPI_Datatype type, int dest, int tag,
                MPI_Comm comm, MPI_Request *request) {
    POSTS_SEND(PMPI_Isend_c(buf, count, type, dest, tag, comm, request), count, type, dest);
}

int MPI_Issend(const void *buf, int count, MPI_Datatype type, int dest, int tag, MPI_Comm comm,
               MPI_Request *request) {
    POSTS_SEND(PMPI_Issend(buf, count, type, dest, tag, comm, request), count, type, dest);
}

int MPI_Irsend(const void *buf, int count, MPI_Datatype type, int dest, int tag, MPI_Comm comm,
               MPI_Request *request) {
    POSTS_SEND(PMPI_Irsend(buf, count, type, dest, tag, comm, request), count, type, dest);
}

int MPI_Ibsend(const void *buf, int count, MPI_Datatype type, int dest, int tag, MPI_Comm comm,
               MPI_Request *request) {
    POSTS_SEND(PMPI_Ibsend(buf, count, type, dest, tag, comm, request), count, type, dest);
}

int MPI_Recv(void *buf, int count, MPI_Datatype type, int source, int tag, MPI_Comm comm,
             MPI_Status *status) {
    RECEIVES(PMPI_Recv(buf, count, type, source, tag, comm, status));
}

int MPI_Recv_c(void *buf, MPI_Count count, MPI_Datatype type, int source, int tag, MPI_Comm comm,
               MPI_Status *status) {
    RECEIVES(PMPI_Recv_c(buf, count, type, source, tag, comm, status));
}

int MPI_Irecv(void *buf, int count, MPI_Datatype type, int source, int tag, MPI_Comm comm,
              MPI_Request *request) {
    POSTS_RECEIVE(PMPI_Irecv(buf, count, type, source, tag, comm, request));
}

int MPI_Irecv_c(void *buf, MPI_Count count, MPI_Datatype type, int source, int tag, MPI_Comm comm,
                MPI_Request *request) {
    POSTS_RECEIVE(PMPI_Irecv_c(buf, count, type, source, tag, comm, request));
}

int MPI_Sendrecv(const void *sendbuf, int sendcount, MPI_Datatype sendtype, int dest, int sendtag,
                 void *recvbuf, int recvcount, MPI_Datatype recvtype, int source, int recvtag,
                 MPI_Comm comm, MPI_Status *status) {
    SENDS(PMPI_Sendrecv(sendbuf, sendcount, sendtype, dest, sendtag, recvbuf, recvcount, recvtype,
                        source, recvtag, comm, status),
          sendcount, sendtype, dest);
}

int MPI_Sendrecv_replace(void *buf, int count, MPI_Datatype type, int dest, int sendtag, int source,
                         int recvtag, MPI_Comm comm, MPI_Status *status) {
    SENDS(PMPI_Sendrecv_replace(buf, count, type, dest, sendtag, source, recvtag, comm, status),
          count, type, dest);
}

int MPI_Isendrecv(const void *sendbuf, int sendcount, MPI_Datatype sendtype, int dest, int sendtag,
                  void *recvbuf, int recvcount, MPI_Datatype recvtype, int source, int recvtag,
                  MPI_Comm comm, MPI_Request *request) {
    POSTS_SEND(PMPI_Isendrecv(sendbuf, sendcount, sendtype, dest, sendtag, recvbuf, recvcount,
                              recvtype, source, recvtag, comm, request),
               sendcount, sendtype, dest);
}

int MPI_Probe(int source, int tag, MPI_Comm comm, MPI_Status *status) {
    RECEIVES(PMPI_Probe(source, tag, comm, status));
}

int MPI_Iprobe(int source, int tag, MPI_Comm comm, int *flag, MPI_Status *status) {
    GW_PMPI_CALL(GW_PHASE_MPI_POLL, PMPI_Iprobe(source, tag, comm, flag, status), 0, 0, 0);
}

int MPI_Mprobe(int source, int tag, MPI_Comm comm, MPI_Message *message, MPI_Status *status) {
    RECEIVES(PMPI_Mprobe(source, tag, comm, message, status));
}

int MPI_Improbe(int source, int tag, MPI_Comm comm, int *flag, MPI_Message *message,
                MPI_Status *status) {
    GW_PMPI_CALL(GW_PHASE_MPI_POLL, PMPI_Improbe(source, tag, comm, flag, message, status), 0, 0,
                 0);
}

int MPI_Mrecv(void *buf, int count, MPI_Datatype type, MPI_Message *message, MPI_Status *status) {
    RECEIVES(PMPI_Mrecv(buf, count, type, message, status));
}

int MPI_Imrecv(void *buf, int count, MPI_Datatype type, MPI_Message *message,
               MPI_Request *request) {
    POSTS_RECEIVE(PMPI_Imrecv(buf, count, type, message, request));
}

int MPI_Send_init(const void *buf, int count, MPI_Datatype type, int dest, int tag, MPI_Comm comm,
                  MPI_Request *request) {
    GW_PMPI_INIT(PMPI_Send_init(buf, count, type, dest, tag, comm, request), request,
                 gw_pmpi_sent(count, type, dest), dest != MPI_PROC_NULL, 0);
}

int MPI_Recv_init(void *buf, int count, MPI_Datatype type, int source, int tag, MPI_Comm comm,
                  MPI_Request *request) {
    GW_PMPI_INIT(PMPI_Recv_init(buf, count, type, source, tag, comm, request), request, 0, 0, 0);
}
