/** Memory that the ranks of a node share: an allocation has a twin in every one of them, and each
 *  can read and write the others'. A file without a name (memfd_create) among the ranks that
 *  MPI_COMM_TYPE_SHARED names: what MPI-3's shared windows offer (Hoefler et al., "MPI + MPI",
 *  Computing 2013), without the many spinning collectives that making one takes, 0.5 s where ranks
 *  share cores. Ordering is the caller's affair, by C11 atomics in the memory itself. */
#ifndef GW_MPI_SHARED_H
#define GW_MPI_SHARED_H

#include "mpi/agree.h"

#include <stddef.h>
#include <stdint.h>

typedef struct gw_shared gw_shared;

/** Collective over `comm`. */
gw_err gw_shared_open(gw_shared **out, MPI_Comm comm);
void gw_shared_close(gw_shared *m); /* collective; frees what was allocated */

int gw_shared_rank(const gw_shared *m);         /* of the caller among the ranks of its node */
int gw_shared_size(const gw_shared *m);         /* ranks on this node */
int gw_shared_world(const gw_shared *m, int r); /* rank r of the node in MPI_COMM_WORLD */
MPI_Comm gw_shared_comm(const gw_shared *m);    /* these ranks; the module's own */

/** Collective over the node, the same `bytes` everywhere: zeroed, aligned to 64 bytes, freed by
 *  gw_shared_close. GW_ERR_NOMEM on all ranks of the node. */
gw_err gw_shared_alloc(gw_shared *m, size_t bytes, void **mine);

/** Where rank `r` of the node has the twin of `mine` (any address inside an allocation), as seen
 *  from here; NULL if `mine` is not of this memory. */
void *gw_shared_twin(const gw_shared *m, const void *mine, int r);

/** An open file of one of the node's processes, by which the others find it: it needs no name, so
 *  that a killed process leaves nothing. Words of 64 bits alone, so that MPI may add them. */
typedef struct gw_shared_file {
    uint64_t pid, fd, device, inode;
} gw_shared_file;

/** GW_ERR_UNSUPPORTED: it is no open file. */
gw_err gw_shared_file_of(int fd, gw_shared_file *out);

/** Open one of another rank; *fd is the caller's. GW_ERR_UNSUPPORTED: it cannot be, as in another
 *  namespace of processes. */
gw_err gw_shared_file_open(const gw_shared_file *of, int *fd);

#endif
