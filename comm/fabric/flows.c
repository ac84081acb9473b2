#include "comm/fabric/flows.h"

#include "base/mem.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_PASSES = 64 /* over each link, in a settlement */ };

gw_err gw_flows_open(gw_flows *f, int links) {
    *f = (gw_flows){.n = links};
    GW_TRY(gw_alloc(&f->link, (size_t)links, sizeof *f->link));
    GW_TRY(gw_alloc(&f->level, (size_t)links, sizeof *f->level));
    GW_TRY(gw_alloc(&f->queue, 2 * (size_t)links, sizeof *f->queue));
    f->touched = f->queue + links;
    for (int l = 0; l < links; l++) {
        f->link[l].due.of = GW_EVENT_LINK;
        f->level[l] = INFINITY;
    }
    return GW_OK;
}

static void flows_free_bundle(gw_hashed *item) {
    free(GW_HASHED(gw_bundle, same, item));
}

static void flows_free_line(gw_hashed *item) {
    free(GW_HASHED(gw_line, same, item));
}

void gw_flows_close(gw_flows *f) {
    gw_hash_close(&f->bundles, flows_free_bundle);
    gw_hash_close(&f->lines, flows_free_line);
    for (int l = 0; f->link && l < f->n; l++) {
        free(f->link[l].bundle);
        gw_events_close(&f->link[l].held);
    }
    free(f->link);
    free(f->level);
    free(f->queue);
    free(f->with);
    gw_events_close(&f->events);
    *f = (gw_flows){0};
}

static double flows_min(double a, double b) {
    return a < b ? a : b;
}

/* ---- lines and bundles ---- */

static bool flows_same_line(const gw_hashed *item, const void *like) {
    const gw_line *b = GW_HASHED(gw_line, same, item);
    const int *ends = like;
    return b->from == ends[0] && b->to == ends[1];
}

static bool flows_same_bundle(const gw_hashed *item, const void *like) {
    const gw_bundle *b = GW_HASHED(gw_bundle, same, item);
    const gw_route *way = like;
    int i = 0;
    while (i < b->links && b->links == way->links && b->at[i].link == way->link[i])
        i++;
    return i == way->links;
}

static uint64_t flows_hash(const int *x, int n) {
    uint64_t hash = 0;
    for (int i = 0; i < n; i++) {
        hash = (hash ^ (uint32_t)x[i]) * 0x9E3779B97F4A7C15;
        hash ^= hash >> 32;
    }
    return hash;
}

gw_line *gw_flows_line(const gw_flows *f, const int ends[2]) {
    gw_hashed **at = gw_hash_find(&f->lines, flows_hash(ends, 2), flows_same_line, ends);
    return at ? GW_HASHED(gw_line, same, *at) : NULL;
}

gw_err gw_flows_add(gw_flows *f, const int ends[2], const gw_route *way, gw_line **out) {
    uint64_t hash = flows_hash(way->link, way->links);
    gw_hashed **at = gw_hash_find(&f->bundles, hash, flows_same_bundle, way);
    gw_bundle *of = at ? GW_HASHED(gw_bundle, same, *at) : NULL;
    gw_line *b = NULL;
    gw_err e = GW_OK;
    int had = f->room; /* a link has all lines at most */
    GW_TRY(gw_grow(&f->with, &f->room, (int)f->lines.n + 2, sizeof *f->with));
    memset(f->with + had, 0, (size_t)(f->room - had) * sizeof *f->with);
    for (int l = 0; l < f->n && f->lines.n == 0; l++)
        f->narrowest = l ? flows_min(f->narrowest, f->link[l].capacity) : f->link[l].capacity;
    if (!of) {
        GW_TRY(gw_alloc(&of, 1, sizeof *of + (size_t)way->links * sizeof of->at[0]));
        *of = (gw_bundle){.hold = -1, .links = way->links};
        for (int i = 0; i < of->links; i++)
            of->at[i].link = way->link[i];
        e = gw_hash_put(&f->bundles, &of->same, hash);
        if (e != GW_OK) {
            free(of);
            return e;
        }
    }
    GW_TRY(gw_alloc(&b, 1, sizeof *b));
    *b = (gw_line){.from = ends[0], .to = ends[1], .latency_s = way->latency_s, .of = of};
    *out = b;
    e = gw_hash_put(&f->lines, &b->same, flows_hash(ends, 2));
    if (e != GW_OK)
        free(b);
    return e;
}

/* Its level is not what it was, or there is another flow that ends first: until now it served. */
static void flows_touch(gw_flows *f, int l) {
    gw_link *of = &f->link[l];
    if (f->now > of->since) {
        of->served = of->held.n ? of->served + f->level[l] * (double)(f->now - of->since) : 0;
        of->since = f->now;
    }
    if (!of->touched)
        f->touched[f->n_touched++] = l;
    of->touched = true;
}

