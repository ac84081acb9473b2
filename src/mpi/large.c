#include "mpi/large.h"

#if MPI_VERSION >= 4

int gw_large_send(const void *data, size_t len, int peer, int tag, MPI_Comm comm) {
    return MPI_Send_c(data, (MPI_Count)len, MPI_BYTE, peer, tag, comm);
}

int gw_large_recv(void *data, size_t cap, int peer, int tag, MPI_Comm comm) {
    return MPI_Recv_c(data, (MPI_Count)cap, MPI_BYTE, peer, tag, comm, MPI_STATUS_IGNORE);
}

int gw_large_isend(const void *data, size_t len, int peer, int tag, MPI_Comm comm,
                   MPI_Request *request) {
    return MPI_Isend_c(data, (MPI_Count)len, MPI_BYTE, peer, tag, comm, request);
}

int gw_large_irecv(void *data, size_t cap, int peer, int tag, MPI_Comm comm, MPI_Request *request) {
    return MPI_Irecv_c(data, (MPI_Count)cap, MPI_BYTE, peer, tag, comm, request);
}

int gw_large_bcast(void *data, size_t len, int root, MPI_Comm comm) {
    return MPI_Bcast_c(data, (MPI_Count)len, MPI_BYTE, root, comm);
}

#else

#include <limits.h>

enum { BLOCK = 1 << 30 };

/* `count` elements of `type` are `bytes` bytes; large_free when the call has been made. */
static int large_type(size_t bytes, int *count, MPI_Datatype *type) {
    *count = (int)bytes;
    *type = MPI_BYTE;
    if (bytes <= INT_MAX)
        return MPI_SUCCESS;
    *count = 1;
    MPI_Datatype block;
    int rc = MPI_Type_contiguous(BLOCK, MPI_BYTE, &block);
    if (rc != MPI_SUCCESS)
        return rc;
    int counts[] = {(int)(bytes / BLOCK), (int)(bytes % BLOCK)};
    MPI_Aint places[] = {0, (MPI_Aint)(bytes - bytes % BLOCK)};
    MPI_Datatype types[] = {block, MPI_BYTE};
    rc = MPI_Type_create_struct(2, counts, places, types, type);
    MPI_Type_free(&block);
    return rc == MPI_SUCCESS ? MPI_Type_commit(type) : rc;
}

static int large_free(MPI_Datatype *type, int rc) {
    if (*type != MPI_BYTE)
        MPI_Type_free(type); /* once what uses it is complete */
    return rc;
}

#define LARGE(bytes, call)                                                                         \
    int count;                                                                                     \
    MPI_Datatype type;                                                                             \
    int rc = large_type(bytes, &count, &type);                                                     \
    return rc == MPI_SUCCESS ? large_free(&type, call) : rc

int gw_large_send(const void *data, size_t len, int peer, int tag, MPI_Comm comm) {
    LARGE(len, MPI_Send(data, count, type, peer, tag, comm));
}

int gw_large_recv(void *data, size_t cap, int peer, int tag, MPI_Comm comm) {
    LARGE(cap, MPI_Recv(data, count, type, peer, tag, comm, MPI_STATUS_IGNORE));
}

int gw_large_isend(const void *data, size_t len, int peer, int tag, MPI_Comm comm,
                   MPI_Request *request) {
    LARGE(len, MPI_Isend(data, count, type, peer, tag, comm, request));
}

int gw_large_irecv(void *data, size_t cap, int peer, int tag, MPI_Comm comm, MPI_Request *request) {
    LARGE(cap, MPI_Irecv(data, count, type, peer, tag, comm, request));
}

int gw_large_bcast(void *data, size_t len, int root, MPI_Comm comm) {
    LARGE(len, MPI_Bcast(data, count, type, root, comm));
}

#endif

int gw_large_length(const MPI_Status *status, size_t *len) {
    MPI_Count bytes = 0;
    int rc = MPI_Get_elements_x(status, MPI_BYTE, &bytes);
    *len = (size_t)bytes;
    return rc;
}
