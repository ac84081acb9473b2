/** The nonblocking engine: a collective is a list of operations, cut into stages, strands and
 *  rounds. It is laid down once for a span and started every step. One description serves the
 *  blocking and the overlapped exchange, and a step allocates nothing. Collectives as schedules:
 *  Hoefler, Lumsdaine, Rehm, "Implementation and performance analysis of non-blocking collective
 *  operations for MPI", SC 2007.
 *
 *  Operations run in order; a round ends when every message started in it is complete. Strands are
 *  lists of rounds that advance side by side: to pipeline an algorithm, lay it down once per chunk
 *  of the span, each as a strand. A stage ends when all its strands have ended.
 *
 *  Wire buffers are slots, named by small numbers. On an exact lane (no codec) a slot is the part
 *  of the arena itself wherever that is safe, so nothing is copied: algorithms need not ask.
 *  Parts of length 0 give GW_NO_SLOT, which every function accepts and ignores. */
#ifndef GW_COMM_SCHEDULE_SCHEDULE_H
#define GW_COMM_SCHEDULE_SCHEDULE_H

#include "base/probe.h"
#include "comm/lane.h"

typedef struct gw_schedule gw_schedule;

enum { GW_NO_SLOT = -1 };

/** Make an empty schedule for base[span] on `lane`. All ranks create a lane's schedules in the same
 *  order and with the same numbers of strands (every strand takes the next tag). Free it with
 *  gw_schedule_free, never while it runs. */
gw_err gw_schedule_new(gw_schedule **out, gw_lane *lane, float *base, gw_span span);
void gw_schedule_free(gw_schedule *s);

/** Return the lane of the operations that are laid down now; see gw_schedule_on. */
gw_lane *gw_schedule_lane(const gw_schedule *s);
/** Return what to reduce: the schedule's span, or the part that gw_schedule_narrow chose. */
gw_span gw_schedule_span(const gw_schedule *s);
float *gw_schedule_base(const gw_schedule *s);

/* ---- laying down; later operations name a slot by *slot_out, and slots are numbered on ---- */

/** Encode `part`; `adopt` as in gw_encoder_encode. */
gw_err gw_schedule_pack(gw_schedule *s, gw_span part, bool adopt, int *slot_out);
/** The same, but the slot is never the arena itself: `part` may change while it is in use. */
gw_err gw_schedule_copy(gw_schedule *s, gw_span part, bool adopt, int *slot_out);
/** pack in two halves, for a codec that agrees. The first writes the prefix to *slot_out. Once the
 *  elementwise maximum over the ranks has replaced it, the second writes the encoding of the same
 *  part behind it. */
gw_err gw_schedule_measure(gw_schedule *s, gw_span part, int *slot_out);
gw_err gw_schedule_pack_agreed(gw_schedule *s, int slot_in, gw_span part);
/** Send a packed or received slot, verbatim. */
gw_err gw_schedule_send(gw_schedule *s, int slot_in, int peer);
/** Receive an encoding of `part`. `over`: the message may land directly in the arena (the old
 *  values of `part` are no longer needed); unpack it without `add` in a later round. */
gw_err gw_schedule_recv(gw_schedule *s, gw_span part, int peer, bool over, int *slot_out);
/** part = (add ? part : 0) + value(slot_in), in a round after the one that received it. */
gw_err gw_schedule_unpack(gw_schedule *s, int slot_in, gw_span part, bool add);
/** The same for a message of n nonempty parts, one behind another, on an exact lane. With one part
 *  or none they are pack, recv and unpack, on any lane. */
gw_err gw_schedule_pack_parts(gw_schedule *s, const gw_span *parts, int n, bool adopt,
                              int *slot_out);
gw_err gw_schedule_recv_parts(gw_schedule *s, const gw_span *parts, int n, int peer, bool over,
                              int *slot_out);
gw_err gw_schedule_unpack_parts(gw_schedule *s, int slot_in, const gw_span *parts, int n, bool add);
/** *into = the elements of `part` in `slot_in` (gw_encoder_list), also in a later round. */
gw_err gw_schedule_list(gw_schedule *s, int slot_in, gw_span part, gw_elements *into);
/** End the round: what follows waits for all messages of this strand so far. */
gw_err gw_schedule_round(gw_schedule *s);
/** Begin another strand beside those of this stage. Strands start in order. */
gw_err gw_schedule_strand(gw_schedule *s);
/** Let at most `width` strands of the present stage advance at a time (0, the default: all). */
void gw_schedule_window(gw_schedule *s, int width);
/** End the stage: what follows waits for all of its strands. */
gw_err gw_schedule_stage(gw_schedule *s);

/** Call `work` at this place in the order. It must be quick: it holds up whoever polls. */
gw_err gw_schedule_work(gw_schedule *s, gw_err (*work)(void *ctx), void *ctx);
/** What follows in this strand waits until *done; `poll` must not block. */
gw_err gw_schedule_await(gw_schedule *s, gw_err (*poll)(void *ctx, bool *done), void *ctx);
/** Run any MPI operation that has a request. issue(ctx, request) starts it; with request NULL it
 *  runs the blocking form. MPI collectives on one communicator must start in the same order on all
 *  ranks, so a schedule holds at most one per lane, in its first round. GW_ERR_UNSUPPORTED: the
 *  lane is not MPI's. */
gw_err gw_schedule_call(gw_schedule *s, gw_err (*issue)(void *ctx, MPI_Request *request),
                        void *ctx);
/** Have the schedule call release(ctx) when it is freed (at once if this fails). */
gw_err gw_schedule_own(gw_schedule *s, void *ctx, void (*release)(void *ctx));

/** Restrict what follows to this part, until the next call: so an algorithm lays down another (or
 *  itself) over a chunk. */
void gw_schedule_narrow(gw_schedule *s, gw_span part);
/** Send what follows, strands and stages included, over `lane` (the schedule's own, or one split
 * off it), until the next call. Takes a tag of `lane` unless that is the present one already. */
void gw_schedule_on(gw_schedule *s, gw_lane *lane);

/** Declare, for those who measure it, that this exchange involves only these ranks, not the whole
 *  lane; n <= GW_EXCHANGE_PEERS. */
void gw_schedule_among(gw_schedule *s, const int *peers, int n);

/** Return the wire buffer of a slot, for a `call` that works on it. */
void *gw_schedule_slot_data(const gw_schedule *s, int slot);

/* ---- running ---- */

/** Start. Must not be running. */
gw_err gw_schedule_start(gw_schedule *s);
/** Poll: run as far as possible without waiting. *done: all of it is finished. */
gw_err gw_schedule_test(gw_schedule *s, bool *done);
/** While it is not running: has a peer begun the run that is due here, so that its message has
 *  arrived? False if none can, e.g. because the peers wait for this rank's first message. */
gw_err gw_schedule_called(const gw_schedule *s, bool *called);
/** Run from start to end, blocking; `call`s use their blocking form unless the lane yields. */
gw_err gw_schedule_run(gw_schedule *s);

/** Return the present run's ticket, for work that calls gw_encoder_encode. */
uint64_t gw_schedule_ticket(const gw_schedule *s);

/** Return what the probe hears about the present run, or the last one. */
const gw_exchange *gw_schedule_exchange(const gw_schedule *s);

#endif
