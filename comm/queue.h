/** Schedules in flight, and who moves them forward: the caller between its kernels (poll), a thread
 *  of our own (thread), or nobody until somebody waits (none). Whatever moves one moves all: a
 *  rank that waits for one schedule must not stall a peer that waits for another. */
#ifndef GW_COMM_QUEUE_H
#define GW_COMM_QUEUE_H

#include "comm/schedule.h"

typedef enum gw_progress { GW_PROGRESS_POLL, GW_PROGRESS_THREAD, GW_PROGRESS_NONE } gw_progress;

typedef struct gw_queue gw_queue;

/** Room for `capacity` schedules in flight. With GW_PROGRESS_THREAD MPI must have been started with
 *  MPI_THREAD_SERIALIZED at least, and whoever else calls MPI while schedules are in flight takes
 *  turns with the thread (base/turn.h). `yield`: waits give the core away between polls. */
gw_err gw_queue_open(gw_queue **out, gw_progress mode, int capacity, bool yield);

/** Waits for what is in flight, then frees the queue (not the schedules). */
void gw_queue_close(gw_queue *q);

/** From now on keep at most `credit` bytes of spans in flight (one schedule always may be): what is
 *  started beyond that waits its turn, in which the lowest span goes first. Ranks may then start in
 *  different orders; what a peer has started, and waits here, is started whatever the credit. An
 *  algorithm whose first messages are no answer to this (they pass through shared memory, or go the
 *  other way) still needs that each rank in the end waits for all it started. Before the first
 *  start. */
void gw_queue_limit(gw_queue *q, size_t credit);

/** GW_PROGRESS_THREAD: the thread encodes and decodes with so many OpenMP threads, itself included;
 *  1 unless set. Before the first start. */
void gw_queue_team(gw_queue *q, int threads);

/** While a wait goes on, call poll(ctx), too: what else is under way must not stall. Not with
 *  GW_PROGRESS_THREAD. */
void gw_queue_beside(gw_queue *q, gw_err (*poll)(void *ctx), void *ctx);

/** Start a schedule; it is in flight until waited for or seen complete. */
gw_err gw_queue_start(gw_queue *q, gw_schedule *s);

/** Bounded: tests of what is in flight, for as long as they find that something has come. Nothing
 *  to do unless mode is POLL. */
gw_err gw_queue_poll(gw_queue *q);

/** Start `s` now if it still waits for its turn: it is needed. */
gw_err gw_queue_urge(gw_queue *q, gw_schedule *s);

/** Is `s` in flight? Not with GW_PROGRESS_THREAD. */
bool gw_queue_in_flight(const gw_queue *q, const gw_schedule *s);

/** Block until `s` is complete (at once if it is not in flight). If its turn has not come yet it
 *  starts now: a peer may be waiting for it, while what is in flight here waits for that peer. */
gw_err gw_queue_wait(gw_queue *q, gw_schedule *s);

#endif
