#include "comm/schedule.h"

#include "base/mem.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>

typedef enum op_kind {
    OP_PACK,
    OP_MEASURE,
    OP_PACK_AGREED,
    OP_UNPACK,
    OP_SEND,
    OP_RECV,
    OP_CALL,
    OP_WORK,
    OP_AWAIT,
    OP_ROUND
} op_kind;

typedef struct op {
    op_kind kind;
    bool flag; /* PACK: adopt; UNPACK: add */
    int slot, peer, tag;
    gw_span part;
    gw_lane *lane;
    union {
        gw_err (*issue)(void *ctx, MPI_Request *request);
        gw_err (*work)(void *ctx);
        gw_err (*poll)(void *ctx, bool *done);
    } call;
    void *ctx;
} op;

typedef struct slot {
    char *data;
    size_t cap, len;
    bool alias; /* part of the arena, not a buffer of ours */
} slot;

/* ops[first, end); its requests are [at, at + most) of the schedule's. */
typedef struct strand {
    int stage, first, end, at, most;
    int pc, pending; /* next operation; requests of the running round */
    bool running;
} strand;

typedef struct owned {
    void *ctx;
    void (*release)(void *ctx);
} owned;

struct gw_schedule {
    gw_lane *own, *lane; /* the schedule's; the one of what is laid down now */
    float *base;
    gw_span span;
    op *ops;
    int n_ops, room_ops;
    slot *slots;
    int n_slots, room_slots;
    strand *strands;
    int n_strands, room_strands;
    int *window; /* one a stage */
    int n_stages, room_stages;
    owned *owned;
    int n_owned, room_owned;
    int tag, round; /* laying down: of this strand on this lane; messages of this round */
    /* of all strands, made at the first start */
    MPI_Request *requests;
    MPI_Status *statuses;
    int *into;      /* slot that request i receives into, or GW_NO_SLOT */
    int stage, low; /* running: this stage; strands before low are done */
    bool running, blocking;
    uint64_t ticket;  /* the lane's when this was started */
    gw_exchange told; /* to the probe: the present run */
};

static gw_err grow(void *array, int *room, int need, size_t size) {
    if (need <= *room)
        return GW_OK;
    int wide = *room ? 2 * *room : 8;
    void *old;
    memcpy(&old, array, sizeof old);
    void *fresh = realloc(old, (size_t)wide * size);
    if (!fresh)
        return gw_fail(GW_ERR_NOMEM, "schedule: out of memory");
    memcpy(array, &fresh, sizeof fresh);
    *room = wide;
    return GW_OK;
}

/* A strand without operations is begun anew instead of followed. */
static gw_err begin_strand(gw_schedule *s) {
    strand *last = s->n_strands ? &s->strands[s->n_strands - 1] : NULL;
    s->tag = gw_lane_tag(s->lane);
    s->round = 0;
    if (!last || last->end > last->first) {
        GW_TRY(grow(&s->strands, &s->room_strands, s->n_strands + 1, sizeof *s->strands));
        last = &s->strands[s->n_strands++];
    }
    *last = (strand){.stage = s->n_stages - 1, .first = s->n_ops, .end = s->n_ops};
    return GW_OK;
}

static gw_err begin_stage(gw_schedule *s) {
    GW_TRY(grow(&s->window, &s->room_stages, s->n_stages + 1, sizeof *s->window));
    s->window[s->n_stages++] = 0;
    return begin_strand(s);
}

gw_err gw_schedule_new(gw_schedule **out, gw_lane *lane, float *base, gw_span span) {
    gw_schedule *s = NULL;
    GW_TRY(gw_alloc(&s, 1, sizeof *s));
    s->own = s->lane = lane;
    s->base = base;
    s->span = span;
    s->told = gw_lane_exchange(lane, span);
    gw_err e = begin_stage(s);
    if (e != GW_OK) {
        gw_schedule_free(s);
        return e;
    }
    *out = s;
    return GW_OK;
}

void gw_schedule_free(gw_schedule *s) {
    if (!s)
        return;
    for (int i = 0; i < s->n_slots; i++)
        if (!s->slots[i].alias)
            free(s->slots[i].data);
    while (s->n_owned > 0) {
        owned *o = &s->owned[--s->n_owned];
        o->release(o->ctx);
    }
    free(s->ops);
    free(s->slots);
    free(s->strands);
    free(s->window);
    free(s->owned);
    free(s->requests);
    free(s->statuses);
    free(s->into);
    free(s);
}

gw_lane *gw_schedule_lane(const gw_schedule *s) {
    return s->lane;
}

gw_span gw_schedule_span(const gw_schedule *s) {
    return s->span;
}

