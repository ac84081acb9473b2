/** The hops that a stage's actions of a step need, in the timetable's order: receives are posted
 *  ahead, and a send is waited for before its buffer is written again. The caller does the
 *  actions. */
#ifndef GW_COMM_PIPELINE_RUNNER_H
#define GW_COMM_PIPELINE_RUNNER_H

#include "comm/pipeline/hop.h"
#include "comm/pipeline/timetable.h"
#include "comm/schedule/queue.h"

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
