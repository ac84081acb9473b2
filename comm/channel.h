/** A channel carries a lane's messages: a group of ranks over a fabric, with tags of its own, and
 *  the memory of its ranks on one node. Everybody in comm may read it; who opens it sets it up. */
#ifndef GW_COMM_CHANNEL_H
#define GW_COMM_CHANNEL_H

#include "comm/fabric/fabric.h"
#include "mpi/shared.h"

typedef struct gw_channel {
    gw_fabric *fabric;    /* its own */
    int dim;              /* dimension of a mesh that its ranks lie along (gw_dim) */
    int next_tag;         /* of the next strand */
    bool yield;           /* waits yield the core: the node runs more threads than it has cores */
    gw_shared *shared;    /* memory of the ranks on this node, its own; NULL: not asked for */
    struct gw_lent *lent; /* where gradients lie, the session's; NULL: all in the arena */
} gw_channel;

/** Make a channel of the ranks with the same `color`, in their order, without shared memory;
 *  sub->fabric is NULL if the color is below 0. Collective. */
gw_err gw_channel_split(const gw_channel *c, int color, gw_channel *sub);

/** Close the fabric and free the shared memory. Collective. */
void gw_channel_close(gw_channel *c);

/** Take the next message tag; all ranks take tags in the same order. */
int gw_channel_tag(gw_channel *c);

#endif
