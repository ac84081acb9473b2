/** Schedules in flight, and who advances them: the caller between its kernels (poll), our own
 *  thread (thread), or nobody until somebody waits (none). Whatever advances one advances all: a
 *  rank that waits for one schedule must not stall a peer that waits for another. */
#ifndef GW_COMM_SCHEDULE_QUEUE_H
#define GW_COMM_SCHEDULE_QUEUE_H

#include "comm/schedule/schedule.h"

typedef enum gw_progress { GW_PROGRESS_POLL, GW_PROGRESS_THREAD, GW_PROGRESS_NONE } gw_progress;

typedef struct gw_queue gw_queue;

/** Make room for `capacity` schedules in flight. GW_PROGRESS_THREAD needs MPI_THREAD_SERIALIZED at
 *  least, and whoever else calls MPI while schedules are in flight must take turns with the thread
 *  (base/turn.h). `yield`: waits yield the core between polls. */
gw_err gw_queue_open(gw_queue **out, gw_progress mode, int capacity, bool yield);

/** Wait for what is in flight, then free the queue (not the schedules). */
void gw_queue_close(gw_queue *q);

/** Keep at most `credit` bytes of spans in flight from now on (one schedule is always allowed).
 *  Further ones wait for their turn, the lowest span first. Ranks may then start in different
 *  orders; a schedule that waits here starts regardless of credit once a peer has started it. If an
 *  algorithm's first messages do not show that (they pass through shared memory, or go the other
 *  way), each rank must still, in the end, wait for all that it started. Before the first start. */
void gw_queue_limit(gw_queue *q, size_t credit);

/** GW_PROGRESS_THREAD: encode and decode with so many OpenMP threads, the queue's thread included;
 *  1 unless set. Before the first start. */
void gw_queue_team(gw_queue *q, int threads);

/** During a wait call poll(ctx), too, so that other work under way does not stall. Not with
 *  GW_PROGRESS_THREAD. */
void gw_queue_beside(gw_queue *q, gw_err (*poll)(void *ctx), void *ctx);

/** Start a schedule; it is in flight until waited for or seen complete. */
gw_err gw_queue_start(gw_queue *q, gw_schedule *s);

/** Test what is in flight, as long as something has arrived: a bounded poll. Does nothing unless
 *  the mode is POLL. */
gw_err gw_queue_poll(gw_queue *q);

/** Start `s` now if it still waits for its turn: it is needed. */
gw_err gw_queue_urge(gw_queue *q, gw_schedule *s);

/** Is `s` in flight? Not with GW_PROGRESS_THREAD. */
bool gw_queue_in_flight(const gw_queue *q, const gw_schedule *s);

/** Block until `s` is complete (return at once if it is not in flight). If it still waits for its
 *  turn, start it now: a peer may wait for it, while what is in flight here waits for that peer. */
gw_err gw_queue_wait(gw_queue *q, gw_schedule *s);

#endif