float *gw_schedule_base(const gw_schedule *s) {
    return s->base;
}

int gw_schedule_strands(const gw_schedule *s) {
    return s->n_strands;
}

void *gw_schedule_slot_data(const gw_schedule *s, int i) {
    return s->slots[i].data;
}

/* ---- laying down ---- */

static gw_err add_op(gw_schedule *s, op o) {
    GW_TRY(grow(&s->ops, &s->room_ops, s->n_ops + 1, sizeof *s->ops));
    o.lane = s->lane;
    o.tag = s->tag;
    s->ops[s->n_ops++] = o;
    s->strands[s->n_strands - 1].end = s->n_ops;
    return GW_OK;
}

static gw_err add_message(gw_schedule *s, op o) {
    strand *t = &s->strands[s->n_strands - 1];
    GW_TRY(add_op(s, o));
    s->round++;
    if (t->most < s->round)
        t->most = s->round;
    return GW_OK;
}

static gw_err add_slot(gw_schedule *s, gw_span part, bool alias, int *slot_out) {
    GW_TRY(grow(&s->slots, &s->room_slots, s->n_slots + 1, sizeof *s->slots));
    slot fresh = {.cap = gw_codec_bound(s->lane->codec, part.n), .alias = alias};
    if (alias) {
        fresh.data = (char *)(s->base + part.off);
        fresh.len = fresh.cap;
    } else {
        GW_TRY(gw_alloc(&fresh.data, fresh.cap, 1));
    }
    *slot_out = s->n_slots;
    s->slots[s->n_slots++] = fresh;
    return GW_OK;
}

static gw_err pack(gw_schedule *s, gw_span part, bool adopt, bool alias, int *slot_out) {
    *slot_out = GW_NO_SLOT;
    if (part.n == 0)
        return GW_OK;
    GW_TRY(add_slot(s, part, alias, slot_out));
    if (alias)
        return GW_OK;
    return add_op(s, (op){.kind = OP_PACK, .flag = adopt, .slot = *slot_out, .part = part});
}

gw_err gw_schedule_pack(gw_schedule *s, gw_span part, bool adopt, int *slot_out) {
    return pack(s, part, adopt, gw_lane_exact(s->lane), slot_out);
}

gw_err gw_schedule_copy(gw_schedule *s, gw_span part, bool adopt, int *slot_out) {
    return pack(s, part, adopt, false, slot_out);
}

gw_err gw_schedule_measure(gw_schedule *s, gw_span part, int *slot_out) {
    GW_TRY(add_slot(s, part, false, slot_out));
    return add_op(s, (op){.kind = OP_MEASURE, .slot = *slot_out, .part = part});
}

gw_err gw_schedule_pack_agreed(gw_schedule *s, int slot_in, gw_span part) {
    return add_op(s, (op){.kind = OP_PACK_AGREED, .slot = slot_in, .part = part});
}

gw_err gw_schedule_send(gw_schedule *s, int slot_in, int peer) {
    if (slot_in == GW_NO_SLOT)
        return GW_OK;
    return add_message(s, (op){.kind = OP_SEND, .slot = slot_in, .peer = peer});
}

gw_err gw_schedule_recv(gw_schedule *s, gw_span part, int peer, bool over, int *slot_out) {
    *slot_out = GW_NO_SLOT;
    if (part.n == 0)
        return GW_OK;
    GW_TRY(add_slot(s, part, over && gw_lane_exact(s->lane), slot_out));
    return add_message(s, (op){.kind = OP_RECV, .slot = *slot_out, .peer = peer, .part = part});
}

gw_err gw_schedule_unpack(gw_schedule *s, int slot_in, gw_span part, bool add) {
    if (slot_in == GW_NO_SLOT)
        return GW_OK;
    slot *from = &s->slots[slot_in];
    if (from->alias && from->data == (char *)(s->base + part.off) && !add)
        return GW_OK; /* it landed where it belongs */
    return add_op(s, (op){.kind = OP_UNPACK, .flag = add, .slot = slot_in, .part = part});
}

gw_err gw_schedule_round(gw_schedule *s) {
    s->round = 0;
    return add_op(s, (op){.kind = OP_ROUND, .slot = GW_NO_SLOT});
}

gw_err gw_schedule_strand(gw_schedule *s) {
    return begin_strand(s);
}

void gw_schedule_window(gw_schedule *s, int width) {
    s->window[s->n_stages - 1] = width;
}

gw_err gw_schedule_stage(gw_schedule *s) {
    return begin_stage(s);
}

gw_err gw_schedule_work(gw_schedule *s, gw_err (*work)(void *ctx), void *ctx) {
    return add_op(s, (op){.kind = OP_WORK, .slot = GW_NO_SLOT, .call.work = work, .ctx = ctx});
}

