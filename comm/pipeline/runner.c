#include "comm/pipeline/runner.h"

#include "base/mem.h"
#include "base/probe.h"

#include <stdlib.h>

/* ---- hops ---- */

struct gw_hops {
    int boundaries, micro, kinds;
    bool *mine; /* this rank sends or receives it */
    gw_schedule *all[];
};

static int hop_index(const gw_hops *h, gw_hop hop) {
    return ((int)hop.kind * h->boundaries + hop.boundary) * h->micro + hop.micro;
}

/* Every rank lays every hop down, empty where it has no part: tags and numbers are the same. */
static gw_err hop_lay_down(gw_hops *h, const gw_hops_setup *setup, gw_hop hop) {
    gw_lane *lane = setup->lane[hop.kind];
    int me = gw_lane_rank(lane), stages = gw_lane_size(lane), i = hop_index(h, hop);
    int below = hop.boundary % stages, above = (hop.boundary + 1) % stages;
    int from = hop.kind == GW_HOP_ACTIVATION ? below : above;
    int to = hop.kind == GW_HOP_ACTIVATION ? above : below;
    int peer = me == from ? to : from, slot;
    gw_span span = {0, 0};
    h->mine[i] = stages > 1 && (me == from || me == to);
    if (h->mine[i])
        span = setup->where(setup->ctx, hop, me == to);
    GW_TRY(gw_schedule_new(&h->all[i], lane, setup->base, span));
    if (!h->mine[i])
        return GW_OK;
    gw_schedule *s = h->all[i];
    gw_schedule_among(s, &peer, 1);
    if (me == from) {
        GW_TRY(gw_schedule_pack(s, span, false, &slot));
        return gw_schedule_send(s, slot, to);
    }
    GW_TRY(gw_schedule_recv(s, span, from, true, &slot));
    GW_TRY(gw_schedule_round(s));
    return gw_schedule_unpack(s, slot, span, false);
}

gw_err gw_hops_open(gw_hops **out, const gw_hops_setup *setup) {
    gw_hops *h = NULL;
    int boundaries = setup->chunks - 1, kinds = setup->deltas ? 2 : 1;
    size_t n = (size_t)kinds * (size_t)boundaries * (size_t)setup->micro;
    GW_TRY(gw_alloc(&h, 1, sizeof *h + n * sizeof h->all[0]));
    h->boundaries = boundaries;
    h->micro = setup->micro;
    h->kinds = kinds;
    gw_err e = gw_alloc(&h->mine, n, sizeof *h->mine);
    for (int k = 0; k < kinds; k++)
        for (int b = 0; b < boundaries; b++)
            for (int j = 0; j < setup->micro; j++)
                GW_THEN(e, hop_lay_down(h, setup, (gw_hop){(gw_hop_kind)k, b, j}));
    GW_OPENED(e, out, h, gw_hops_close);
}

void gw_hops_close(gw_hops *h) {
    if (!h)
        return;
    for (int i = h->kinds * h->boundaries * h->micro - 1; i >= 0; i--)
        gw_schedule_free(h->all[i]);
    free(h->mine);
    free(h);
}

/* ---- a step ---- */

/* Random numbers depend on step and microbatch, whatever the timetable. */
gw_err gw_runner_start(const gw_runner *r, gw_schedule *s, int micro) {
    gw_lane_begin_at(gw_schedule_lane(s),
                     r->step * (uint64_t)gw_timetable_micro(r->timetable) + (uint64_t)micro);
    gw_phase_enter(GW_PHASE_MPI_POST);
    gw_err e = gw_queue_start(r->queue, s);
    gw_phase_leave();
    return e;
}

/* Mostly it is through, and a region without any time would say nothing. */
gw_err gw_runner_wait(const gw_runner *r, gw_schedule *s) {
    GW_TRY(gw_queue_urge(r->queue, s));
    if (!gw_queue_in_flight(r->queue, s))
        return GW_OK;
    gw_phase_enter(GW_PHASE_MPI_WAIT);
    gw_err e = gw_queue_wait(r->queue, s);
    gw_phase_leave();
    return e;
}

gw_schedule *gw_runner_hop(const gw_runner *r, gw_act act, bool receives) {
    const gw_timetable *t = r->timetable;
    if (act.kind == GW_ACT_WEIGHTS || !r->hops)
        return NULL;
    gw_place peer =
        receives ? gw_timetable_source(t, r->stage, act) : gw_timetable_target(t, r->stage, act);
    if (peer.stage < 0)
        return NULL;
    int stages = gw_timetable_stages(t);
    int mine = act.chunk * stages + r->stage, other = peer.chunk * stages + peer.stage;
    gw_hop hop = {act.kind == GW_ACT_FORWARD ? GW_HOP_ACTIVATION : GW_HOP_DELTA,
                  mine < other ? mine : other, act.micro};
    int i = hop_index(r->hops, hop);
    return r->hops->mine[i] ? r->hops->all[i] : NULL;
}

gw_err gw_runner_vacate(const gw_runner *r, gw_act act) {
    gw_schedule *own = gw_runner_hop(r, act, false);
    for (act.micro = 0; own && act.micro < r->micros; act.micro++) {
        gw_schedule *s = gw_runner_hop(r, act, false);
        if (gw_span_overlap(gw_schedule_span(own), gw_schedule_span(s)))
            GW_TRY(gw_runner_wait(r, s));
    }
    return GW_OK;
}

gw_err gw_runner_send(const gw_runner *r, gw_act act) {
    gw_schedule *s = gw_runner_hop(r, act, false);
    return s ? gw_runner_start(r, s, act.micro) : GW_OK;
}

/* Post one receive ahead: of the first action, from `at` on, that takes an activation (or else a
 * delta) from another stage. */
static gw_err runner_post(const gw_runner *r, int at, bool activation) {
    int n;
    const gw_act *acts = gw_timetable_acts(r->timetable, r->stage, &n);
    for (; at < n; at++) {
        bool forward = acts[at].kind == GW_ACT_FORWARD;
        gw_schedule *s = forward == activation ? gw_runner_hop(r, acts[at], true) : NULL;
        if (s)
            return gw_runner_start(r, s, acts[at].micro);
    }
    return GW_OK;
}

gw_err gw_runner_begin(const gw_runner *r) {
    GW_TRY(runner_post(r, 0, true));
    return runner_post(r, 0, false);
}

gw_err gw_runner_take(const gw_runner *r, int i) {
    int n;
    gw_act act = gw_timetable_acts(r->timetable, r->stage, &n)[i];
    gw_schedule *s = gw_runner_hop(r, act, true);
    if (!s)
        return GW_OK;
    GW_TRY(gw_runner_wait(r, s));
    return runner_post(r, i + 1, act.kind == GW_ACT_FORWARD);
}

gw_err gw_runner_end(const gw_runner *r) {
    int n;
    const gw_act *acts = gw_timetable_acts(r->timetable, r->stage, &n);
    for (int i = 0; i < n; i++) {
        gw_schedule *s = gw_runner_hop(r, acts[i], false);
        if (s)
            GW_TRY(gw_runner_wait(r, s));
    }
    return GW_OK;
}
