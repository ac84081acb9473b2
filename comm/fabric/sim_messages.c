/* Messages under virtual time: see comm/fabric/sim.h. */
#include "comm/fabric/sim_parts.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

enum { PATIENCE = 1 << 20 }; /* fruitless tests: whoever makes more waits for an event */

static uint64_t sim_hash(const gw_sim_message *m) {
    uint64_t x = (uint64_t)m->group->id * 0x9E3779B97F4A7C15 + (uint64_t)m->tag;
    x = (x ^ x >> 29) * 0xBF58476D1CE4E5B9 + (uint64_t)m->end[0];
    x = (x ^ x >> 32) * 0x94D049BB133111EB + (uint64_t)m->end[1];
    return x ^ x >> 31;
}

/* Is *item like *like, and posted by the other end alone? */
static bool sim_same(const gw_hashed *item, const void *like) {
    const gw_sim_message *a = GW_HASHED(gw_sim_message, open, item), *b = like;
    return a->group == b->group && a->end[0] == b->end[0] && a->end[1] == b->end[1] &&
           a->tag == b->tag && a->posted[0] != b->posted[0];
}

/* The message that one end of *like posts now: a new one, or the oldest that its other end has
 * posted. */
static gw_err sim_match(gw_sim_world *w, const gw_sim_message *like, gw_sim_message **out) {
    uint64_t hash = sim_hash(like);
    gw_hashed **at = gw_hash_find(&w->open, hash, sim_same, like);
    if (at) {
        *out = GW_HASHED(gw_sim_message, open, gw_hash_take(&w->open, at));
        (*out)->posted[0] = (*out)->posted[1] = true;
        return GW_OK;
    }
    gw_sim_message *m = w->idle;
    if (m) {
        w->idle = m->next;
    } else {
        GW_TRY(gw_alloc(&m, 1, sizeof *m));
        m->older = w->all;
        w->all = m;
    }
    gw_sim_message *older = m->older;
    *m = *like;
    m->older = older;
    *out = m;
    return gw_hash_put(&w->open, &m->open, hash);
}

static gw_err sim_post(gw_fabric *f, gw_posts *p, int i, const gw_sim_message *like, int end,
                       gw_sim_message **out) {
    gw_sim_rank *me = gw_sim_me(f);
    gw_sim_world *w = me->w;
    me->sweep.idle = false;
    GW_TRY(gw_sim_state(w));
    gw_err e = sim_match(w, like, out);
    if (e != GW_OK)
        return gw_sim_fail(w, e, "%s", gw_err_text());
    gw_sim_message *m = *out;
    const gw_sim_watch *watch = w->setup.watch;
    int of[2] = {m->group->world[m->end[0]], m->group->world[m->end[1]]};
    if (end == 0) {
        m->bytes = like->bytes;
        m->data = like->data;
    } else {
        m->cap = like->cap;
        m->len = like->len;
        m->to = like->to;
    }
    if (m->posted[1 - end] && m->bytes != m->cap && w->setup.even)
        return gw_sim_fail(w, GW_ERR_UNSUPPORTED, "simulate: ranks send unequal parts");
    if (m->posted[1 - end] && m->bytes > m->cap && w->played == w->setup.ranks)
        return gw_sim_fail(w, GW_ERR_INTERNAL,
                           "simulate: rank %d sends %zu bytes to rank %d, which receives %zu",
                           of[0], m->bytes, of[1], m->cap);
    if (m->copy) { /* the sender has its memory back already */
        memcpy(m->to, m->copy, m->bytes);
        free(m->copy);
        m->copy = NULL;
    }
    p[i] = (gw_posts){.of = m, .receives = end == 1, .place = p[i].place};
    if (watch)
        m->post[end] = watch->post(watch->ctx, of[end], end == 0, of[1 - end]);
    if (watch && m->posted[1 - end])
        watch->match(watch->ctx, of, m->post, m->bytes);
    if (gw_probe_hooks.posted)
        gw_probe_hooks.posted(end == 0, m->bytes);
    return GW_OK;
}