gw_err gw_schedule_await(gw_schedule *s, gw_err (*poll)(void *ctx, bool *done), void *ctx) {
    return add_op(s, (op){.kind = OP_AWAIT, .slot = GW_NO_SLOT, .call.poll = poll, .ctx = ctx});
}

gw_err gw_schedule_call(gw_schedule *s, gw_err (*issue)(void *ctx, MPI_Request *request),
                        void *ctx) {
    return add_message(s,
                       (op){.kind = OP_CALL, .slot = GW_NO_SLOT, .call.issue = issue, .ctx = ctx});
}

gw_err gw_schedule_own(gw_schedule *s, void *ctx, void (*release)(void *ctx)) {
    gw_err e = grow(&s->owned, &s->room_owned, s->n_owned + 1, sizeof *s->owned);
    if (e != GW_OK) {
        release(ctx);
        return e;
    }
    s->owned[s->n_owned++] = (owned){ctx, release};
    return GW_OK;
}

void gw_schedule_narrow(gw_schedule *s, gw_span part) {
    s->span = part;
}

void gw_schedule_on(gw_schedule *s, gw_lane *lane) {
    if (lane == s->lane)
        return;
    s->lane = lane;
    s->tag = gw_lane_tag(lane);
}

void gw_schedule_among(gw_schedule *s, const int *peers, int n) {
    s->told.n_peers = n;
    memcpy(s->told.peer, peers, (size_t)n * sizeof *peers);
}

/* ---- running ---- */

static gw_err make_requests(gw_schedule *s) {
    int total = 0;
    for (int i = 0; i < s->n_strands; i++) {
        s->strands[i].at = total;
        total += s->strands[i].most;
    }
    GW_TRY(gw_alloc(&s->statuses, (size_t)total, sizeof *s->statuses));
    GW_TRY(gw_alloc(&s->into, (size_t)total, sizeof *s->into));
    return gw_alloc(&s->requests, (size_t)total, sizeof *s->requests);
}

static gw_err post(gw_schedule *s, strand *t, const op *o) {
    int i = t->at + t->pending;
    MPI_Request *r = &s->requests[i];
    slot *w = o->kind == OP_CALL ? NULL : &s->slots[o->slot];
    s->into[i] = o->kind == OP_RECV ? o->slot : GW_NO_SLOT;
    switch (o->kind) {
    case OP_SEND:
        GW_MPI(
            MPI_Isend_c(w->data, (MPI_Count)w->len, MPI_BYTE, o->peer, o->tag, o->lane->comm, r));
        break;
    case OP_RECV:
        GW_MPI(
            MPI_Irecv_c(w->data, (MPI_Count)w->cap, MPI_BYTE, o->peer, o->tag, o->lane->comm, r));
        break;
    default:
        if (s->blocking)
            return o->call.issue(o->ctx, NULL);
        GW_TRY(o->call.issue(o->ctx, r));
    }
    t->pending++;
    return GW_OK;
}

static gw_err settle_several(MPI_Request *r, int n, bool wait, int *all, MPI_Status *status) {
    if (wait)
        GW_MPI(MPI_Waitall(n, r, status));
    else
        GW_MPI(MPI_Testall(n, r, all, status));
    return GW_OK;
}

/* MPICH 4.0's MPI_Testall takes a persistent collective's completion for an error; its MPI_Test
 * does not, and such a request is alone in its round. */
static gw_err settle_one(MPI_Request *r, bool wait, int *done, MPI_Status *status) {
    if (wait)
        GW_MPI(MPI_Wait(r, status));
    else
        GW_MPI(MPI_Test(r, done, status));
    return GW_OK;
}

/* Are the round's messages complete? Then take their lengths. `wait`: block until they are. */
static gw_err settle(gw_schedule *s, strand *t, bool wait, bool *complete) {
    *complete = true;
    if (t->pending == 0)
        return GW_OK;
    MPI_Request *r = s->requests + t->at;
    MPI_Status *status = s->statuses + t->at;
    int all = 1;
    GW_TRY(t->pending == 1 ? settle_one(r, wait, &all, status)
                           : settle_several(r, t->pending, wait, &all, status));
    *complete = all;
    if (!all)
        return GW_OK;
    for (int i = 0; i < t->pending; i++) {
        int into = s->into[t->at + i];
        if (into == GW_NO_SLOT)
            continue;
        MPI_Count len = 0;
        GW_MPI(MPI_Get_count_c(&status[i], MPI_BYTE, &len));
        s->slots[into].len = (size_t)len;
    }
    t->pending = 0;
    return GW_OK;
}

