/** The nonblocking engine: a collective is a list of operations, cut into stages, strands and
 *  rounds, that is laid down once for a span and started every step: one description serves the
 *  blocking and the overlapped exchange, and nothing is allocated in a step. The idea that
 *  collectives are schedules: Hoefler, Lumsdaine, Rehm, "Implementation and performance analysis of
 *  non-blocking collective operations for MPI", SC 2007.
 *
 *  Operations are executed in order; a round ends when every message started in it is complete.
 *  Strands are lists of rounds that advance side by side: an algorithm is pipelined by laying it
 *  down once a chunk of the span, a strand each. A stage ends when all its strands have.
 *
 *  Wire buffers are slots, named by small numbers. On an exact lane (no codec) a slot is the part
 *  of the arena itself wherever that is safe, so nothing is copied: algorithms need not ask.
 *  Parts of length 0 give GW_NO_SLOT, which every function accepts and ignores. */
#ifndef GW_COMM_SCHEDULE_H
#define GW_COMM_SCHEDULE_H

#include "base/probe.h"
#include "comm/lane.h"

typedef struct gw_schedule gw_schedule;

enum { GW_NO_SLOT = -1 };

/** An empty schedule for base[span] on `lane`. All ranks create a lane's schedules in the same
 *  order, with as many strands each (every strand takes the next tag). Free with
 *  gw_schedule_free, never while it runs. */
gw_err gw_schedule_new(gw_schedule **out, gw_lane *lane, float *base, gw_span span);
void gw_schedule_free(gw_schedule *s);

/** The lane that operations laid down now belong to; see gw_schedule_on. */
gw_lane *gw_schedule_lane(const gw_schedule *s);
/** What is to be reduced: the schedule's span, or the part that gw_schedule_narrow chose. */
gw_span gw_schedule_span(const gw_schedule *s);
float *gw_schedule_base(const gw_schedule *s);

/* ---- laying down; *slot_out is what later operations name ---- */

/** Encode `part`; `adopt` as in gw_lane_encode. */
gw_err gw_schedule_pack(gw_schedule *s, gw_span part, bool adopt, int *slot_out);
/** The same, but the slot is never the arena itself: `part` may change while it is in use. */
gw_err gw_schedule_copy(gw_schedule *s, gw_span part, bool adopt, int *slot_out);
/** For a codec that agrees, pack in two halves: the prefix into *slot_out; later, when the
 *  elementwise maximum over the ranks is there in its place, the encoding of the same part behind
 *  it. */
gw_err gw_schedule_measure(gw_schedule *s, gw_span part, int *slot_out);
gw_err gw_schedule_pack_agreed(gw_schedule *s, int slot_in, gw_span part);
/** Send a packed or received slot, verbatim. */
gw_err gw_schedule_send(gw_schedule *s, int slot_in, int peer);
/** Receive an encoding of `part`. `over`: the message may land straight on the arena (the old
 *  values of `part` are not needed any more); unpack it without `add` in a later round. */
gw_err gw_schedule_recv(gw_schedule *s, gw_span part, int peer, bool over, int *slot_out);
/** part = (add ? part : 0) + value(slot_in), in a round after the one that received it. */
gw_err gw_schedule_unpack(gw_schedule *s, int slot_in, gw_span part, bool add);
/** The same for a message of n parts, none of them empty, one behind another: on an exact lane. One
 *  part, or none, is pack, recv and unpack, on any lane. */
gw_err gw_schedule_pack_parts(gw_schedule *s, const gw_span *parts, int n, bool adopt,
                              int *slot_out);
gw_err gw_schedule_recv_parts(gw_schedule *s, const gw_span *parts, int n, int peer, bool over,
                              int *slot_out);
gw_err gw_schedule_unpack_parts(gw_schedule *s, int slot_in, const gw_span *parts, int n, bool add);
/** *into = the elements that `slot_in` holds of `part` (gw_lane_list), in a later round, too. */
gw_err gw_schedule_list(gw_schedule *s, int slot_in, gw_span part, gw_elements *into);
/** End the round: what follows waits for all messages of this strand so far. */
gw_err gw_schedule_round(gw_schedule *s);
/** Begin another strand beside those of this stage. Strands start in order. */
gw_err gw_schedule_strand(gw_schedule *s);
/** At most `width` strands of the present stage advance at a time (0, the default: all). */
void gw_schedule_window(gw_schedule *s, int width);
/** End the stage: what follows waits for all of its strands. */
gw_err gw_schedule_stage(gw_schedule *s);

/** Work of our own, at its place in the order; quick, or it holds up whoever polls. */
gw_err gw_schedule_work(gw_schedule *s, gw_err (*work)(void *ctx), void *ctx);
/** What follows in this strand waits until *done; `poll` must not block. */
gw_err gw_schedule_await(gw_schedule *s, gw_err (*poll)(void *ctx, bool *done), void *ctx);
/** Any MPI operation that a request stands for. issue(ctx, request) starts it; with request NULL
 *  it does the blocking form. MPI collectives of one communicator must start in one order on all
 *  ranks, so a schedule holds at most one a lane, in its first round. GW_ERR_UNSUPPORTED: the lane
 *  is not MPI's. */
gw_err gw_schedule_call(gw_schedule *s, gw_err (*issue)(void *ctx, MPI_Request *request),
                        void *ctx);
/** The schedule calls release(ctx) when it is freed (at once if this fails). */
gw_err gw_schedule_own(gw_schedule *s, void *ctx, void (*release)(void *ctx));

/** What follows is about this part only, until the next call: how an algorithm lays down another
 *  (or itself) over a chunk. */
void gw_schedule_narrow(gw_schedule *s, gw_span part);
/** What follows, strands and stages included, goes over `lane` (the schedule's own, or one split
 * off it), until the next call. Takes a tag of `lane` unless that is the present one already. */
void gw_schedule_on(gw_schedule *s, gw_lane *lane);

/** This exchange is one with these ranks only, not of the whole lane; n <= GW_EXCHANGE_PEERS.
 * Matters to those who measure it. */
void gw_schedule_among(gw_schedule *s, const int *peers, int n);

/** How many strands were laid down: into how many chunks the algorithm has cut the span. */
int gw_schedule_strands(const gw_schedule *s);

/** Wire buffer of a slot, for a `call` that works on it. */
void *gw_schedule_slot_data(const gw_schedule *s, int slot);

/* ---- running ---- */

/** Start. Must not be running. */
gw_err gw_schedule_start(gw_schedule *s);
/** Poll: run as far as is possible without waiting. *done: all of it is finished. */
gw_err gw_schedule_test(gw_schedule *s, bool *done);
/** Not running: has a peer begun the run that is due here, so that a message of it has arrived?
 *  False where none can, e.g. because the peers wait for this rank's first message. */
gw_err gw_schedule_called(const gw_schedule *s, bool *called);
/** Blocking execution from start to end; `call`s use their blocking form unless lane->yield. */
gw_err gw_schedule_run(gw_schedule *s);

/** The present run's ticket, for work that encodes by itself (gw_lane_encode). */
uint64_t gw_schedule_ticket(const gw_schedule *s);

/** What the probe is told of the present run, or the last one. */
const gw_exchange *gw_schedule_exchange(const gw_schedule *s);

#endif
