/* What ranks do that wait, without a turn of theirs: see gw_sim_sweep. At 1,024 ranks a turn costs
 * as much as some hundred tests, since what it touches is in no cache. */
#include "comm/fabric/sim_parts.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_RANGES = 1 << 16 };

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
        if (gw_sim_ahead(me))
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
