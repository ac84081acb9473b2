/* Point-to-point operations: a send counts its bytes and one message, also for whom it is; a
 * receive counts nothing. */
#include "prof/matrix.h"
#include "prof/pmpi.h"

/* Bytes of a message to `dest`: none to MPI_PROC_NULL. */
static uint64_t p2p_sent(MPI_Count count, MPI_Datatype type, int dest) {
    return dest == MPI_PROC_NULL ? 0 : gw_pmpi_bytes(count, type);
}

/* Bytes of a message that was sent, entered in the matrix. */
#define SENT(count, type, dest)                                                                    \
    gw_matrix_sent(gw_matrix_peer(dest, comm), p2p_sent(count, type, dest))

#define SENDS(call, count, type, dest)                                                             \
    GW_PMPI_CALL(GW_PHASE_MPI_WAIT, call, SENT(count, type, dest), dest != MPI_PROC_NULL, 0)
#define POSTS_SEND(call, count, type, dest)                                                        \
    GW_PMPI_POST(call, request, SENT(count, type, dest), dest != MPI_PROC_NULL, 0)
#define INITS_SEND(call, count, type, dest)                                                        \
    GW_PMPI_INIT(call, request, p2p_sent(count, type, dest), dest != MPI_PROC_NULL, 0,             \
                 gw_matrix_peer(dest, comm))
#define RECEIVES(call)      GW_PMPI_CALL(GW_PHASE_MPI_WAIT, call, 0, 0, 0)
#define POSTS_RECEIVE(call) GW_PMPI_POST(call, request, 0, 0, 0)
#define INITS_RECEIVE(call) GW_PMPI_INIT(call, request, 0, 0, 0, -1)
#define POLLS(call)         GW_PMPI_CALL(GW_PHASE_MPI_POLL, call, 0, 0, 0)

#define SEND(count_t)                                                                              \
    const void *buf, count_t count, MPI_Datatype type, int dest, int tag, MPI_Comm comm
#define SEND_ARGS buf, count, type, dest, tag, comm
#define RECV(count_t)                                                                              \
    void *buf, count_t count, MPI_Datatype type, int source, int tag, MPI_Comm comm
#define RECV_ARGS buf, count, type, source, tag, comm
#define BOTH(count_t)                                                                              \
    const void *sendbuf, count_t sendcount, MPI_Datatype sendtype, int dest, int sendtag,          \
        void *recvbuf, count_t recvcount, MPI_Datatype recvtype, int source, int recvtag,          \
        MPI_Comm comm
#define BOTH_ARGS                                                                                  \
    sendbuf, sendcount, sendtype, dest, sendtag, recvbuf, recvcount, recvtype, source, recvtag, comm
#define REPLACE(count_t)                                                                           \
    void *buf, count_t count, MPI_Datatype type, int dest, int sendtag, int source, int recvtag,   \
        MPI_Comm comm
#define REPLACE_ARGS buf, count, type, dest, sendtag, source, recvtag, comm

/* The three forms of one mode of sending, for one type of count; `c` is empty or _c. */
#define SEND_MODE(Name, name, c, count_t)                                                          \
    int MPI_##Name##c(SEND(count_t)) {                                                             \
        SENDS(PMPI_##Name##c(SEND_ARGS), count, type, dest);                                       \
    }                                                                                              \
    int MPI_I##name##c(SEND(count_t), MPI_Request *request) {                                      \
        POSTS_SEND(PMPI_I##name##c(SEND_ARGS, request), count, type, dest);                        \
    }                                                                                              \
    int MPI_##Name##_init##c(SEND(count_t), MPI_Request *request) {                                \
        INITS_SEND(PMPI_##Name##_init##c(SEND_ARGS, request), count, type, dest);                  \
    }

