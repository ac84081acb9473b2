/* Steps of a paced run. Activations depend on those of other ranks, so a step is done twice:
 * outside the clock for real, with its messages, and in the clock with the same messages alone.
 * What was sent is kept for that: a codec's bytes depend on what it encodes. */
#include "mesh/pipeline_parts.h"

#include "base/nap.h"

#include <stdlib.h>
#include <string.h>

bool gw_pipeline_enter(gw_pipeline *p, gw_phase phase) {
    gw_phase_enter(phase);
    p->phase = phase;
    if (p->pacing.mode == GW_PIPELINE_ALONE)
        p->pacing.begins(p->pacing.ctx);
    if (p->pacing.mode != GW_PIPELINE_SLEPT)
        return true;
    gw_pacer_segment_loosely(p->pacing.pacer);
    gw_phase_leave();
    return false;
}

void gw_pipeline_leave(gw_pipeline *p) {
    if (p->pacing.mode == GW_PIPELINE_ALONE)
        p->pacing.ends(p->pacing.ctx, p->phase);
    gw_phase_leave();
}

/* What is left of it is slept in the phase of the last segment. */
static void pace_settle(gw_pipeline *p) {
    gw_phase_enter(p->phase);
    gw_pacer_settle(p->pacing.pacer);
    gw_phase_leave();
}

/* ---- messages ---- */

static gw_err pace_keep(gw_pipeline *p, const float *x, size_t n) {
    if (p->sent.n + n > p->sent.room) {
        size_t room = 2 * (p->sent.n + n);
        float *more = realloc(p->sent.x, room * sizeof *more);
        if (!more)
            return gw_fail(GW_ERR_NOMEM, "pace: no memory for the %zu floats that a step sends",
                           room);
        p->sent.x = more;
        p->sent.room = room;
    }
    memcpy(p->sent.x + p->sent.n, x, n * sizeof *x);
    p->sent.n += n;
    return GW_OK;
}

/* In a real step it lies there already: the copy is no time on top. */
static gw_err pace_repeat(gw_pipeline *p, float *x, size_t n) {
    double start_s = gw_nap_now();
    if (p->sent.at + n > p->sent.n)
        return gw_fail(GW_ERR_INTERNAL, "pace: a step sends more in the clock than outside");
    memcpy(x, p->sent.x + p->sent.at, n * sizeof *x);
    p->sent.at += n;
    gw_pacer_spent(p->pacing.pacer, gw_nap_now() - start_s);
    pace_settle(p);
    return GW_OK;
}

gw_err gw_pipeline_sends(gw_pipeline *p, gw_schedule *s) {
    gw_span span = gw_schedule_span(s);
    float *x = gw_schedule_base(s) + span.off;
    switch (p->pacing.mode) {
    case GW_PIPELINE_AHEAD: return pace_keep(p, x, span.n);
    case GW_PIPELINE_SLEPT: return pace_repeat(p, x, span.n);
    default: return GW_OK;
    }
}

gw_err gw_pipeline_send(gw_pipeline *p, gw_act act) {
    gw_schedule *s = gw_runner_hop(&p->runner, act, false);
    if (!s)
        return GW_OK;
    GW_TRY(gw_pipeline_sends(p, s));
    return gw_runner_start(&p->runner, s, act.micro);
}

void gw_pipeline_waits(gw_pipeline *p) {
    if (p->pacing.mode != GW_PIPELINE_SLEPT)
        return;
    pace_settle(p);
    p->since_s = gw_nap_now();
}

void gw_pipeline_waited(gw_pipeline *p) {
    if (p->pacing.mode == GW_PIPELINE_SLEPT)
        gw_pacer_waited(p->pacing.pacer, gw_nap_now() - p->since_s);
}

/* ---- */

gw_err gw_pipeline_step_paced(gw_pipeline *p, const gw_pipeline_job *job,
                              const gw_pipeline_pacing *pacing, double *loss_sum) {
    gw_pipeline_hooks own = p->hooks;
    p->pacing = *pacing;
    if (pacing->mode == GW_PIPELINE_AHEAD)
        p->sent.n = 0;
    if (pacing->mode != GW_PIPELINE_SLEPT)
        p->hooks = pacing->hooks;
    p->sent.at = 0;
    gw_err e = gw_pipeline_step(p, job, loss_sum);
    p->pacing = (gw_pipeline_pacing){0};
    p->hooks = own;
    return e;
}
