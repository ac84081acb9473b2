/** The members of a schedule, for the files that lay it down and run it (schedule.c) and report on
 *  it (pending.c). Nobody else includes this.
 *
 *  Members that change while it runs are atomic: pending.c reads them from another thread. Only one
 *  thread at a time writes them, in no required order, so they cost no more than plain stores. */
#ifndef GW_COMM_SCHEDULE_SCHEDULE_PARTS_H
#define GW_COMM_SCHEDULE_SCHEDULE_PARTS_H

#include "base/probe.h"
#include "comm/channel.h"
#include "comm/lane.h"

#include <stdatomic.h>

#define GW_GET(field)        atomic_load_explicit(&(field), memory_order_relaxed)
#define GW_SET(field, value) atomic_store_explicit(&(field), (value), memory_order_relaxed)

typedef enum gw_op_kind {
    GW_OP_PACK,
    GW_OP_MEASURE,
    GW_OP_PACK_AGREED,
    GW_OP_UNPACK,
    GW_OP_LIST,
    GW_OP_SEND,
    GW_OP_RECV,
    GW_OP_CALL,
    GW_OP_WORK,
    GW_OP_AWAIT,
    GW_OP_ROUND
} gw_op_kind;

typedef struct gw_op {
    gw_op_kind kind;
    bool flag;  /* PACK: adopt; UNPACK: add */
    bool alone; /* PACK: it contains what was decoded before (GW_ENCODE_ALONE) */
    int slot, peer, tag;
    gw_span part;
    gw_lane *lane;
    union {
        gw_err (*issue)(void *ctx, MPI_Request *request);
        gw_err (*work)(void *ctx);
        gw_elements *list;
        gw_err (*poll)(void *ctx, bool *done);
    } call;
    void *ctx;
} gw_op;

typedef struct gw_slot {
    char *data;
    size_t cap, len;
    bool alias; /* part of the arena, or absent: not our own buffer */
    int peer;   /* its sender, by rank on the lane; -1: it is not received */
} gw_slot;

/* ops[first, end); its messages are [at, at + most) of the schedule's posts. */
typedef struct gw_strand {
    int stage, first, end, at, most;
    bool held;              /* by the messages of a round */
    atomic_int pc, pending; /* next operation; messages of the running round */
    atomic_bool running;
} gw_strand;

typedef struct gw_owned {
    void *ctx;
    void (*release)(void *ctx);
} gw_owned;

struct gw_schedule {
    gw_lane *own, *lane; /* the schedule's; that of operations laid down now */
    float *base;
    gw_span span;
    struct {
        gw_op *x;
        int n, room;
    } ops;
    struct {
        gw_slot *x;
        int n, room;
    } slots;
    struct {
        gw_strand *x;
        int n, room;
    } strands;
    struct {
        int *window;
        int n, room;
    } stages;
    struct {
        gw_owned *x;
        int n, room;
    } owned;
    int tag, round; /* laying down: this strand's tag on this lane; messages of this round */
    /* for all strands, made at the first start */
    gw_posts *posts;
    atomic_int stage; /* the running one */
    int low;          /* strands before this one are done */
    atomic_bool running;
    bool blocking;
    uint64_t ticket;  /* the lane's when this was started: the next may begin meanwhile */
    gw_exchange told; /* what the probe hears: the present run */
    /* for pending.c */
    struct gw_schedule *next, *previous;
    bool listed;
    atomic_bool deferred;
    atomic_uint_fast64_t runs;
};

/** For comm/schedule/pending.h. add: `s` is about to run for the first time, or to wait for its
 *  turn. remove: it is gone. */
void gw_pending_add(struct gw_schedule *s);
void gw_pending_remove(struct gw_schedule *s);

#endif
