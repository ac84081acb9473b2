/* Messages under virtual time: see comm/fabric/sim.h. */
#include "comm/fabric/sim_parts.h"

#include "base/mem.h"

#include <stdlib.h>

enum { PATIENCE = 1 << 20 }; /* fruitless tests: whoever makes more waits for an event */

static uint64_t sim_hash(const gw_sim_message *m) {
    uint64_t x = (uint64_t)m->group->id * 0x9E3779B97F4A7C15 + (uint64_t)m->tag;
    x = (x ^ x >> 29) * 0xBF58476D1CE4E5B9 + (uint64_t)m->end[0];
    x = (x ^ x >> 32) * 0x94D049BB133111EB + (uint64_t)m->end[1];
    return x ^ x >> 31;
}

static bool sim_same(const gw_sim_message *a, const gw_sim_message *b) {
    return a->group == b->group && a->end[0] == b->end[0] && a->end[1] == b->end[1] &&
           a->tag == b->tag;
}

static void sim_append(gw_sim_world *w, gw_sim_message *m) {
    gw_sim_message **at = &w->open.chain[sim_hash(m) % (uint64_t)w->open.size];
    while (*at)
        at = &(*at)->next;
    m->next = NULL;
    *at = m;
}

static gw_err sim_widen(gw_sim_world *w) {
    int old = w->open.size, size = old ? 2 * old : 1024;
    gw_sim_message **chain = w->open.chain, *next;
    GW_TRY(gw_alloc(&w->open.chain, (size_t)size, sizeof *w->open.chain));
    w->open.size = size;
    for (int i = 0; i < old; i++)
        for (gw_sim_message *m = chain[i]; m; m = next) {
            next = m->next;
            sim_append(w, m);
        }
    free(chain);
    return GW_OK;
}

/* The oldest one like *like whose end `end` posted, and not the other. */
static gw_sim_message **sim_find(gw_sim_world *w, const gw_sim_message *like, int end) {
    gw_sim_message **at = &w->open.chain[sim_hash(like) % (uint64_t)w->open.size];
    while (*at && !((*at)->posted[end] && sim_same(*at, like)))
        at = &(*at)->next;
    return at;
}

/* The message that `end` of *like posts now: a new one, or one that its other end has posted. */
static gw_err sim_match(gw_sim_world *w, const gw_sim_message *like, int end,
                        gw_sim_message **out) {
    if (w->open.n >= w->open.size)
        GW_TRY(sim_widen(w));
    gw_sim_message **at = sim_find(w, like, 1 - end), *m = *at ? *at : w->idle;
    if (*at) {
        *at = m->next;
    } else if (m) {
        w->idle = m->next;
    } else {
        GW_TRY(gw_alloc(&m, 1, sizeof *m));
        m->older = w->all;
        w->all = m;
    }
    if (!m->open) {
        gw_sim_message *older = m->older;
        *m = *like;
        m->older = older;
        sim_append(w, m);
    }
    m->open = !m->open;
    w->open.n += m->open ? 1 : -1;
    m->posted[end] = true;
    *out = m;
    return GW_OK;
}

static gw_sim_rank *sim_rank_of(gw_sim_world *w, const gw_sim_message *m, int end) {
    return &w->rank[m->group->world[m->end[end]] % w->played];
}

static void sim_watch_post(gw_sim_world *w, gw_sim_message *m, int end) {
    const gw_sim_watch *watch = w->setup.watch;
    int of[2] = {m->group->world[m->end[0]], m->group->world[m->end[1]]};
    if (!watch)
        return;
    m->post[end] = watch->post(watch->ctx, of[end], end == 0, of[1 - end]);
    if (m->posted[1 - end])
        watch->match(watch->ctx, of, m->post, m->bytes);
}

