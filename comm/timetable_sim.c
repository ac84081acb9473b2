/* The simulator. Each stage does its actions in turn, as soon as what they take has arrived. When a
 * message arrives follows from the later of two events, its send and its receive, so stages may be
 * taken as far as they get, in any order, until all are through. */
#include "comm/timetable.h"

#include "base/mem.h"

#include <stdlib.h>

/* The first finds the pipe empty. Those after it take equally long: a step ends with a delta that
 * has passed all stages, so none runs a whole step ahead. */
enum { STEPS = 3 };

/* A message, or what a stage hands to itself. In seconds; below 0: not yet. */
typedef struct hop {
    double sent, posted, takes;
} hop;

typedef struct worker {
    const gw_act *acts; /* of a step: n of them */
    int n, step, at;    /* which it does */
    double now, waited[STEPS];
    bool received, computed; /* of that action */
} worker;

typedef struct sim {
    const gw_timetable *t;
    const gw_run_cost *cost;
    gw_sends sends;
    int stages, runs, micro;
    worker *worker; /* [stages] */
    hop *hops;      /* [activations, deltas][runs][STEPS * micro], by the run that receives */
    double end[STEPS];
} sim;

static double sim_later(double a, double b) {
    return a > b ? a : b;
}

static double sim_arrival(const hop *h) {
    return sim_later(h->sent, h->posted) + h->takes;
}

static void sim_wait(worker *w, const hop *h) {
    w->waited[w->step] += sim_later(w->now, sim_later(h->sent, h->posted)) - w->now;
    w->now = sim_later(w->now, sim_arrival(h));
}

/* What arrives at `to` for an action like `a`; `micro` counts on from step to step. */
static hop *sim_hop(const sim *s, gw_place to, gw_act a, int micro) {
    int run = to.chunk * s->stages + to.stage + (a.kind == GW_ACT_FORWARD ? 0 : s->runs);
    return &s->hops[(size_t)run * (size_t)(STEPS * s->micro) + (size_t)micro];
}

static int sim_micro(const sim *s, const worker *w) {
    return w->step * s->micro + w->acts[w->at].micro;
}

double gw_act_seconds(const gw_run_cost *cost, gw_act_kind kind) {
    const gw_act_cost *act = &cost->act;
    switch (kind) {
    case GW_ACT_FORWARD: return act->forward_s + cost->tensor_forward_s;
    case GW_ACT_INPUT: return act->input_s + cost->tensor_backward_s;
    case GW_ACT_WEIGHTS: return act->weights_s;
    case GW_ACT_BACKWARD: return act->input_s + cost->tensor_backward_s + act->weights_s;
    }
    return 0;
}

/* Post the receive of the next activation (forward) or delta that the rest of the step needs. */
static void sim_post(sim *s, int stage, int from, bool forward) {
    worker *w = &s->worker[stage];
    for (int i = from; i < w->n; i++) {
        gw_act a = w->acts[i];
        int source = gw_timetable_source(s->t, stage, a).stage;
        if ((a.kind == GW_ACT_FORWARD) == forward && source >= 0 && source != stage) {
            gw_place here = {stage, a.chunk};
            sim_hop(s, here, a, w->step * s->micro + a.micro)->posted = w->now;
            return;
        }
    }
}

/* Have what the action takes; false: it was not sent yet. */
static bool sim_receive(sim *s, int stage) {
    worker *w = &s->worker[stage];
    gw_act a = w->acts[w->at];
    int source = gw_timetable_source(s->t, stage, a).stage;
    const hop *h = sim_hop(s, (gw_place){stage, a.chunk}, a, sim_micro(s, w));
    if (w->received)
        return true;
    if (source >= 0 && h->sent < 0)
        return false;
    if (source >= 0 && source != stage) {
        sim_wait(w, h);
        sim_post(s, stage, w->at + 1, a.kind == GW_ACT_FORWARD);
    }
    return w->received = true;
}

/* Compute and start the send; false: the receive of what is in the buffer was not posted yet. */
static bool sim_compute(sim *s, int stage) {
    worker *w = &s->worker[stage];
    gw_act a = w->acts[w->at];
    gw_place to = gw_timetable_target(s->t, stage, a);
    int micro = sim_micro(s, w), before = micro - gw_timetable_slots(s->t, stage, a.chunk);
    if (w->computed)
        return true;
    if (s->sends == GW_SENDS_BUFFERED && to.stage >= 0 && to.stage != stage && before >= 0) {
        const hop *old = sim_hop(s, to, a, before);
        if (old->posted < 0)
            return false;
        sim_wait(w, old);
    }
    const gw_run_cost *cost = &s->cost[a.chunk * s->stages + stage];
    w->now += gw_act_seconds(cost, a.kind);
    if (to.stage >= 0) {
        hop *h = sim_hop(s, to, a, micro);
        h->sent = w->now - (a.kind == GW_ACT_BACKWARD ? cost->early_s : 0);
        h->takes = a.kind == GW_ACT_FORWARD ? cost->activation_s : cost->delta_s;
    }
    return w->computed = true;
}