gw_err gw_sim_isend(gw_fabric *f, gw_posts *p, int i, const void *data, size_t len, int peer,
                    int tag) {
    gw_sim_rank *me = gw_sim_me(f);
    gw_sim_world *w = me->w;
    gw_sim_tally *sent = ((gw_sim_member *)f)->sent;
    gw_sim_message *m = NULL, like = {.group = ((gw_sim_member *)f)->group,
                                      .end = {f->rank, peer},
                                      .tag = tag,
                                      .posted = {true, false},
                                      .data = data,
                                      .bytes = len,
                                      .later = me->later};
    bool within = f->world[f->rank] / w->setup.per_host == f->world[peer] / w->setup.per_host;
    if (w->played < w->setup.ranks) {
        /* The receiver's like that is played, and whom it receives this message from. */
        int ranks = w->setup.ranks, moved = peer - peer % w->played;
        like.end[1] -= moved;
        like.end[0] = w->setup.pairs ? f->rank ^ moved : (f->rank - moved + ranks) % ranks;
    }
    GW_TRY(sim_post(f, p, i, &like, 0, &m));
    m->later = like.later;
    me->later = 0;
    if (!m->later) {
        w->tally.bytes += len * (size_t)(w->setup.ranks / w->played);
        w->tally.messages += (uint64_t)(w->setup.ranks / w->played);
    }
    if (sent && !m->later) {
        sent->bytes += len;
        sent->messages++;
    }
    m->link = within ? &w->setup.memory : &w->setup.link;
    gw_sim_spend(me, m->link->overhead_s);
    m->state = STARTS;
    GW_TRY(gw_events_put(&w->flows.events, &m->flow.due, (double)me->clock));
    gw_sim_spend(me, m->link->byte_s * (double)len);
    return GW_OK;
}

gw_err gw_sim_irecv(gw_fabric *f, gw_posts *p, int i, void *data, size_t cap, int peer, int tag,
                    size_t *len) {
    gw_sim_message *m, like = {.group = ((gw_sim_member *)f)->group,
                               .end = {peer, f->rank},
                               .tag = tag,
                               .posted = {false, true},
                               .to = data,
                               .cap = cap,
                               .len = len};
    return sim_post(f, p, i, &like, 1, &m);
}

/* There is something new about a message for one of its ends. */
static void sim_tell(gw_sim_world *w, gw_sim_message *m, int end) {
    gw_posts *range = m->range[end];
    gw_sim_rank *r = &w->rank[m->group->world[m->end[end]] % w->played];
    if (range && w->failed == GW_OK) { /* afterwards the posts may be gone */
        range->left -= end == 0;
        if (end == 1) {
            m->next = range->fresh;
            range->fresh = m;
        }
        gw_sim_sweep_news(&r->sweep, range);
    }
    gw_sim_tell(r);
}

/* What is to happen to a message happens. */
gw_err gw_sim_move(gw_sim_world *w, gw_sim_message *m) {
    const gw_sim_setup *s = &w->setup;
    const int ends[2] = {m->group->world[m->end[0]], m->group->world[m->end[1]]};
    int from = ends[0] / s->per_host, to = ends[1] / s->per_host;
    switch (m->state) {
    case STARTS: /* what was sent enters its links */
        m->state = FLOWS;
        m->line = gw_flows_line(&w->flows, ends);
        if (!m->line) {
            gw_route way = {.links = 1, .link = {gw_network_links(s->network) + to}};
            if (from != to)
                gw_network_way(s->network, from, to, &way);
            for (int i = 0; from != to && w->played < s->ranks && i < way.links; i++)
                way.link[i] = gw_network_image(s->network, way.link[i]);
            GW_TRY(gw_flows_add(&w->flows, ends, &way, &m->line));
        }
        return gw_flows_begin(&w->flows, m->line, &m->flow, (double)m->bytes, w->now);
    case FLOWS: /* the sender gets its memory back */
        m->state = ARRIVES;
        if (s->carries && m->bytes > 0 && w->failed == GW_OK) {
            if (!m->posted[1])
                GW_TRY(gw_alloc_unset(&m->copy, m->bytes, 1));
            memcpy(m->posted[1] ? m->to : m->copy, m->data, m->bytes);
        }
        sim_tell(w, m, 0);
        return gw_events_put(
            &w->flows.events, &m->flow.due,
            (double)(w->now + m->later +
                     (int64_t)(1e9 * (m->link->latency_s + m->line->latency_s) + 0.5)));
    default:
        m->state = ARRIVED;
        if (m->posted[1])
            sim_tell(w, m, 1);
        return GW_OK;
    }
}