/* Folded: the receiver's like that is played, and whom it receives this message from. */
static void sim_fold(const gw_sim_world *w, int end[2]) {
    int ranks = w->setup.ranks, played = w->played, moved = end[1] - end[1] % played;
    end[1] -= moved;
    end[0] = w->setup.pairs ? end[0] ^ moved : (end[0] - moved + ranks) % ranks;
}

/* What was sent enters its links. */
static gw_err sim_flow(gw_sim_world *w, gw_sim_message *m) {
    const gw_sim_setup *s = &w->setup;
    const int ends[2] = {m->group->world[m->end[0]], m->group->world[m->end[1]]};
    int from = ends[0] / s->per_host, to = ends[1] / s->per_host;
    gw_route way = {.links = 1, .link = {gw_network_links(s->network) + to}};
    if (from != to)
        gw_network_way(s->network, from, to, &way);
    for (int i = 0; from != to && w->played < s->ranks && i < way.links; i++)
        way.link[i] = gw_network_image(s->network, way.link[i]);
    m->latency_s = m->link->latency_s + way.latency_s;
    return gw_flows_begin(&w->flows, &m->flow, ends, &way, (double)m->bytes, w->now);
}

static gw_err sim_post(gw_fabric *f, gw_posts *p, int i, const gw_sim_message *like, int end,
                       gw_sim_message **out) {
    gw_sim_rank *me = gw_sim_me(f);
    gw_sim_world *w = me->w;
    GW_TRY(gw_sim_state(w));
    gw_err e = sim_match(w, like, end, out);
    if (e != GW_OK)
        return gw_sim_fail(w, e, "%s", gw_err_text());
    gw_sim_message *m = *out;
    if (end == 0)
        m->bytes = like->bytes;
    else
        m->cap = like->cap, m->len = like->len;
    if (m->posted[1 - end] && m->bytes > m->cap && w->played == w->setup.ranks)
        return gw_sim_fail(
            w, GW_ERR_INTERNAL, "simulate: rank %d sends %zu bytes to rank %d, which receives %zu",
            m->group->world[m->end[0]], m->bytes, m->group->world[m->end[1]], m->cap);
    p[i].of = m;
    p[i].receives = end == 1;
    sim_watch_post(w, m, end);
    return GW_OK;
}

gw_err gw_sim_isend(gw_fabric *f, gw_posts *p, int i, const void *data, size_t len, int peer,
                    int tag) {
    (void)data;
    gw_sim_rank *me = gw_sim_me(f);
    gw_sim_world *w = me->w;
    gw_sim_message *m,
        like = {
            .group = ((gw_sim_member *)f)->group, .end = {f->rank, peer}, .tag = tag, .bytes = len};
    bool within = f->world[f->rank] / w->setup.per_host == f->world[peer] / w->setup.per_host;
    if (w->played < w->setup.ranks)
        sim_fold(w, like.end);
    GW_TRY(sim_post(f, p, i, &like, 0, &m));
    w->tally.bytes += len * (size_t)(w->setup.ranks / w->played);
    w->tally.messages += (uint64_t)(w->setup.ranks / w->played);
    me->sent.bytes += len;
    me->sent.messages++;
    m->link = within ? &w->setup.memory : &w->setup.link;
    gw_sim_spend(me, m->link->overhead_s);
    m->state = STARTS;
    return gw_events_put(&w->flows.events, &m->flow.due, me->clock);
}

gw_err gw_sim_irecv(gw_fabric *f, gw_posts *p, int i, void *data, size_t cap, int peer, int tag,
                    size_t *len) {
    (void)data;
    gw_sim_message *m, like = {.group = ((gw_sim_member *)f)->group,
                               .end = {peer, f->rank},
                               .tag = tag,
                               .cap = cap,
                               .len = len};
    return sim_post(f, p, i, &like, 1, &m);
}