/* Wait for the send where that is asked for; false: its receive was not posted yet. */
static bool sim_send(sim *s, int stage) {
    worker *w = &s->worker[stage];
    gw_act a = w->acts[w->at];
    gw_place to = gw_timetable_target(s->t, stage, a);
    if (s->sends != GW_SENDS_SYNCHRONOUS || to.stage < 0 || to.stage == stage)
        return true;
    const hop *h = sim_hop(s, to, a, sim_micro(s, w));
    if (h->posted < 0)
        return false;
    sim_wait(w, h);
    return true;
}

/* Take a stage as far as it gets; true: further than it was. */
static bool sim_advance(sim *s, int stage) {
    worker *w = &s->worker[stage];
    int step = w->step, at = w->at;
    while (w->step < STEPS) {
        if (w->at == 0 && !w->received) {
            sim_post(s, stage, 0, true);
            sim_post(s, stage, 0, false);
        }
        if (!sim_receive(s, stage) || !sim_compute(s, stage) || !sim_send(s, stage))
            break;
        w->received = w->computed = false;
        if (++w->at == w->n) {
            w->now += s->cost[stage].after_s;
            s->end[w->step] = sim_later(s->end[w->step], w->now);
            w->at = 0;
            w->step++;
        }
    }
    return w->step > step || w->at > at;
}

static gw_err sim_stuck(const sim *s) {
    int stage = 0;
    while (s->worker[stage].step == STEPS)
        stage++;
    const worker *w = &s->worker[stage];
    gw_act a = w->acts[w->at];
    return gw_fail(GW_ERR_INPUT,
                   "timetable %s: deadlock on %d stages with %d microbatches: stage %d waits to "
                   "%s %c%d of chunk %d",
                   gw_timetable_name(s->t), s->stages, s->micro, stage,
                   w->computed ? "send the result of" : "receive for", gw_act_letter(a.kind),
                   a.micro, a.chunk);
}

/* Go on with all stages until all are through, or none gets any further. */
static gw_err sim_run(sim *s) {
    bool all = false, any = true;
    while (any && !all) {
        all = true, any = false;
        for (int i = 0; i < s->stages; i++) {
            any = sim_advance(s, i) || any;
            all = all && s->worker[i].step == STEPS;
        }
    }
    return all ? GW_OK : sim_stuck(s);
}

static gw_err sim_begin(sim *s) {
    size_t hops = 2 * (size_t)s->runs * STEPS * (size_t)s->micro;
    GW_TRY(gw_alloc(&s->worker, (size_t)s->stages, sizeof *s->worker));
    GW_TRY(gw_alloc(&s->hops, hops, sizeof *s->hops));
    for (size_t i = 0; i < hops; i++)
        s->hops[i] = (hop){-1, -1, 0};
    for (int i = 0; i < s->stages; i++)
        s->worker[i].acts = gw_timetable_acts(s->t, i, &s->worker[i].n);
    return GW_OK;
}

static void sim_report_stage(const sim *s, int stage, double step_s, gw_stage_times *out) {
    const worker *w = &s->worker[stage];
    int held = 0;
    *out = (gw_stage_times){.busy_s = s->cost[stage].after_s};
    for (int i = 0; i < w->n; i++) {
        gw_act_kind kind = w->acts[i].kind;
        held += kind == GW_ACT_FORWARD;
        out->held = held > out->held ? held : out->held;
        held -= kind == GW_ACT_WEIGHTS || kind == GW_ACT_BACKWARD;
        out->busy_s += gw_act_seconds(&s->cost[w->acts[i].chunk * s->stages + stage], kind);
    }
    out->idle_s = step_s - out->busy_s;
    out->wait_s = w->waited[STEPS - 1];
}

gw_err gw_timetable_simulate(const gw_timetable *t, const gw_run_cost *cost, gw_sends sends,
                             gw_pipe_times *out, gw_stage_times *stage) {
    sim s = {.t = t, .cost = cost, .sends = sends, .stages = gw_timetable_stages(t)};
    s.runs = s.stages * gw_timetable_chunks(t);
    s.micro = gw_timetable_micro(t);
    gw_err e = sim_begin(&s);
    GW_THEN(e, sim_run(&s));
    *out = (gw_pipe_times){s.end[0], s.end[STEPS - 1] - s.end[STEPS - 2]};
    for (int i = 0; e == GW_OK && stage && i < s.stages; i++)
        sim_report_stage(&s, i, out->step_s, &stage[i]);
    free(s.worker);
    free(s.hops);
    return e;
}