static gw_err execute(gw_schedule *s, strand *t, const op *o) {
    slot *w = o->slot == GW_NO_SLOT ? NULL : &s->slots[o->slot];
    switch (o->kind) {
    case OP_PACK:
        return gw_lane_encode(o->lane, s->base, o->part, o->flag, w->data, w->cap, &w->len);
    case OP_MEASURE: gw_lane_measure(o->lane, s->base, o->part, w->data); return GW_OK;
    case OP_PACK_AGREED:
        return gw_lane_encode_agreed(o->lane, s->base, o->part, o->flag, w->data, w->cap, &w->len);
    case OP_UNPACK: return gw_lane_decode(o->lane, w->data, w->len, s->base, o->part, o->flag);
    case OP_WORK: return o->call.work(o->ctx);
    default: return post(s, t, o);
    }
}

/* Go on with a strand until it has to wait (or, if it may, through the waiting to its end). */
static gw_err advance(gw_schedule *s, strand *t, bool wait) {
    bool go = true;
    while (t->pc < t->end) {
        const op *o = &s->ops[t->pc];
        if (o->kind == OP_ROUND)
            GW_TRY(settle(s, t, wait, &go));
        else if (o->kind == OP_AWAIT)
            GW_TRY(o->call.poll(o->ctx, &go));
        else
            GW_TRY(execute(s, t, o));
        if (!go && !(wait && o->kind == OP_AWAIT))
            return GW_OK;
        t->pc += go;
    }
    GW_TRY(settle(s, t, wait, &go));
    t->running = !go;
    return GW_OK;
}

static int last_of_stage(const gw_schedule *s) {
    int i = s->low;
    while (i < s->n_strands && s->strands[i].stage == s->stage)
        i++;
    return i;
}

/* One pass over the strands that may advance; stage by stage as far as it goes without waiting. */
static gw_err pass(gw_schedule *s) {
    while (s->low < s->n_strands) {
        int end = last_of_stage(s), width = s->window[s->stage];
        int stop = width > 0 && s->low + width < end ? s->low + width : end;
        /* The only strand there is may as well block: nothing else could advance meanwhile. */
        bool wait = s->blocking && end - s->low == 1;
        for (int i = s->low; i < stop; i++)
            if (s->strands[i].running)
                GW_TRY(advance(s, &s->strands[i], wait));
        int low = s->low;
        while (s->low < end && !s->strands[s->low].running)
            s->low++;
        if (s->low == end)
            s->stage++;
        else if (s->low == low || stop == end)
            return GW_OK;
    }
    s->running = false;
    gw_exchange_tell(GW_EXCHANGE_DONE, &s->told);
    return GW_OK;
}

/* An exchange may be under way when the next one begins, and still draws its own random numbers. */
static gw_err sweep(gw_schedule *s) {
    uint64_t now = s->own->ticket;
    s->own->ticket = s->ticket;
    gw_err e = pass(s);
    s->own->ticket = now;
    return e;
}

static gw_err start(gw_schedule *s, bool blocking) {
    if (s->running)
        return gw_fail(GW_ERR_INTERNAL, "schedule for span [%zu, %zu) started twice", s->span.off,
                       gw_span_end(s->span));
    if (!s->requests)
        GW_TRY(make_requests(s));
    for (int i = 0; i < s->n_strands; i++) {
        strand *t = &s->strands[i];
        t->pc = t->first;
        t->pending = 0;
        t->running = true;
    }
    s->ticket = s->own->ticket;
    s->running = true;
    s->blocking = blocking;
    s->stage = s->low = 0;
    return sweep(s);
}

gw_err gw_schedule_start(gw_schedule *s) {
    s->told.run++;
    gw_exchange_tell(GW_EXCHANGE_START, &s->told);
    return start(s, false);
}

gw_err gw_schedule_test(gw_schedule *s, bool *done) {
    if (s->running)
        GW_TRY(sweep(s));
    *done = !s->running;
    return GW_OK;
}

gw_err gw_schedule_run(gw_schedule *s) {
    s->told.run++; /* blocked from before its start on */
    gw_exchange_tell(GW_EXCHANGE_START, &s->told);
    gw_exchange_tell(GW_EXCHANGE_BLOCK, &s->told);
    gw_err e = start(s, !s->own->yield);
    while (e == GW_OK && s->running) {
        if (s->own->yield)
            sched_yield();
        e = sweep(s);
    }
    gw_exchange_tell(GW_EXCHANGE_UNBLOCK, &s->told);
    return e;
}

const gw_exchange *gw_schedule_exchange(const gw_schedule *s) {
    return &s->told;
}