/* From now on a range knows what is not complete yet. */
static void sim_arm(gw_posts *range, int n) {
    range->n = range->left = n;
    range->fresh = NULL;
    for (int i = 0; i < n; i++) {
        gw_sim_message *m = range[i].of;
        m->range[range[i].receives] = range;
        if (!range[i].receives) {
            range->left -= m->state >= ARRIVES;
        } else if (m->state == ARRIVED) {
            m->next = range->fresh;
            range->fresh = m;
        }
    }
}

gw_err gw_sim_test(gw_fabric *f, gw_posts *p, int first, int n, bool *done) {
    gw_sim_rank *me = gw_sim_me(f);
    gw_sim_world *w = me->w;
    gw_sim_sweep *s = &me->sweep;
    gw_posts *range = &p[first];
    *done = false;
    me->fruitless++;
    if (s->known > s->n + 1) {
        s->n++;
        return GW_OK;
    }
    if (s->known == 0)
        gw_sim_catch_up(me);
    s->known = 0;
    GW_TRY(gw_sim_state(w));
    if (range->n != n)
        sim_arm(range, n);
    if (gw_sim_look(me, range)) {
        for (int i = 0; i < n; i++) {
            gw_sim_message *m = range[i].of;
            bool receives = range[i].receives;
            if (receives)
                *m->len = w->played < w->setup.ranks ? m->cap : m->bytes;
            if (w->setup.watch)
                w->setup.watch->seen(w->setup.watch->ctx, me->number, m->post[receives]);
            if (gw_probe_hooks.completed)
                gw_probe_hooks.completed();
            m->seen[receives] = true;
            if (m->seen[0] && m->seen[1]) {
                m->next = w->idle;
                w->idle = m;
            }
        }
        range->n = 0;
        gw_sim_sweep_news(s, range); /* its place is free, and what is tested next another one */
        me->news = *done = true; /* what waited for that may have ended: its caller need not rest */
        s->idle = false;
        me->fruitless = 0;
        return GW_OK;
    }
    gw_sim_sweep_add(s, range);
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
    me->sweep.idle = *called = false;
    for (int peer = 0; peer < f->size && !*called && me->w->open.n > 0; peer++) {
        gw_sim_message like = {.group = ((gw_sim_member *)f)->group,
                               .end = {peer, f->rank},
                               .tag = tag,
                               .posted = {false, true}};
        gw_hashed **at = gw_hash_find(&me->w->open, sim_hash(&like), sim_same, &like);
        *called = at && GW_HASHED(gw_sim_message, open, *at)->state == ARRIVED;
    }
    return GW_OK;
}

gw_err gw_sim_room(int n, gw_posts **out) {
    return gw_alloc(out, (size_t)n, sizeof **out);
}

void gw_sim_free_messages(gw_sim_world *w) {
    for (gw_sim_message *m = w->all, *next; m; m = next) {
        next = m->older;
        free(m->copy);
        free(m);
    }
    gw_hash_close(&w->open, NULL);
}

const gw_sim_message *gw_sim_lost(const gw_sim_world *w) {
    const gw_sim_message *lost = NULL;
    for (size_t i = 0; i < w->open.chains; i++)
        for (const gw_hashed *at = w->open.chain[i]; at; at = at->next) {
            const gw_sim_message *m = GW_HASHED(const gw_sim_message, open, at);
            if (!m->posted[0] &&
                (!lost || m->group->world[m->end[1]] < lost->group->world[lost->end[1]]))
                lost = m;
        }
    return lost;
}
