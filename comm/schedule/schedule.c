#include "comm/schedule/schedule_parts.h"

#include "base/mem.h"

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
