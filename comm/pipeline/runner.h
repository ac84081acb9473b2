/** Hops: activations sent from a stage to the next, and their gradients (deltas) sent back. A hop
 *  is a schedule of one message on a lane of the pipe communicator, so codecs, frames and reports
 *  of pending messages apply to it, too. The runner starts those that a stage's actions of a step
 *  need, in the timetable's order: receives are posted ahead, and a send is waited for before its
 *  buffer is written again. The caller does the actions.
 *
 *  Chunk k of a model lies on stage k % stages; boundary k lies between chunks k and k+1. */
#ifndef GW_COMM_PIPELINE_RUNNER_H
#define GW_COMM_PIPELINE_RUNNER_H

#include "comm/pipeline/timetable.h"
#include "comm/schedule/queue.h"

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

/** The caller owns all of it, and may change it between steps. */
typedef struct gw_runner {
    const gw_timetable *timetable;
    int stage;
    int micros;          /* microbatches that the hops were laid down for */
    const gw_hops *hops; /* NULL: one stage */
    gw_queue *queue;
    uint64_t step; /* its number, from which codecs draw random numbers */
} gw_runner;

/** Begin a step: post the first receives. */
gw_err gw_runner_begin(const gw_runner *r);

/** Have what the stage's action number `i` takes from another stage, and post the next receive. */
gw_err gw_runner_take(const gw_runner *r, int i);

/** End a step: everything sent has left, so that the next step may write there. */
gw_err gw_runner_end(const gw_runner *r);

/** Return this rank's end of the hop that an action waits for (`receives`), or ends in; or NULL. */
gw_schedule *gw_runner_hop(const gw_runner *r, gw_act act, bool receives);

/** Wait for earlier hops that still read where `act` is about to write. */
gw_err gw_runner_vacate(const gw_runner *r, gw_act act);

/** Send the result of an action on, if another stage takes it. */
gw_err gw_runner_send(const gw_runner *r, gw_act act);

/** Start a schedule of microbatch `micro`, a hop or another exchange of its rows; wait for one.
 *  Each has its phase in the ledger. */
gw_err gw_runner_start(const gw_runner *r, gw_schedule *s, int micro);
gw_err gw_runner_wait(const gw_runner *r, gw_schedule *s);

#endif