/* What is to happen to a message happens. */
gw_err gw_sim_move(gw_sim_world *w, gw_sim_message *m) {
    switch (m->state) {
    case STARTS: m->state = FLOWS; return sim_flow(w, m);
    case FLOWS:
        GW_TRY(gw_flows_end(&w->flows, &m->flow, w->now));
        m->state = ARRIVES;
        gw_sim_tell(sim_rank_of(w, m, 0));
        return gw_events_put(&w->flows.events, &m->flow.due,
                             w->now + (int64_t)(1e9 * m->latency_s + 0.5));
    default:
        m->state = ARRIVED;
        if (m->posted[1])
            gw_sim_tell(sim_rank_of(w, m, 1));
        return GW_OK;
    }
}

/* Is its end complete? What has arrived takes the core of whoever looks. */
static bool sim_look(gw_sim_rank *me, gw_sim_message *m, bool receives) {
    if (!receives)
        return m->state >= ARRIVES;
    bool here = m->posted[0] && m->state == ARRIVED;
    if (here && !m->taken)
        gw_sim_spend(me, m->link->overhead_s);
    m->taken |= here;
    return here;
}

static void sim_take(gw_sim_rank *me, gw_sim_message *m, bool receives) {
    const gw_sim_watch *watch = me->w->setup.watch;
    if (receives)
        *m->len = me->w->played < me->w->setup.ranks ? m->cap : m->bytes;
    if (watch)
        watch->seen(watch->ctx, me->number, m->post[receives]);
    m->seen[receives] = true;
    if (m->seen[0] && m->seen[1]) {
        m->next = me->w->idle;
        me->w->idle = m;
    }
}

gw_err gw_sim_test(gw_fabric *f, gw_posts *p, int first, int n, bool *done) {
    gw_sim_rank *me = gw_sim_me(f);
    gw_sim_catch_up(me);
    GW_TRY(gw_sim_state(me->w));
    *done = true;
    for (int i = first; i < first + n; i++)
        *done &= sim_look(me, p[i].of, p[i].receives);
    for (int i = first; *done && i < first + n; i++)
        sim_take(me, p[i].of, p[i].receives);
    me->news |= *done; /* what waited for that may have ended: its caller need not rest */
    me->fruitless = *done ? 0 : me->fruitless + 1;
    if (me->fruitless > PATIENCE)
        gw_sim_rest(me);
    return GW_OK;
}

gw_err gw_sim_wait(gw_fabric *f, gw_posts *p, int first, int n) {
    for (bool done = false;;) {
        GW_TRY(gw_sim_test(f, p, first, n, &done));
        if (done)
            return GW_OK;
        gw_sim_rest(gw_sim_me(f));
    }
}

gw_err gw_sim_called(gw_fabric *f, int tag, bool *called) {
    gw_sim_rank *me = gw_sim_me(f);
    gw_sim_catch_up(me);
    GW_TRY(gw_sim_state(me->w));
    *called = false;
    for (int peer = 0; peer < f->size && !*called && me->w->open.n > 0; peer++) {
        gw_sim_message like = {
            .group = ((gw_sim_member *)f)->group, .end = {peer, f->rank}, .tag = tag};
        const gw_sim_message *m = *sim_find(me->w, &like, 0);
        *called = m && m->state == ARRIVED;
    }
    return GW_OK;
}

gw_err gw_sim_room(int n, gw_posts **out) {
    return gw_alloc(out, (size_t)n, sizeof **out);
}

void gw_sim_free_messages(gw_sim_world *w) {
    for (gw_sim_message *m = w->all, *next; m; m = next) {
        next = m->older;
        free(m);
    }
    free(w->open.chain);
}

const gw_sim_message *gw_sim_lost(const gw_sim_world *w) {
    const gw_sim_message *lost = NULL;
    for (int i = 0; i < w->open.size; i++)
        for (const gw_sim_message *m = w->open.chain[i]; m; m = m->next)
            if (!m->posted[0] &&
                (!lost || m->group->world[m->end[1]] < lost->group->world[lost->end[1]]))
                lost = m;
    return lost;
}