/* All transfers for one type of count. */
#define TRANSFERS(c, count_t)                                                                      \
    SEND_MODE(Send, send, c, count_t)                                                              \
    SEND_MODE(Ssend, ssend, c, count_t)                                                            \
    SEND_MODE(Rsend, rsend, c, count_t)                                                            \
    SEND_MODE(Bsend, bsend, c, count_t)                                                            \
    int MPI_Recv##c(RECV(count_t), MPI_Status *status) {                                           \
        RECEIVES(PMPI_Recv##c(RECV_ARGS, status));                                                 \
    }                                                                                              \
    int MPI_Irecv##c(RECV(count_t), MPI_Request *request) {                                        \
        POSTS_RECEIVE(PMPI_Irecv##c(RECV_ARGS, request));                                          \
    }                                                                                              \
    int MPI_Recv_init##c(RECV(count_t), MPI_Request *request) {                                    \
        INITS_RECEIVE(PMPI_Recv_init##c(RECV_ARGS, request));                                      \
    }                                                                                              \
    int MPI_Mrecv##c(void *buf, count_t count, MPI_Datatype type, MPI_Message *message,            \
                     MPI_Status *status) {                                                         \
        RECEIVES(PMPI_Mrecv##c(buf, count, type, message, status));                                \
    }                                                                                              \
    int MPI_Imrecv##c(void *buf, count_t count, MPI_Datatype type, MPI_Message *message,           \
                      MPI_Request *request) {                                                      \
        POSTS_RECEIVE(PMPI_Imrecv##c(buf, count, type, message, request));                         \
    }                                                                                              \
    int MPI_Sendrecv##c(BOTH(count_t), MPI_Status *status) {                                       \
        SENDS(PMPI_Sendrecv##c(BOTH_ARGS, status), sendcount, sendtype, dest);                     \
    }                                                                                              \
    int MPI_Sendrecv_replace##c(REPLACE(count_t), MPI_Status *status) {                            \
        SENDS(PMPI_Sendrecv_replace##c(REPLACE_ARGS, status), count, type, dest);                  \
    }

#define BOTH_WAYS(c, count_t)                                                                      \
    int MPI_Isendrecv##c(BOTH(count_t), MPI_Request *request) {                                    \
        POSTS_SEND(PMPI_Isendrecv##c(BOTH_ARGS, request), sendcount, sendtype, dest);              \
    }                                                                                              \
    int MPI_Isendrecv_replace##c(REPLACE(count_t), MPI_Request *request) {                         \
        POSTS_SEND(PMPI_Isendrecv_replace##c(REPLACE_ARGS, request), count, type, dest);           \
    }

TRANSFERS(, int)
GW_PMPI_4(TRANSFERS(_c, MPI_Count) BOTH_WAYS(, int) BOTH_WAYS(_c, MPI_Count))

int MPI_Probe(int source, int tag, MPI_Comm comm, MPI_Status *status) {
    RECEIVES(PMPI_Probe(source, tag, comm, status));
}

int MPI_Iprobe(int source, int tag, MPI_Comm comm, int *flag, MPI_Status *status) {
    POLLS(PMPI_Iprobe(source, tag, comm, flag, status));
}

int MPI_Mprobe(int source, int tag, MPI_Comm comm, MPI_Message *message, MPI_Status *status) {
    RECEIVES(PMPI_Mprobe(source, tag, comm, message, status));
}

int MPI_Improbe(int source, int tag, MPI_Comm comm, int *flag, MPI_Message *message,
                MPI_Status *status) {
    POLLS(PMPI_Improbe(source, tag, comm, flag, message, status));
}

/* Waits until the buffered messages have left. */
int MPI_Buffer_detach(void *buffer, int *size) {
    RECEIVES(PMPI_Buffer_detach(buffer, size));
}

#if MPI_VERSION >= 4
int MPI_Buffer_detach_c(void *buffer, MPI_Count *size) {
    RECEIVES(PMPI_Buffer_detach_c(buffer, size));
}
#endif
