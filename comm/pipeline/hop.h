/** Hops: activations sent from a stage to the next, and their gradients (deltas) sent back. A hop
 *  is a schedule of one message on a lane of the pipe communicator, so codecs, frames and reports
 *  of pending messages apply to it, too.
 *
 *  Chunk k of a model lies on stage k % stages; boundary k lies between chunks k and k+1. */
#ifndef GW_COMM_PIPELINE_HOP_H
#define GW_COMM_PIPELINE_HOP_H

#include "base/act.h"
#include "comm/schedule/schedule.h"

typedef struct gw_hop {
    gw_hop_kind kind;
    int boundary, micro; /* from 0 */
} gw_hop;

/** All hops of a step: all microbatches over all boundaries. */
typedef struct gw_hops gw_hops;

typedef struct gw_hops_setup {
    gw_lane *lane[GW_HOP_KINDS]; /* on the pipe communicator, whose ranks are the stages */
    int chunks;                  /* of all stages together */
    int micro;
    bool deltas; /* false: only activations, for an evaluation */
    float *base; /* the array that hops are spans of */
    /** Return the span where a hop starts on this rank or, if the rank `receives` it, arrives; as
     *  many floats at both ends, or none. */
    gw_span (*where)(const void *ctx, gw_hop hop, bool receives);
    const void *ctx;
} gw_hops_setup;

/** Lay down all hops, in one order on all ranks of the lanes. Not collective, but each rank of the
 *  lanes opens the same sets in the same order. Lanes and array must outlive them. Errors are those
 *  of gw_schedule_new and its rounds. Close when none is under way. */
gw_err gw_hops_open(gw_hops **out, const gw_hops_setup *setup);
void gw_hops_close(gw_hops *h); /* h may be NULL */

/** Return this rank's end of a hop, to be started; NULL: it has none. */
gw_schedule *gw_hops_end(const gw_hops *h, gw_hop hop);

#endif
