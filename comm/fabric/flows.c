#include "comm/fabric/flows.h"

#include "base/mem.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_PASSES = 64 /* over each link, in a settlement */ };

gw_err gw_flows_open(gw_flows *f, int links) {
    *f = (gw_flows){.n = links};
    GW_TRY(gw_alloc(&f->link, (size_t)links, sizeof *f->link));
    GW_TRY(gw_alloc(&f->queue, 2 * (size_t)links, sizeof *f->queue));
    f->touched = f->queue + links;
    for (int l = 0; l < links; l++)
        f->link[l] = (gw_link){.level = INFINITY};
    return GW_OK;
}

void gw_flows_close(gw_flows *f) {
    for (int i = 0; i < f->lines.size; i++)
        for (gw_line *b = f->lines.chain[i], *next; b; b = next) {
            next = b->next;
            free(b);
        }
    for (int l = 0; f->link && l < f->n; l++)
        free(f->link[l].line);
    free(f->lines.chain);
    free(f->link);
    free(f->queue);
    gw_events_close(&f->events);
    *f = (gw_flows){0};
}

/* ---- lines ---- */

static void flows_queue(gw_flows *f, int l) {
    gw_link *of = &f->link[l];
    if (!of->touched)
        f->touched[f->n_touched++] = l;
    if (!of->queued)
        f->queue[(f->head + f->queued++) % f->n] = l;
    of->touched = of->queued = true;
}

static void flows_queue_all(gw_flows *f, const gw_line *b) {
    for (int i = 0; i < b->links; i++)
        flows_queue(f, b->at[i].link);
}

static gw_line **flows_chain(const gw_flows *f, int from, int to) {
    uint64_t x = ((uint64_t)from << 32 | (uint32_t)to) * 0x9E3779B97F4A7C15;
    return &f->lines.chain[(x >> 32) % (uint64_t)f->lines.size];
}

static gw_err flows_widen(gw_flows *f) {
    int old = f->lines.size, size = old ? 2 * old : 1024;
    gw_line **chain = f->lines.chain, *next;
    GW_TRY(gw_alloc(&f->lines.chain, (size_t)size, sizeof *f->lines.chain));
    f->lines.size = size;
    for (int i = 0; i < old; i++)
        for (gw_line *b = chain[i]; b; b = next) {
            gw_line **at = flows_chain(f, b->from, b->to);
            next = b->next;
            b->next = *at;
            *at = b;
        }
    free(chain);
    return GW_OK;
}

static gw_line *flows_find(const gw_flows *f, const int ends[2]) {
    gw_line *b = f->lines.size ? *flows_chain(f, ends[0], ends[1]) : NULL;
    while (b && !(b->from == ends[0] && b->to == ends[1]))
        b = b->next;
    return b;
}

static gw_err flows_join(gw_link *l, gw_line *b, int *place) {
    if (l->n == l->room) {
        int room = l->room ? 2 * l->room : 4;
        gw_line **wide = realloc(l->line, (size_t)room * sizeof *wide);
        if (!wide)
            return gw_fail(GW_ERR_NOMEM, "simulate: out of memory");
        l->line = wide;
        l->room = room;
    }
    *place = l->n;
    l->line[l->n++] = b;
    return GW_OK;
}

static gw_err flows_add_line(gw_flows *f, const int ends[2], const gw_route *way, int64_t now,
                             gw_line **out) {
    gw_line *b = NULL;
    if (f->lines.n >= f->lines.size)
        GW_TRY(flows_widen(f));
    GW_TRY(gw_alloc(&b, 1, sizeof *b + (size_t)way->links * sizeof b->at[0]));
    gw_line **chain = flows_chain(f, ends[0], ends[1]);
    *b = (gw_line){.next = *chain, .from = ends[0], .to = ends[1], .since = now};
    *out = *chain = b;
    f->lines.n++;
    for (; b->links < way->links; b->links++) {
        gw_line_link *at = &b->at[b->links];
        at->link = way->link[b->links];
        GW_TRY(flows_join(&f->link[at->link], b, &at->place));
    }
    return GW_OK;
}

static void flows_drop_line(gw_flows *f, gw_line *b) {
    gw_line **chain = flows_chain(f, b->from, b->to);
    for (int i = 0; i < b->links; i++) {
        gw_link *l = &f->link[b->at[i].link];
        gw_line *last = l->line[--l->n];
        int k = 0;
        while (last->at[k].link != b->at[i].link)
            k++;
        last->at[k].place = b->at[i].place;
        l->line[b->at[i].place] = last;
    }
    while (*chain != b)
        chain = &(*chain)->next;
    *chain = b->next;
    f->lines.n--;
    free(b);
}

