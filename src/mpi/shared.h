/** Memory that the ranks of a node share: an allocation has a twin on each of them, and each can
 *  read and write the others'. It is a file without a name (memfd_create) among the ranks of
 *  MPI_COMM_TYPE_SHARED. MPI-3's shared windows (Hoefler et al., "MPI + MPI", Computing 2013) offer
 *  the same, but making one takes many spinning collectives, 0.5 s if ranks share cores. The caller
 *  orders accesses, by C11 atomics in the memory itself. */
#ifndef GW_MPI_SHARED_H
#define GW_MPI_SHARED_H

#include "mpi/agree.h"

#include <stddef.h>
#include <stdint.h>

typedef struct gw_shared gw_shared;

/** Open. Collective over `comm`. */
gw_err gw_shared_open(gw_shared **out, MPI_Comm comm);
void gw_shared_close(gw_shared *m); /* collective; frees what was allocated */

int gw_shared_rank(const gw_shared *m);         /* of the caller among the ranks of its node */
int gw_shared_size(const gw_shared *m);         /* ranks on this node */
int gw_shared_world(const gw_shared *m, int r); /* rank r of the node in MPI_COMM_WORLD */
MPI_Comm gw_shared_comm(const gw_shared *m);    /* these ranks; the module's own */

/** Allocate `bytes`, the same number on all ranks: zeroed, aligned to 64 bytes, freed by
 *  gw_shared_close. GW_ERR_NOMEM on all ranks of the node. Collective over the node. */
gw_err gw_shared_alloc(gw_shared *m, size_t bytes, void **mine);

/** Return where rank `r` of the node has the twin of `mine` (any address inside an allocation), as
 *  an address of this rank; NULL if `mine` is not in this memory. */
void *gw_shared_twin(const gw_shared *m, const void *mine, int r);

/** Identifies an open file of one of the node's processes to the others. It needs no name, so a
 *  killed process leaves nothing behind. Only 64-bit words, so that MPI may add them. */
typedef struct gw_shared_file {
    uint64_t pid, fd, device, inode;
} gw_shared_file;

/** Identify `fd`. GW_ERR_UNSUPPORTED: it is no open file. */
gw_err gw_shared_file_of(int fd, gw_shared_file *out);

/** Open another rank's file; the caller owns *fd. GW_ERR_UNSUPPORTED: impossible, for example in
 *  another namespace of processes. */
gw_err gw_shared_file_open(const gw_shared_file *of, int *fd);

#endif
