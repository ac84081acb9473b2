/* A rank under virtual time: its turns, how it waits, and what is done for it meanwhile. */
#undef _FORTIFY_SOURCE /* whose longjmp knows one stack only */
#include "comm/fabric/sim_parts.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_RANGES = 1 << 16 };

/* ---- turns ---- */

void gw_sim_make_ready(gw_sim_rank *r) {
    gw_sim_world *w = r->w;
    if (r->ready)
        return;
    r->ready = true;
    r->waits = false;
    w->ready[(w->first + w->n_ready++) % w->played] = r;
}

gw_err gw_sim_state(const gw_sim_world *w) {
    return w->failed == GW_OK ? GW_OK : gw_fail(w->failed, "%s", w->text);
}

/* The first failure is everybody's: all go on, to their ends. */
gw_err gw_sim_fail(gw_sim_world *w, gw_err e, const char *format, ...) {
    va_list args;
    if (w->failed == GW_OK) {
        va_start(args, format);
        vsnprintf(w->text, sizeof w->text, format, args);
        va_end(args);
        w->failed = e;
        for (int i = 0; i < w->played; i++)
            if (w->rank[i].waits)
                gw_sim_make_ready(&w->rank[i]);
    }
    return gw_sim_state(w);
}

/* swapcontext alone would do, and asks the kernel for the mask of signals each time. */
void gw_sim_switch(gw_sim_context *from, gw_sim_context *to) {
#ifdef __SANITIZE_ADDRESS__ /* which knows no other way to another stack */
    swapcontext(&from->first, &to->first);
#else
    if (_setjmp(from->then) != 0)
        return;
    from->left = true;
    if (to->left)
        _longjmp(to->then, 1);
    setcontext(&to->first);
#endif
}

void gw_sim_leave(gw_sim_rank *me) {
    gw_sim_switch(&me->context, &me->w->main);
    me->clock = me->clock > me->w->now ? me->clock : me->w->now;
}

/* ---- waiting ---- */

/* Is its clock ahead of the world's? It is then scheduled to go on at its clock. */
static bool sim_ahead(gw_sim_rank *me) {
    gw_sim_world *w = me->w;
    if (me->clock <= w->now || w->failed != GW_OK)
        return false;
    gw_err e = gw_events_put(&w->flows.events, &me->wakes, (double)me->clock);
    if (e != GW_OK)
        gw_sim_fail(w, e, "%s", gw_err_text());
    return e == GW_OK;
}

/* Until the rank's clock is the world's. */
void gw_sim_catch_up(gw_sim_rank *me) {
    if (sim_ahead(me))
        gw_sim_leave(me);
}

/* Until there is news, or until something is complete that it tested in vain. */
void gw_sim_rest(gw_sim_rank *me) {
    gw_sim_sweep *s = &me->sweep;
    me->fruitless = 0;
    s->at = s->n;
    s->known = 0;
    me->dozes = s->idle && s->n > 0;
    if (me->dozes) {
        if (!gw_sim_doze(me))
            gw_sim_leave(me);
    } else {
        gw_sim_catch_up(me);
        me->waits = !me->news && me->w->failed == GW_OK;
        if (me->waits)
            gw_sim_leave(me);
        me->news = false;
    }
    gw_sim_sweep_begin(s, true);
}

void gw_sim_tell(gw_sim_rank *r) {
    r->news = true;
    if (r->waits)
        gw_sim_make_ready(r);
}

void gw_sim_spend(gw_sim_rank *me, double seconds) {
    me->owed = fmin(me->owed + 1e9 * seconds, 2 * GW_SIM_HORIZON);
    me->clock += (int64_t)me->owed;
    me->owed -= floor(me->owed);
}

/* ---- sweeps: the tests of a rank that waits, repeated without a turn of its own. At 1,024 ranks
 * a turn costs as much as some hundred tests, since what it touches is in no cache ---- */

void gw_sim_sweep_begin(gw_sim_sweep *s, bool idle) {
    s->last_parts = s->parts;
    s->n = s->parts = 0;
    s->idle = idle;
}

static bool sweep_widen(gw_sim_sweep *s) {
    size_t old = (size_t)s->room, room = old ? 2 * old : 64;
    void *of = room > MOST_RANGES ? NULL : realloc(s->of, room * sizeof *s->of);
    s->of = of ? of : s->of;
    void *part = of ? realloc(s->part, room * sizeof *s->part) : NULL;
    s->part = part ? part : s->part;
    void *news = part ? realloc(s->news, room / 8) : NULL;
    if (!news)
        return false;
    s->news = news;
    memset(s->news + old / 64, 0, (room - old) / 8);
    s->room = (int)room;
    return true;
}

void gw_sim_sweep_news(gw_sim_sweep *s, const gw_posts *range) {
    if (range->place < s->room)
        s->news[range->place / 64] |= (uint64_t)1 << range->place % 64;
}

void gw_sim_sweep_add(gw_sim_sweep *s, gw_posts *range) {
    if (s->n == s->room && !sweep_widen(s)) {
        s->idle = false; /* it rests by itself */
        return;
    }
    gw_sim_sweep_news(s, range);                       /* it may have had another place, */
    s->news[s->n / 64] &= ~((uint64_t)1 << s->n % 64); /* and what was here another, too */
    range->place = s->n;
    s->of[s->n++] = range;
}

/* The first range of [from, to) that may have something new; `to`: none. */
static int sweep_next(const gw_sim_sweep *s, int from, int to) {
    for (; from < to; from += 64 - from % 64) {
        uint64_t news = s->news[from / 64] >> from % 64;
        if (news) {
            from += __builtin_ctzll(news);
            return from < to ? from : to;
        }
    }
    return to;
}

bool gw_sim_doze(gw_sim_rank *me) {
    gw_sim_sweep *s = &me->sweep;
    me->clock = me->clock > me->w->now ? me->clock : me->w->now;
    while (me->w->failed == GW_OK) {
        if (sim_ahead(me))
            return false;
        if (s->at == s->n) {
            me->waits = !me->news;
            if (me->waits)
                return false;
            me->news = false;
            s->at = 0;
        }
        s->at = sweep_next(s, s->at, s->n);
        if (s->at == s->n)
            continue;
        s->news[s->at / 64] &= ~((uint64_t)1 << s->at % 64);
        if (gw_sim_look(me, s->of[s->at]))
            break;
        s->at++;
    }
    me->dozes = false;
    s->known = me->w->failed == GW_OK ? s->at + 1 : 0;
    return true;
}

/* What a part of this sweep has at its place was the same part's in the last one. */
bool gw_sim_quiet(gw_fabric *f, const void *who) {
    gw_sim_rank *me = gw_sim_me(f);
    gw_sim_sweep *s = &me->sweep;
    int i = s->parts, to = i + 1 < s->last_parts ? s->part[i + 1].from : 0;
    if (who && s->known == 0)
        gw_sim_catch_up(me);
    bool same = who && to > s->n && s->part[i].who == who && s->part[i].from == s->n &&
                (s->known ? s->known > to : sweep_next(s, s->n, to) == to) &&
                me->w->failed == GW_OK;
    if (i < s->room) {
        s->part[i].who = who;
        s->part[i].from = s->n;
        s->parts++;
    }
    s->n = same ? to : s->n;
    me->fruitless += same;
    return same;
}