static void flows_serve(gw_line *b, int64_t now) {
    b->served += b->rate * (double)(now - b->since);
    b->since = now;
}

gw_err gw_flows_begin(gw_flows *f, gw_flow *x, const int ends[2], const gw_route *way, double bytes,
                      int64_t now) {
    gw_line *b = flows_find(f, ends);
    x->next = NULL;
    if (b) {
        x->until = b->last->until + bytes;
        b->last->next = x;
    } else {
        GW_TRY(flows_add_line(f, ends, way, now, &b));
        x->until = bytes;
        b->first = x;
        flows_queue_all(f, b);
    }
    b->last = x;
    x->of = b;
    return GW_OK;
}

/* ---- levels and rates ---- */

static double flows_min(double a, double b) {
    return a < b ? a : b;
}

/* The least level of a line's links, but for two of them. */
static double flows_least(const gw_flows *f, const gw_line *b, int but, int nor) {
    double least = INFINITY;
    for (int i = 0; i < b->links; i++)
        if (b->at[i].link != but && b->at[i].link != nor)
            least = flows_min(least, f->link[b->at[i].link].level);
    return least;
}

/* From an equal share on: what flows leave that are held back elsewhere, the others divide. */
static double flows_level(const gw_flows *f, int l) {
    const gw_link *of = &f->link[l];
    double level = 0, fair = of->n ? of->capacity / of->n : INFINITY;
    while (fair > level) {
        double rest = of->capacity;
        int others = of->n;
        level = fair;
        for (int i = 0; i < of->n; i++) {
            double least = flows_least(f, of->line[i], l, l);
            others -= least < level;
            rest -= least < level ? least : 0;
        }
        fair = others ? rest / others : INFINITY;
    }
    return level;
}

/* Who shares a flow with link l, whose level was another one before? */
static void flows_spread(gw_flows *f, int l, double before) {
    const gw_link *of = &f->link[l];
    for (int i = 0; i < of->n; i++) {
        const gw_line *b = of->line[i];
        for (int k = 0; k < b->links; k++) {
            int other = b->at[k].link;
            double rest = flows_least(f, b, l, other);
            double was = flows_min(before, rest), is = flows_min(of->level, rest);
            if (other != l && was != is && flows_min(was, is) < f->link[other].level)
                flows_queue(f, other);
        }
    }
}

static gw_err flows_rate(gw_flows *f, gw_line *b, int64_t now) {
    flows_serve(b, now);
    b->rate = flows_least(f, b, -1, -1);
    double left = b->first->until - b->served;
    int64_t at = now + (left > 0 ? (int64_t)ceil(left / b->rate - 1e-6) : 0);
    return b->first->due.place && b->first->due.at == at
               ? GW_OK
               : gw_events_put(&f->events, &b->first->due, at);
}

gw_err gw_flows_end(gw_flows *f, gw_flow *x, int64_t now) {
    gw_line *b = x->of;
    flows_serve(b, now);
    b->served = b->served > x->until ? b->served : x->until; /* but for roundings it was */
    b->first = x->next;
    if (b->first)
        return flows_rate(f, b, now);
    flows_queue_all(f, b);
    flows_drop_line(f, b);
    return GW_OK;
}

gw_err gw_flows_settle(gw_flows *f, int64_t now) {
    for (int64_t left = (int64_t)MOST_PASSES * f->n; f->queued > 0 && left > 0; left--) {
        int l = f->queue[f->head];
        gw_link *of = &f->link[l];
        f->head = (f->head + 1) % f->n;
        f->queued--;
        of->queued = false;
        double before = of->level, level = flows_level(f, l);
        if (!(fabs(level - before) > 1e-12 * flows_min(level, before))) /* infinite ones, too */
            continue;
        of->level = level;
        flows_spread(f, l, before);
    }
    if (f->queued > 0)
        return gw_fail(GW_ERR_INTERNAL, "simulate: the shares of %d links do not settle",
                       f->queued);
    gw_err e = GW_OK;
    while (f->n_touched > 0) {
        gw_link *of = &f->link[f->touched[--f->n_touched]];
        of->touched = false;
        for (int i = 0; i < of->n; i++)
            GW_THEN(e, flows_rate(f, of->line[i], now));
    }
    return e;
}
