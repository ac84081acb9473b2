/** Runs a stage's actions of a step, in the timetable's order, with the hops that they need:
 *  receives are posted ahead, sends are waited for where their buffer is written again. What an
 *  action does is the caller's affair. */
#ifndef GW_COMM_RUNNER_H
#define GW_COMM_RUNNER_H

#include "comm/hop.h"
#include "comm/queue.h"
#include "comm/timetable.h"

/** All of it the caller's, which may change it between steps. */
typedef struct gw_runner {
    const gw_timetable *timetable;
    int stage;
    int micros;          /* microbatches that the hops were laid down for */
    const gw_hops *hops; /* NULL: one stage */
    gw_queue *queue;
    uint64_t step; /* its number, by which codecs draw random numbers */
    /** It turns to an action, whose input it may have to wait for. NULL: nobody asks. */
    void (*next)(void *ctx, gw_act act);
    /** An action whose input has arrived. Before it writes what it hands on it calls
     *  gw_runner_vacate, and gw_runner_send as soon as that is there. */
    gw_err (*act)(void *ctx, gw_act act);
    void *ctx;
} gw_runner;

/** A step: all actions of the stage. At its end everything sent has left. */
gw_err gw_runner_step(const gw_runner *r);

/** This rank's end of the hop that an action waits for (`receives`), or ends in; NULL: none. */
gw_schedule *gw_runner_hop(const gw_runner *r, gw_act act, bool receives);

/** Wait for what earlier hops still read where `act` is about to write. */
gw_err gw_runner_vacate(const gw_runner *r, gw_act act);

/** Hand the result of an action on, if there is somebody to take it. */
gw_err gw_runner_send(const gw_runner *r, gw_act act);

/** Start a schedule of microbatch `micro`, a hop or another exchange of its rows; wait for one.
 *  Each in its phase of the ledger. */
gw_err gw_runner_start(const gw_runner *r, gw_schedule *s, int micro);
gw_err gw_runner_wait(const gw_runner *r, gw_schedule *s);

#endif
