/* Schedules under way: see comm/schedule/schedule.h. */
#include "comm/schedule/schedule_parts.h"

static gw_err schedule_make_posts(gw_schedule *s) {
    int total = 0;
    for (int i = 0; i < s->strands.n; i++) {
        s->strands.x[i].at = total;
        total += s->strands.x[i].most;
    }
    GW_TRY(gw_lane_channel(s->own)->fabric->ops->room(total, &s->posts));
    gw_pending_add(s);
    return GW_OK;
}

static gw_err schedule_post(gw_schedule *s, gw_strand *t, const gw_op *o) {
    int pending = GW_GET(t->pending), i = t->at + pending;
    gw_fabric *f = gw_lane_channel(o->lane)->fabric;
    gw_slot *w = o->kind == GW_OP_CALL ? NULL : &s->slots.x[o->slot];
    switch (o->kind) {
    case GW_OP_SEND: GW_TRY(f->ops->isend(f, s->posts, i, w->data, w->len, o->peer, o->tag)); break;
    case GW_OP_RECV:
        GW_TRY(f->ops->irecv(f, s->posts, i, w->data, w->cap, o->peer, o->tag, &w->len));
        break;
    default:
        if (s->blocking)
            return o->call.issue(o->ctx, NULL);
        GW_TRY(f->ops->call(s->posts, i, o->call.issue, o->ctx));
    }
    GW_SET(t->pending, pending + 1);
    return GW_OK;
}

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

/* Who sent what is damaged is known only here. */
static gw_err schedule_unpack(gw_schedule *s, const gw_slot *w, const gw_op *o) {
    gw_encoder *of = gw_lane_encoder(o->lane);
    gw_err e = o->kind == GW_OP_LIST
                   ? gw_encoder_list(of, w->data, w->len, o->part, o->call.list)
                   : gw_encoder_decode(of, w->data, w->len, s->base, o->part, o->flag);
    if (e == GW_ERR_CORRUPT && w->peer >= 0)
        e = gw_fail(e, "from rank %d: %s", gw_lane_root_rank(o->lane, w->peer), gw_err_text());
    return e;
}

/* An exchange with single peers is no sum over the lane. */
static unsigned schedule_how(const gw_schedule *s, const gw_op *o) {
    return (o->flag ? GW_ENCODE_ADOPT : 0) | (o->alone || s->told.n_peers ? GW_ENCODE_ALONE : 0);
}

static gw_err schedule_execute(gw_schedule *s, gw_strand *t, const gw_op *o) {
    gw_slot *w = o->slot == GW_NO_SLOT ? NULL : &s->slots.x[o->slot];
    gw_encoder *e = gw_lane_encoder(o->lane);
    switch (o->kind) {
    case GW_OP_PACK:
        return gw_encoder_encode(e, s->ticket, s->base, o->part, schedule_how(s, o), w->data,
                                 w->cap, &w->len);
    case GW_OP_MEASURE: gw_encoder_measure(e, s->base, o->part, w->data); return GW_OK;
    case GW_OP_PACK_AGREED:
        return gw_encoder_encode_agreed(e, s->ticket, s->base, o->part, o->flag, w->data, w->cap,
                                        &w->len);
    case GW_OP_UNPACK:
    case GW_OP_LIST: return schedule_unpack(s, w, o);
    case GW_OP_WORK: return o->call.work(o->ctx);
    default: return schedule_post(s, t, o);
    }
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

static int schedule_stage_end(const gw_schedule *s) {
    int i = s->low, stage = GW_GET(s->stage);
    while (i < s->strands.n && s->strands.x[i].stage == stage)
        i++;
    return i;
}

static gw_err schedule_stages(gw_schedule *s) {
    while (s->low < s->strands.n) {
        int end = schedule_stage_end(s), stage = GW_GET(s->stage), width = s->stages.window[stage];
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
    if (!s->posts)
        GW_TRY(schedule_make_posts(s));
    for (int i = 0; i < s->strands.n; i++) {
        gw_strand *t = &s->strands.x[i];
        GW_SET(t->pc, t->first);
        GW_SET(t->pending, 0);
        GW_SET(t->running, true);
        t->held = false;
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
