/* Schedules: how they are laid down, and run. */
#include "comm/schedule/schedule.h"

#include "base/mem.h"
#include "comm/schedule/schedule_parts.h"

#include <stdlib.h>
#include <string.h>

/* A strand without operations is begun anew instead of followed. */
gw_err gw_schedule_strand(gw_schedule *s) {
    gw_strand *last = s->strands.n ? &s->strands.x[s->strands.n - 1] : NULL;
    s->tag = gw_channel_tag(gw_lane_channel(s->lane));
    s->round = 0;
    if (!last || last->end > last->first) {
        GW_TRY(gw_grow(&s->strands.x, &s->strands.room, s->strands.n + 1, sizeof *s->strands.x));
        last = &s->strands.x[s->strands.n++];
    }
    *last = (gw_strand){.stage = s->stages.n - 1, .first = s->ops.n, .end = s->ops.n};
    return GW_OK;
}

gw_err gw_schedule_stage(gw_schedule *s) {
    GW_TRY(gw_grow(&s->stages.window, &s->stages.room, s->stages.n + 1, sizeof *s->stages.window));
    s->stages.window[s->stages.n++] = 0;
    return gw_schedule_strand(s);
}

gw_err gw_schedule_new(gw_schedule **out, gw_lane *lane, float *base, gw_span span) {
    gw_schedule *s = NULL;
    GW_TRY(gw_alloc(&s, 1, sizeof *s));
    s->own = s->lane = lane;
    s->base = base;
    s->span = span;
    s->told = gw_lane_exchange(lane, span);
    gw_err e = gw_schedule_stage(s);
    GW_OPENED(e, out, s, gw_schedule_free);
}

