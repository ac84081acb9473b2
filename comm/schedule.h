/** The nonblocking engine: a collective is a list of operations in rounds. A round's operations are
 *  executed in order (encode, decode, start a message); it ends when every message started in it
 *  is complete; then the next begins. Laid down once for a span, started every step, so one
 *  description serves the blocking and the overlapped exchange, and nothing is allocated in a step.
 *  The idea that collectives are schedules: Hoefler, Lumsdaine, Rehm, "Implementation and
 *  performance analysis of non-blocking collective operations for MPI", SC 2007.
 *
 *  Wire buffers are slots, named by small numbers. On an exact lane (no codec) a slot is the part
 *  of the arena itself wherever that is safe, so nothing is copied: algorithms need not ask.
 *  Parts of length 0 give GW_NO_SLOT, which every function accepts and ignores. */
#ifndef GW_COMM_SCHEDULE_H
#define GW_COMM_SCHEDULE_H

#include "comm/lane.h"

typedef struct gw_schedule gw_schedule;

enum { GW_NO_SLOT = -1 };

/** An empty schedule for base[span] on `lane`. All ranks create a lane's schedules in the same
 *  order (each takes the next tag). Free with gw_schedule_free, never while it runs. */
gw_err gw_schedule_new(gw_schedule **out, gw_lane *lane, float *base, gw_span span);
void gw_schedule_free(gw_schedule *s);

gw_lane *gw_schedule_lane(const gw_schedule *s);
gw_span gw_schedule_span(const gw_schedule *s);
float *gw_schedule_base(const gw_schedule *s);

/* ---- laying down; *slot is what later operations name ---- */

/** Encode `part`; `adopt` as in gw_lane_encode. */
gw_err gw_schedule_pack(gw_schedule *s, gw_span part, bool adopt, int *slot);
/** Send a packed or received slot, verbatim. */
gw_err gw_schedule_send(gw_schedule *s, int slot, int peer);
/** Receive an encoding of `part`. `over`: the message may land straight on the arena (the old
 *  values of `part` are not needed any more); unpack it without `add` in a later round. */
gw_err gw_schedule_recv(gw_schedule *s, gw_span part, int peer, bool over, int *slot);
/** part = (add ? part : 0) + value(slot), in a round after the one that received it. */
gw_err gw_schedule_unpack(gw_schedule *s, int slot, gw_span part, bool add);
/** End the round: what follows waits for all messages so far. */
gw_err gw_schedule_round(gw_schedule *s);

/** Any MPI operation that a request stands for. issue(ctx, request) starts it; with request NULL
 *  it does the blocking form. MPI collectives of one communicator must start in one order on all
 *  ranks, so a schedule holds at most one, in its first round. `ctx` goes to free() at the end. */
gw_err gw_schedule_call(gw_schedule *s, gw_err (*issue)(void *ctx, MPI_Request *request),
                        void *ctx);

/** Wire buffer of a slot, for a `call` that works on it. */
void *gw_schedule_slot_data(const gw_schedule *s, int slot);

/* ---- running ---- */

/** Start the first round. Must not be running. */
gw_err gw_schedule_start(gw_schedule *s);
/** Poll: at most one round forward. *done is true when all is finished (and stays so). */
gw_err gw_schedule_test(gw_schedule *s, bool *done);
/** Blocking execution from start to end; `call`s use their blocking form unless lane->yield. */
gw_err gw_schedule_run(gw_schedule *s);

#endif
