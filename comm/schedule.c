#include "comm/schedule.h"

#include "base/mem.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>

typedef enum op_kind { OP_PACK, OP_UNPACK, OP_SEND, OP_RECV, OP_CALL, OP_ROUND } op_kind;

typedef struct op {
    op_kind kind;
    bool flag; /* PACK: adopt; UNPACK: add */
    int slot, peer;
    gw_span part;
    gw_err (*issue)(void *ctx, MPI_Request *request);
    void *ctx;
} op;

typedef struct slot {
    char *data;
    size_t cap, len;
    bool alias; /* part of the arena, not a buffer of ours */
} slot;

struct gw_schedule {
    gw_lane *lane;
    float *base;
    gw_span span;
    int tag;
    op *ops;
    int n_ops, room_ops;
    slot *slots;
    int n_slots, room_slots;
    /* of the running round */
    MPI_Request *requests;
    MPI_Status *statuses;
    int *into; /* slot that request i receives into, or GW_NO_SLOT */
    int n_requests, room_requests;
    int pc; /* next operation */
    bool running, blocking;
};

gw_err gw_schedule_new(gw_schedule **out, gw_lane *lane, float *base, gw_span span) {
    gw_schedule *s = NULL;
    GW_TRY(gw_alloc(&s, 1, sizeof *s));
    s->lane = lane;
    s->base = base;
    s->span = span;
    s->tag = lane->next_tag;
    lane->next_tag = (lane->next_tag + 1) % 32768; /* the least MPI_TAG_UB */
    *out = s;
    return GW_OK;
}

void gw_schedule_free(gw_schedule *s) {
    if (!s)
        return;
    for (int i = 0; i < s->n_slots; i++)
        if (!s->slots[i].alias)
            free(s->slots[i].data);
    for (int i = 0; i < s->n_ops; i++)
        free(s->ops[i].ctx);
    free(s->ops);
    free(s->slots);
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

void *gw_schedule_slot_data(const gw_schedule *s, int i) {
    return s->slots[i].data;
}

/* ---- laying down ---- */

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

static gw_err add_op(gw_schedule *s, op o) {
    GW_TRY(grow(&s->ops, &s->room_ops, s->n_ops + 1, sizeof *s->ops));
    s->ops[s->n_ops++] = o;
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

/* Requests of one round: at most as many as there are operations, so room is made here, once. */
static gw_err add_message(gw_schedule *s, op o) {
    GW_TRY(add_op(s, o));
    int need = s->n_requests + 1; /* counts the round being laid down */
    int room = s->room_requests;
    GW_TRY(grow(&s->requests, &room, need, sizeof *s->requests));
    room = s->room_requests;
    GW_TRY(grow(&s->statuses, &room, need, sizeof *s->statuses));
    room = s->room_requests;
    GW_TRY(grow(&s->into, &room, need, sizeof *s->into));
    s->room_requests = room;
    s->n_requests = need;
    return GW_OK;
}

gw_err gw_schedule_pack(gw_schedule *s, gw_span part, bool adopt, int *slot_out) {
    *slot_out = GW_NO_SLOT;
    if (part.n == 0)
        return GW_OK;
    bool exact = gw_lane_exact(s->lane);
    GW_TRY(add_slot(s, part, exact, slot_out));
    if (exact)
        return GW_OK;
    return add_op(s, (op){.kind = OP_PACK, .flag = adopt, .slot = *slot_out, .part = part});
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
    s->n_requests = 0;
    return add_op(s, (op){.kind = OP_ROUND});
}

gw_err gw_schedule_call(gw_schedule *s, gw_err (*issue)(void *ctx, MPI_Request *request),
                        void *ctx) {
    gw_err e = add_message(s, (op){.kind = OP_CALL, .issue = issue, .ctx = ctx});
    if (e != GW_OK)
        free(ctx);
    return e;
}

/* ---- running ---- */

static gw_err post(gw_schedule *s, const op *o) {
    MPI_Request *r = &s->requests[s->n_requests];
    slot *w = o->kind == OP_CALL ? NULL : &s->slots[o->slot];
    s->into[s->n_requests] = o->kind == OP_RECV ? o->slot : GW_NO_SLOT;
    switch (o->kind) {
    case OP_SEND:
        GW_MPI(
            MPI_Isend_c(w->data, (MPI_Count)w->len, MPI_BYTE, o->peer, s->tag, s->lane->comm, r));
        break;
    case OP_RECV:
        GW_MPI(
            MPI_Irecv_c(w->data, (MPI_Count)w->cap, MPI_BYTE, o->peer, s->tag, s->lane->comm, r));
        break;
    default:
        if (s->blocking)
            return o->issue(o->ctx, NULL);
        GW_TRY(o->issue(o->ctx, r));
    }
    s->n_requests++;
    return GW_OK;
}

/* Execute operations up to the end of the round. */
static gw_err run_round(gw_schedule *s) {
    s->n_requests = 0;
    for (; s->pc < s->n_ops && s->ops[s->pc].kind != OP_ROUND; s->pc++) {
        const op *o = &s->ops[s->pc];
        slot *w = o->slot == GW_NO_SLOT || o->kind == OP_CALL ? NULL : &s->slots[o->slot];
        if (o->kind == OP_PACK)
            GW_TRY(gw_lane_encode(s->lane, s->base, o->part, o->flag, w->data, w->cap, &w->len));
        else if (o->kind == OP_UNPACK)
            GW_TRY(gw_lane_decode(s->lane, w->data, w->len, s->base, o->part, o->flag));
        else
            GW_TRY(post(s, o));
    }
    return GW_OK;
}

static gw_err note_lengths(gw_schedule *s) {
    for (int i = 0; i < s->n_requests; i++) {
        if (s->into[i] == GW_NO_SLOT)
            continue;
        MPI_Count len = 0;
        GW_MPI(MPI_Get_count_c(&s->statuses[i], MPI_BYTE, &len));
        s->slots[s->into[i]].len = (size_t)len;
    }
    return GW_OK;
}

gw_err gw_schedule_start(gw_schedule *s) {
    if (s->running)
        return gw_fail(GW_ERR_INTERNAL, "schedule for span [%zu, %zu) started twice", s->span.off,
                       gw_span_end(s->span));
    s->running = true;
    s->blocking = false;
    s->pc = 0;
    return run_round(s);
}

/* The round's messages are complete: take the lengths and begin the next, if there is one. */
static gw_err next_round(gw_schedule *s) {
    GW_TRY(note_lengths(s));
    s->n_requests = 0;
    if (s->pc == s->n_ops) {
        s->running = false;
        return GW_OK;
    }
    s->pc++; /* past OP_ROUND */
    return run_round(s);
}

gw_err gw_schedule_test(gw_schedule *s, bool *done) {
    int complete = 1;
    if (s->running && s->n_requests > 0)
        GW_MPI(MPI_Testall(s->n_requests, s->requests, &complete, s->statuses));
    if (s->running && complete)
        GW_TRY(next_round(s));
    *done = !s->running;
    return GW_OK;
}

gw_err gw_schedule_run(gw_schedule *s) {
    s->running = true;
    s->blocking = !s->lane->yield;
    s->pc = 0;
    GW_TRY(run_round(s));
    while (s->running) {
        if (s->lane->yield) {
            bool done;
            GW_TRY(gw_schedule_test(s, &done));
            if (!done)
                sched_yield();
        } else {
            if (s->n_requests > 0)
                GW_MPI(MPI_Waitall(s->n_requests, s->requests, s->statuses));
            GW_TRY(next_round(s));
        }
    }
    return GW_OK;
}