static void flows_queue(gw_flows *f, int l) {
    flows_touch(f, l);
    if (!f->link[l].queued)
        f->queue[(f->head + f->queued++) % f->n] = l;
    f->link[l].queued = true;
}

static void flows_tally(gw_flows *f, const gw_link *l, int more) {
    if (l->lines == 0)
        return;
    f->busy += more;
    f->wide += l->capacity > f->narrowest ? more : 0;
    f->with[l->lines] += more;
    f->most = l->lines > f->most ? l->lines : f->most;
    while (f->most > 0 && f->with[f->most] == 0)
        f->most--;
}

/* So many more of its lines are busy. The first one enters the bundle in its links' lists, and the
 * last one takes it out: the end of a list then fills its place. */
static gw_err flows_count(gw_flows *f, gw_bundle *b, int more) {
    bool begins = b->busy == 0;
    b->busy += more;
    for (int i = 0; i < b->links; i++) {
        gw_bundle_link *at = &b->at[i];
        gw_link *l = &f->link[at->link];
        if (begins) {
            if (l->n == l->room)
                GW_TRY(gw_grow(&l->bundle, &l->room, l->n + 1, sizeof *l->bundle));
            at->place = l->n++;
            l->bundle[at->place] =
                (gw_link_share){.of = b, .other = b->links == 2 ? b->at[1 - i].link : -1};
        }
        l->bundle[at->place].busy = b->busy;
        flows_tally(f, l, -1);
        l->lines += more;
        flows_tally(f, l, 1);
        flows_queue(f, at->link);
        if (b->busy == 0) {
            gw_bundle_link *moved = l->bundle[--l->n].of->at;
            while (moved->link != at->link)
                moved++;
            moved->place = at->place;
            l->bundle[at->place] = l->bundle[l->n];
        }
    }
    return GW_OK;
}

gw_err gw_flows_begin(gw_flows *f, gw_line *b, gw_flow *x, double bytes, int64_t now) {
    f->now = now;
    x->next = NULL;
    x->bytes = bytes;
    if (b->first) {
        b->last = b->last->next = x;
        return GW_OK;
    }
    b->first = b->last = x;
    b->due.at = bytes;
    b->at = &b->of->lines;
    b->next = *b->at;
    *b->at = b;
    if (b->next)
        b->next->at = &b->next;
    if (b->of->busy == 0) {
        b->of->next = f->loose;
        f->loose = b->of;
    }
    GW_TRY(flows_count(f, b->of, 1));
    gw_link *hold = b->of->hold < 0 ? NULL : &f->link[b->of->hold];
    return hold ? gw_events_put(&hold->held, &b->due, hold->served + bytes) : GW_OK;
}

/* ---- levels ---- */

static bool flows_less(double a, double b) {
    return b - a > 1e-12 * a; /* an infinite one, too */
}

/* The least level of a bundle's links, but for two of them. */
static double flows_least(const gw_flows *f, const gw_bundle *b, int but, int nor) {
    double least = INFINITY;
    for (int i = 0; i < b->links; i++)
        if (b->at[i].link != but && b->at[i].link != nor)
            least = flows_min(least, f->level[b->at[i].link]);
    return least;
}

/* From an equal share on: what lines leave that are held back elsewhere, the others divide. */
static double flows_level(const gw_flows *f, int l) {
    const gw_link *of = &f->link[l];
    double level = 0, fair = of->lines ? of->capacity / of->lines : INFINITY;
    if (fair * f->most <= f->narrowest) /* no link's share is less */
        return fair;
    while (fair > level) {
        double rest = of->capacity;
        int others = of->lines;
        level = fair;
        for (int i = 0; i < of->n; i++) {
            int other = of->bundle[i].other, busy = of->bundle[i].busy;
            double least = other >= 0 ? f->level[other] : flows_least(f, of->bundle[i].of, l, l);
            others -= least < level ? busy : 0;
            rest -= least < level ? least * busy : 0;
        }
        fair = others ? rest / others : INFINITY;
    }
    return level;
}

/* Who shares a line with link l, whose level was another one before? */
static void flows_spread(gw_flows *f, int l, double before) {
    const gw_link *of = &f->link[l];
    double level = f->level[l];
    for (int i = 0; i < of->n; i++) {
        const gw_bundle *b = of->bundle[i].of;
        int other = of->bundle[i].other;
        if (other >= 0 && flows_min(level, before) < f->level[other])
            flows_queue(f, other);
        for (int k = 0; other < 0 && k < b->links; k++) {
            int link = b->at[k].link;
            double rest = flows_least(f, b, l, link);
            double was = flows_min(before, rest), is = flows_min(level, rest);
            if (link != l && was != is && flows_min(was, is) < f->level[link])
                flows_queue(f, link);
        }
    }
}

