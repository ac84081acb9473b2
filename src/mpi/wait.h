/** Blocking collectives that can yield the core. MPI itself spins. If a node has more ranks than
 *  cores, that costs milliseconds per call: the peer that it waits for must wait for the core. */
#ifndef GW_MPI_WAIT_H
#define GW_MPI_WAIT_H

#include "mpi/team.h"

#include <stdbool.h>

/** Let this process's waits yield from now on (the node is oversubscribed) or spin, the default. */
void gw_wait_yields(bool yields);

/** Wait for a request. */
gw_err gw_wait(MPI_Request *request);

/** The same, but asleep, checking once a millisecond: for when another rank of this host measures
 *  and needs the cores. */
gw_err gw_wait_asleep(MPI_Request *request);

/** Send `bytes` bytes to rank `peer`, or receive them from it, and wait. */
gw_err gw_message(void *data, int bytes, int peer, int tag, bool sends, MPI_Comm comm);

/** MPI's collectives of these names, with such waits. */
gw_err gw_barrier(MPI_Comm comm);
gw_err gw_bcast(void *data, int count, MPI_Datatype type, int root, MPI_Comm comm);
/** Broadcast `bytes` bytes; the rank sleeps while it waits, as in gw_wait_asleep. */
gw_err gw_bcast_asleep(void *data, int bytes, int root, MPI_Comm comm);
/** in may be MPI_IN_PLACE. Takes turns with a progress thread (base/turn.h). */
gw_err gw_allreduce(const void *in, void *out, int count, MPI_Datatype type, MPI_Op op,
                    MPI_Comm comm);
/** The first half of gw_allreduce; a later gw_wait completes it. Until then keep `in` and `out`
 *  unchanged. */
gw_err gw_allreduce_begin(const void *in, void *out, int count, MPI_Datatype type, MPI_Op op,
                          MPI_Comm comm, MPI_Request *request);
gw_err gw_comm_dup(MPI_Comm comm, MPI_Comm *out);

#endif