void gw_schedule_free(gw_schedule *s) {
    if (!s)
        return;
    gw_pending_remove(s);
    for (int i = 0; i < s->slots.n; i++)
        if (!s->slots.x[i].alias)
            free(s->slots.x[i].data);
    while (s->owned.n > 0) {
        gw_owned *o = &s->owned.x[--s->owned.n];
        o->release(o->ctx);
    }
    free(s->ops.x);
    free(s->slots.x);
    free(s->strands.x);
    free(s->stages.window);
    free(s->owned.x);
    free(s->posts);
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

void *gw_schedule_slot_data(const gw_schedule *s, int slot) {
    return s->slots.x[slot].data;
}

/* ---- laying down ---- */

static gw_err schedule_add_op(gw_schedule *s, gw_op o) {
    GW_TRY(gw_grow(&s->ops.x, &s->ops.room, s->ops.n + 1, sizeof *s->ops.x));
    o.lane = s->lane;
    o.tag = s->tag;
    s->ops.x[s->ops.n++] = o;
    s->strands.x[s->strands.n - 1].end = s->ops.n;
    return GW_OK;
}

static gw_err schedule_add_message(gw_schedule *s, gw_op o) {
    gw_strand *t = &s->strands.x[s->strands.n - 1];
    GW_TRY(schedule_add_op(s, o));
    s->round++;
    if (t->most < s->round)
        t->most = s->round;
    return GW_OK;
}

static gw_err schedule_add_slot(gw_schedule *s, gw_span part, bool alias, int *slot_out) {
    GW_TRY(gw_grow(&s->slots.x, &s->slots.room, s->slots.n + 1, sizeof *s->slots.x));
    const gw_encoder *e = gw_lane_encoder(s->lane);
    gw_slot fresh = {.cap = gw_codec_bound(e->codec, part.n), .alias = alias, .peer = -1};
    if (alias) {
        fresh.data = (char *)(s->base + part.off);
        fresh.len = fresh.cap;
    } else if (e->of->phantom) {
        fresh.data = e->of->phantom->wire;
        fresh.alias = true;
    } else {
        GW_TRY(gw_alloc(&fresh.data, fresh.cap, 1));
    }
    *slot_out = s->slots.n;
    s->slots.x[s->slots.n++] = fresh;
    return GW_OK;
}

/* Whether what was decoded is in `part`: by this strand, or a stage before. */
static bool schedule_decoded(const gw_schedule *s, gw_span part) {
    const gw_strand *now = &s->strands.x[s->strands.n - 1];
    for (const gw_strand *t = s->strands.x; t <= now; t++)
        for (int i = t->first; i < t->end && (t == now || t->stage < now->stage); i++) {
            const gw_op *o = &s->ops.x[i];
            if (o->kind == GW_OP_UNPACK && !gw_lane_exact(o->lane) &&
                gw_span_overlap(o->part, part))
                return true;
        }
    return false;
}

static gw_err schedule_pack(gw_schedule *s, gw_span part, bool adopt, bool alias, int *slot_out) {
    *slot_out = GW_NO_SLOT;
    if (part.n == 0)
        return GW_OK;
    GW_TRY(schedule_add_slot(s, part, alias, slot_out));
    if (alias)
        return GW_OK;
    return schedule_add_op(s, (gw_op){.kind = GW_OP_PACK,
                                      .flag = adopt,
                                      .alone = schedule_decoded(s, part),
                                      .slot = *slot_out,
                                      .part = part});
}

gw_err gw_schedule_pack(gw_schedule *s, gw_span part, bool adopt, int *slot_out) {
    return schedule_pack(s, part, adopt, gw_lane_exact(s->lane), slot_out);
}

gw_err gw_schedule_copy(gw_schedule *s, gw_span part, bool adopt, int *slot_out) {
    return schedule_pack(s, part, adopt, false, slot_out);
}

/* A slot for all of the parts and, behind it, one for each. */
static gw_err schedule_add_parts(gw_schedule *s, const gw_span *parts, int n, int *slot_out) {
    gw_span all = {parts[0].off, 0};
    for (int i = 0; i < n; i++)
        all.n += parts[i].n;
    GW_TRY(schedule_add_slot(s, all, false, slot_out));
    gw_slot whole = s->slots.x[*slot_out];
    s->slots.x[*slot_out].len = whole.cap;
    for (int i = 0; i < n; i++) {
        int piece;
        GW_TRY(schedule_add_slot(s, parts[i], true, &piece));
        s->slots.x[piece].data = whole.data;
        whole.data += s->slots.x[piece].cap;
    }
    return GW_OK;
}

gw_err gw_schedule_pack_parts(gw_schedule *s, const gw_span *parts, int n, bool adopt,
                              int *slot_out) {
    *slot_out = GW_NO_SLOT;
    if (n < 2)
        return n == 0 ? GW_OK : gw_schedule_pack(s, parts[0], adopt, slot_out);
    GW_TRY(schedule_add_parts(s, parts, n, slot_out));
    for (int i = 0; i < n; i++)
        GW_TRY(schedule_add_op(
            s, (gw_op){.kind = GW_OP_PACK, .slot = *slot_out + 1 + i, .part = parts[i]}));
    return GW_OK;
}

gw_err gw_schedule_measure(gw_schedule *s, gw_span part, int *slot_out) {
    GW_TRY(schedule_add_slot(s, part, false, slot_out));
    return schedule_add_op(s, (gw_op){.kind = GW_OP_MEASURE, .slot = *slot_out, .part = part});
}

gw_err gw_schedule_pack_agreed(gw_schedule *s, int slot_in, gw_span part) {
    return schedule_add_op(s, (gw_op){.kind = GW_OP_PACK_AGREED, .slot = slot_in, .part = part});
}

gw_err gw_schedule_send(gw_schedule *s, int slot_in, int peer) {
    if (slot_in == GW_NO_SLOT)
        return GW_OK;
    return schedule_add_message(s, (gw_op){.kind = GW_OP_SEND, .slot = slot_in, .peer = peer});
}

static gw_err schedule_add_recv(gw_schedule *s, int slot, gw_span part, int peer) {
    s->slots.x[slot].peer = peer;
    return schedule_add_message(
        s, (gw_op){.kind = GW_OP_RECV, .slot = slot, .peer = peer, .part = part});
}

gw_err gw_schedule_recv(gw_schedule *s, gw_span part, int peer, bool over, int *slot_out) {
    *slot_out = GW_NO_SLOT;
    if (part.n == 0)
        return GW_OK;
    GW_TRY(schedule_add_slot(s, part, over && gw_lane_exact(s->lane), slot_out));
    return schedule_add_recv(s, *slot_out, part, peer);
}

gw_err gw_schedule_recv_parts(gw_schedule *s, const gw_span *parts, int n, int peer, bool over,
                              int *slot_out) {
    *slot_out = GW_NO_SLOT;
    if (n < 2)
        return n == 0 ? GW_OK : gw_schedule_recv(s, parts[0], peer, over, slot_out);
    GW_TRY(schedule_add_parts(s, parts, n, slot_out));
    return schedule_add_recv(s, *slot_out, parts[0], peer);
}

gw_err gw_schedule_unpack(gw_schedule *s, int slot_in, gw_span part, bool add) {
    if (slot_in == GW_NO_SLOT)
        return GW_OK;
    gw_slot *from = &s->slots.x[slot_in];
    if (from->alias && from->data == (char *)(s->base + part.off) && !add)
        return GW_OK; /* it landed where it belongs */
    return schedule_add_op(
        s, (gw_op){.kind = GW_OP_UNPACK, .flag = add, .slot = slot_in, .part = part});
}

gw_err gw_schedule_unpack_parts(gw_schedule *s, int slot_in, const gw_span *parts, int n,
                                bool add) {
    if (n < 2)
        return n == 0 ? GW_OK : gw_schedule_unpack(s, slot_in, parts[0], add);
    for (int i = 0; i < n; i++)
        GW_TRY(gw_schedule_unpack(s, slot_in + 1 + i, parts[i], add));
    return GW_OK;
}

gw_err gw_schedule_list(gw_schedule *s, int slot_in, gw_span part, gw_elements *into) {
    if (slot_in == GW_NO_SLOT)
        return GW_OK;
    return schedule_add_op(
        s, (gw_op){.kind = GW_OP_LIST, .slot = slot_in, .part = part, .call.list = into});
}

gw_err gw_schedule_round(gw_schedule *s) {
    s->round = 0;
    return schedule_add_op(s, (gw_op){.kind = GW_OP_ROUND, .slot = GW_NO_SLOT});
}

void gw_schedule_window(gw_schedule *s, int width) {
    s->stages.window[s->stages.n - 1] = width;
}

gw_err gw_schedule_work(gw_schedule *s, gw_err (*work)(void *ctx), void *ctx) {
    return schedule_add_op(
        s, (gw_op){.kind = GW_OP_WORK, .slot = GW_NO_SLOT, .call.work = work, .ctx = ctx});
}

gw_err gw_schedule_await(gw_schedule *s, gw_err (*poll)(void *ctx, bool *done), void *ctx) {
    if (gw_lane_channel(s->lane)->fabric->ops->quiet)
        return gw_fail(GW_ERR_UNSUPPORTED, "it waits for more than messages, and the fabric knows "
                                           "of nothing else");
    return schedule_add_op(
        s, (gw_op){.kind = GW_OP_AWAIT, .slot = GW_NO_SLOT, .call.poll = poll, .ctx = ctx});
}

gw_err gw_schedule_call(gw_schedule *s, gw_err (*issue)(void *ctx, MPI_Request *request),
                        void *ctx) {
    if (!gw_lane_channel(s->lane)->fabric->ops->call)
        return gw_fail(GW_ERR_UNSUPPORTED,
                       "it starts one of MPI's own collectives, and there is no MPI");
    return schedule_add_message(
        s, (gw_op){.kind = GW_OP_CALL, .slot = GW_NO_SLOT, .call.issue = issue, .ctx = ctx});
}

gw_err gw_schedule_own(gw_schedule *s, void *ctx, void (*release)(void *ctx)) {
    gw_err e = gw_grow(&s->owned.x, &s->owned.room, s->owned.n + 1, sizeof *s->owned.x);
    if (e != GW_OK) {
        release(ctx);
        return e;
    }
    s->owned.x[s->owned.n++] = (gw_owned){ctx, release};
    return GW_OK;
}

void gw_schedule_narrow(gw_schedule *s, gw_span part) {
    s->span = part;
}

void gw_schedule_on(gw_schedule *s, gw_lane *lane) {
    if (lane == s->lane)
        return;
    s->lane = lane;
    s->tag = gw_channel_tag(gw_lane_channel(lane));
}

void gw_schedule_among(gw_schedule *s, const int *peers, int n) {
    s->told.n_peers = n;
    memcpy(s->told.peer, peers, (size_t)n * sizeof *peers);
}

/* ---- running ---- */

/* Are the round's messages complete? Then their lengths are there. `wait`: block until they are. */
static gw_err schedule_settle(gw_schedule *s, gw_strand *t, bool wait, bool *complete) {
    int pending = GW_GET(t->pending);
    gw_fabric *f = gw_lane_channel(s->own)->fabric;
    *complete = true;
    if (pending == 0)
        return GW_OK;
    GW_TRY(wait ? f->ops->wait(f, s->posts, t->at, pending)
                : f->ops->test(f, s->posts, t->at, pending, complete));
    if (*complete)
        GW_SET(t->pending, 0);
    return GW_OK;
}

static void schedule_tell(const gw_schedule *s, gw_exchange_event event) {
    const gw_fabric *f = gw_lane_channel(s->own)->fabric;
    f->ops->tell(f, event, &s->told);
}

static gw_err schedule_execute(gw_schedule *s, gw_strand *t, const gw_op *o) {
    gw_slot *w = o->slot == GW_NO_SLOT ? NULL : &s->slots.x[o->slot];
    gw_encoder *e = gw_lane_encoder(o->lane);
    gw_fabric *f = gw_lane_channel(o->lane)->fabric;
    int pending = GW_GET(t->pending), i = t->at + pending;
    unsigned how;
    gw_err result;
    switch (o->kind) {
    case GW_OP_PACK:
        how = o->flag ? GW_ENCODE_ADOPT : 0;
        if (o->alone || s->told.n_peers) /* an exchange with single peers is no sum over the lane */
            how |= GW_ENCODE_ALONE;
        return gw_encoder_encode(e, s->ticket, s->base, o->part, how, w->data, w->cap, &w->len);
    case GW_OP_MEASURE: gw_encoder_measure(e, s->base, o->part, w->data); return GW_OK;
    case GW_OP_PACK_AGREED:
        return gw_encoder_encode_agreed(e, s->ticket, s->base, o->part, o->flag, w->data, w->cap,
                                        &w->len);
    case GW_OP_UNPACK:
    case GW_OP_LIST:
        result = o->kind == GW_OP_LIST
                     ? gw_encoder_list(e, w->data, w->len, o->part, o->call.list)
                     : gw_encoder_decode(e, w->data, w->len, s->base, o->part, o->flag);
        if (result == GW_ERR_CORRUPT && w->peer >= 0) /* who sent it is known only here */
            result = gw_fail(result, "from rank %d: %s", gw_lane_root_rank(o->lane, w->peer),
                             gw_err_text());
        return result;
    case GW_OP_WORK: return o->call.work(o->ctx);
    case GW_OP_SEND: GW_TRY(f->ops->isend(f, s->posts, i, w->data, w->len, o->peer, o->tag)); break;
    case GW_OP_RECV:
        GW_TRY(f->ops->irecv(f, s->posts, i, w->data, w->cap, o->peer, o->tag, &w->len));
        break;
    default:
        if (s->blocking)
            return o->call.issue(o->ctx, NULL);
        GW_TRY(f->ops->call(s->posts, i, o->call.issue, o->ctx));
    }
    GW_SET(t->pending, pending + 1); /* a message of the running round */
    return GW_OK;
}

/* Run a strand until it has to wait; with `wait`, block and run it to its end. */
static gw_err schedule_advance(gw_schedule *s, gw_strand *t, bool wait) {
    bool go = true;
    if (t->held) /* first: its operations are in no cache */
        GW_TRY(schedule_settle(s, t, wait, &go));
    if (!go)
        return GW_OK;
    t->held = false;
    for (int pc = GW_GET(t->pc); pc < t->end; GW_SET(t->pc, pc)) {
        const gw_op *o = &s->ops.x[pc];
        if (o->kind == GW_OP_ROUND)
            GW_TRY(schedule_settle(s, t, wait, &go));
        else if (o->kind == GW_OP_AWAIT)
            GW_TRY(o->call.poll(o->ctx, &go));
        else
            GW_TRY(schedule_execute(s, t, o));
        t->held = !go && o->kind == GW_OP_ROUND;
        if (!go && !(wait && o->kind == GW_OP_AWAIT))
            return GW_OK;
        pc += go;
    }
    GW_TRY(schedule_settle(s, t, wait, &go));
    GW_SET(t->running, !go);
    return GW_OK;
}

static gw_err schedule_stages(gw_schedule *s) {
    while (s->low < s->strands.n) {
        int end = s->low, stage = GW_GET(s->stage), width = s->stages.window[stage];
        while (end < s->strands.n && s->strands.x[end].stage == stage)
            end++;
        int stop = width > 0 && s->low + width < end ? s->low + width : end;
        /* The only strand there is may as well block: nothing else could advance meanwhile. */
        bool wait = s->blocking && end - s->low == 1;
        for (int i = s->low; i < stop; i++)
            if (GW_GET(s->strands.x[i].running))
                GW_TRY(schedule_advance(s, &s->strands.x[i], wait));
        int low = s->low;
        while (s->low < end && !GW_GET(s->strands.x[s->low].running))
            s->low++;
        if (s->low == end)
            GW_SET(s->stage, stage + 1);
        else if (s->low == low || stop == end)
            return GW_OK;
    }
    GW_SET(s->running, false);
    schedule_tell(s, GW_EXCHANGE_DONE);
    return GW_OK;
}

/* One pass over the strands that may advance; stage by stage as far as it goes without waiting. */
static gw_err schedule_pass(gw_schedule *s) {
    int before = gw_dim_turn(s->told.dim);
    gw_err e = schedule_stages(s);
    gw_dim_turn(before);
    return e;
}

static gw_err schedule_start(gw_schedule *s, bool blocking) {
    if (GW_GET(s->running))
        return gw_fail(GW_ERR_INTERNAL, "schedule for span [%zu, %zu) started twice", s->span.off,
                       gw_span_end(s->span));
    int total = 0;
    for (int i = 0; i < s->strands.n; i++) {
        gw_strand *t = &s->strands.x[i];
        t->at = total;
        total += t->most;
        GW_SET(t->pc, t->first);
        GW_SET(t->pending, 0);
        GW_SET(t->running, true);
        t->held = false;
    }
    if (!s->posts) {
        GW_TRY(gw_lane_channel(s->own)->fabric->ops->room(total, &s->posts));
        gw_pending_add(s);
    }
    s->ticket = gw_lane_ticket(s->own);
    s->blocking = blocking;
    s->low = 0;
    GW_SET(s->stage, 0);
    GW_SET(s->runs, s->told.run);
    GW_SET(s->running, true);
    return schedule_pass(s);
}

gw_err gw_schedule_start(gw_schedule *s) {
    s->told.run++;
    schedule_tell(s, GW_EXCHANGE_START);
    return schedule_start(s, false);
}

gw_err gw_schedule_test(gw_schedule *s, bool *done) {
    if (GW_GET(s->running))
        GW_TRY(schedule_pass(s));
    *done = !GW_GET(s->running);
    return GW_OK;
}

gw_err gw_schedule_called(const gw_schedule *s, bool *called) {
    int i = 0;
    *called = false;
    while (i < s->ops.n && s->ops.x[i].kind != GW_OP_RECV)
        i++;
    if (i == s->ops.n)
        return GW_OK;
    gw_fabric *f = gw_lane_channel(s->ops.x[i].lane)->fabric;
    return f->ops->called(f, s->ops.x[i].tag, called);
}

gw_err gw_schedule_run(gw_schedule *s) {
    s->told.run++; /* blocked from before its start on */
    schedule_tell(s, GW_EXCHANGE_START);
    schedule_tell(s, GW_EXCHANGE_BLOCK);
    const gw_channel *c = gw_lane_channel(s->own);
    gw_err e = schedule_start(s, !c->yield);
    while (e == GW_OK && GW_GET(s->running)) {
        if (c->yield)
            c->fabric->ops->yield(c->fabric, 0);
        e = schedule_pass(s);
    }
    schedule_tell(s, GW_EXCHANGE_UNBLOCK);
    return e;
}

uint64_t gw_schedule_ticket(const gw_schedule *s) {
    return s->ticket;
}

const gw_exchange *gw_schedule_exchange(const gw_schedule *s) {
    return &s->told;
}