/* The narrowest of its links holds it; of several the one that did before. Its lines have been
 * served elsewhere until now. */
static gw_err flows_hold(gw_flows *f, gw_bundle *b) {
    int from = b->hold, to = from >= 0 ? from : b->at[0].link;
    gw_err e = GW_OK;
    for (int i = 0; i < b->links; i++)
        if (flows_less(f->level[b->at[i].link], f->level[to]))
            to = b->at[i].link;
    if (b->busy == 0 || to == from)
        return GW_OK;
    flows_touch(f, to);
    if (from >= 0)
        flows_touch(f, from);
    for (gw_line *x = b->lines; x; x = x->next) {
        if (from >= 0) {
            gw_events_drop(&f->link[from].held, &x->due);
            x->due.at -= f->link[from].served;
        }
        GW_THEN(e, gw_events_put(&f->link[to].held, &x->due, f->link[to].served + x->due.at));
    }
    b->hold = to;
    return e;
}

static gw_err flows_hold_all(gw_flows *f, int l) {
    const gw_link *of = &f->link[l];
    gw_err e = GW_OK;
    for (int i = 0; i < of->n; i++) {
        int other = of->bundle[i].other;
        if (other < 0 || flows_less(f->level[l], f->level[other]) ||
            flows_less(f->level[other], f->level[l]))
            GW_THEN(e, flows_hold(f, of->bundle[i].of));
    }
    return e;
}

/* When does the first flow end that this link holds? */
static gw_err flows_plan(gw_flows *f, gw_link *of) {
    if (of->held.n == 0) {
        gw_events_drop(&f->events, &of->due);
        return GW_OK;
    }
    double left = of->held.x[1].at - of->served, level = f->level[of - f->link];
    double at = (double)f->now + (left > 0 ? ceil(left / level - 1e-6) : 0);
    return of->due.place && of->due.at == at ? GW_OK : gw_events_put(&f->events, &of->due, at);
}

gw_err gw_flows_end(gw_flows *f, gw_link *of, int64_t now, gw_flow **out) {
    gw_line *b = (gw_line *)of->held.x[1].of;
    f->now = now;
    flows_touch(f, (int)(of - f->link));
    *out = b->first;
    b->first = b->first->next;
    if (b->first) {
        GW_TRY(gw_events_put(&of->held, &b->due, b->due.at + b->first->bytes));
    } else {
        gw_events_drop(&of->held, &b->due);
        *b->at = b->next;
        if (b->next)
            b->next->at = b->at;
        GW_TRY(flows_count(f, b->of, -1));
        b->of->hold = b->of->busy ? b->of->hold : -1;
    }
    return flows_plan(f, of);
}

/* Where all ranks send to all, in step, all links change at once, and are alike before and after:
 * then the shares are known without a look at each line. */
static void flows_settle_alike(gw_flows *f) {
    int changed = 0;
    for (int i = 0; i < f->queued; i++)
        changed += f->link[f->queue[(f->head + i) % f->n]].lines > 0;
    if (f->wide || changed < f->busy || f->busy == 0 || f->with[f->most] < f->busy)
        return;
    for (; f->queued > 0; f->queued--, f->head = (f->head + 1) % f->n) {
        int l = f->queue[f->head];
        f->link[l].queued = false;
        f->level[l] = f->link[l].lines ? f->narrowest / f->most : INFINITY;
    }
}

gw_err gw_flows_settle(gw_flows *f, int64_t now) {
    f->now = now;
    flows_settle_alike(f);
    for (int64_t left = (int64_t)MOST_PASSES * f->n; f->queued > 0 && left > 0; left--) {
        int l = f->queue[f->head];
        f->head = (f->head + 1) % f->n;
        f->queued--;
        f->link[l].queued = false;
        double before = f->level[l], level = flows_level(f, l);
        if (!flows_less(level, before) && !flows_less(before, level))
            continue;
        f->level[l] = level;
        f->link[l].changed = true;
        flows_spread(f, l, before);
    }
    if (f->queued > 0)
        return gw_fail(GW_ERR_INTERNAL, "simulate: the shares of %d links do not settle",
                       f->queued);
    gw_err e = GW_OK;
    for (; f->loose && e == GW_OK; f->loose = f->loose->next)
        e = flows_hold(f, f->loose);
    for (int i = 0; i < f->n_touched; i++) /* more are touched meanwhile */
        if (f->link[f->touched[i]].changed)
            GW_THEN(e, flows_hold_all(f, f->touched[i]));
    while (f->n_touched > 0) {
        gw_link *of = &f->link[f->touched[--f->n_touched]];
        of->touched = of->changed = false;
        GW_THEN(e, flows_plan(f, of));
    }
    return e;
}
