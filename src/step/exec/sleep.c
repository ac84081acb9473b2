#include "step/exec/sleep.h"

#include "base/nap.h"

#include <stdlib.h>
#include <string.h>

/* ---- outside the clock ---- */

static gw_err ahead_sends(void *sleeper, float *x, size_t n) {
    gw_sleeper *s = sleeper;
    if (s->sent.n + n > s->sent.room) {
        size_t room = 2 * (s->sent.n + n);
        float *more = realloc(s->sent.x, room * sizeof *more);
        if (!more)
            return gw_fail(GW_ERR_NOMEM, "pace: no memory for the %zu floats that a step sends",
                           room);
        s->sent.x = more;
        s->sent.room = room;
    }
    memcpy(s->sent.x + s->sent.n, x, n * sizeof *x);
    s->sent.n += n;
    return GW_OK;
}

gw_exec gw_exec_ahead(gw_sleeper *s) {
    s->sent.n = 0;
    return (gw_exec){.ctx = s, .sends = ahead_sends, .aside = true};
}

/* ---- in the clock ---- */

static bool sleep_begin(void *sleeper, gw_phase phase) {
    gw_sleeper *s = sleeper;
    s->phase = phase;
    gw_pacer_segment(s->pacer, true);
    return false;
}

/* What is left of it is slept in the phase of the last segment. */
static void sleep_settle(gw_sleeper *s) {
    gw_phase_enter(s->phase);
    gw_pacer_settle(s->pacer);
    gw_phase_leave();
}

/* In a real step it lies there already, so the copy must not add time. */
static gw_err sleep_sends(void *sleeper, float *x, size_t n) {
    gw_sleeper *s = sleeper;
    double start_s = gw_nap_now();
    if (s->sent.at + n > s->sent.n)
        return gw_fail(GW_ERR_INTERNAL, "pace: a step sends more in the clock than outside");
    memcpy(x, s->sent.x + s->sent.at, n * sizeof *x);
    s->sent.at += n;
    gw_pacer_spent(s->pacer, gw_nap_now() - start_s);
    sleep_settle(s);
    return GW_OK;
}

static void sleep_waits(void *sleeper) {
    gw_sleeper *s = sleeper;
    sleep_settle(s);
    s->since_s = gw_nap_now();
}

static void sleep_waited(void *sleeper) {
    gw_sleeper *s = sleeper;
    gw_pacer_waited(s->pacer, gw_nap_now() - s->since_s);
}

static void sleep_between(void *sleeper, void (*poll)(void *of), void *of) {
    gw_sleeper *s = sleeper;
    gw_pacer_between(s->pacer, poll, of);
}

gw_exec gw_exec_sleep(gw_sleeper *s) {
    s->sent.at = 0;
    return (gw_exec){.ctx = s,
                     .begin = sleep_begin,
                     .sends = sleep_sends,
                     .waits = sleep_waits,
                     .waited = sleep_waited,
                     .between = sleep_between};
}
