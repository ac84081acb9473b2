/** Blocking collectives that can give the core away. MPI's own spin, which costs milliseconds a
 * call where a node runs more ranks than it has cores: the peer that is waited for has to wait,
 * too. */
#ifndef GW_MPI_WAIT_H
#define GW_MPI_WAIT_H

#include "mpi/check.h"

#include <stdbool.h>

/** From now on waits of this process yield (the node is oversubscribed) or spin, the default. */
void gw_wait_yields(bool yields);

/** Wait for a request. */
gw_err gw_wait(MPI_Request *request);

/** The same, asleep between two looks a millisecond apart: while another rank of this host measures
 *  and wants the cores for itself. */
gw_err gw_wait_asleep(MPI_Request *request);

/** MPI's collectives of these names, waited for so. */
gw_err gw_barrier(MPI_Comm comm);
gw_err gw_bcast(void *data, int count, MPI_Datatype type, int root, MPI_Comm comm);
/** in may be MPI_IN_PLACE. Takes turns with a progress thread (base/turn.h). */
gw_err gw_allreduce(const void *in, void *out, int count, MPI_Datatype type, MPI_Op op,
                    MPI_Comm comm);
/** The first half of gw_allreduce: for a gw_wait later, before which `in` and `out` stay as they
 *  are. */
gw_err gw_allreduce_begin(const void *in, void *out, int count, MPI_Datatype type, MPI_Op op,
                          MPI_Comm comm, MPI_Request *request);
gw_err gw_comm_dup(MPI_Comm comm, MPI_Comm *out);

#endif
