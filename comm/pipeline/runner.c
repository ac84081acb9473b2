#include "comm/pipeline/runner.h"

#include "base/probe.h"

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
    return gw_hops_end(r->hops, hop);
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
