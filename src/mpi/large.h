/** Messages of any length. MPI 4 counts by MPI_Count. A library of MPI 3.1 counts by int, so a
 *  message longer than INT_MAX bytes is sent as one element of a type of that many bytes. Each
 *  function returns MPI's code. Any thread, like MPI's own. */
#ifndef GW_MPI_LARGE_H
#define GW_MPI_LARGE_H

#include <mpi.h>
#include <stddef.h>

int gw_large_send(const void *data, size_t len, int peer, int tag, MPI_Comm comm);
int gw_large_recv(void *data, size_t cap, int peer, int tag, MPI_Comm comm);
int gw_large_isend(const void *data, size_t len, int peer, int tag, MPI_Comm comm,
                   MPI_Request *request);
int gw_large_irecv(void *data, size_t cap, int peer, int tag, MPI_Comm comm, MPI_Request *request);
int gw_large_bcast(void *data, size_t len, int root, MPI_Comm comm);

/** Get the bytes of a message that one of these received. */
int gw_large_length(const MPI_Status *status, size_t *len);

#endif
