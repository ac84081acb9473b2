#include "select/walk.h"

#include "comm/buckets.h"

#include <math.h>

int gw_walk_cut(gw_walk *w, size_t bucket) {
    int last = w->n_layers - 1;
    gw_buckets cut = {.count = w->n_layers};
    if (bucket > 0)
        cut = gw_buckets_cut(gw_span_end(w->layers[last]), bucket * sizeof(float));
    w->n_parts = cut.count < GW_WALK_PARTS ? cut.count : GW_WALK_PARTS;
    for (int i = 0; i < w->n_parts; i++)
        w->part[i] =
            (gw_walk_part){.span = bucket > 0 ? gw_buckets_span(&cut, i) : w->layers[last - i]};
    return cut.count;
}

typedef struct state {
    const gw_walk *of;
    double floats; /* of all layers */
    double now, waited, link_free;
    double ready[GW_WALK_PARTS], done[GW_WALK_PARTS];
    int posted;
} state;

/* ---- the passes ---- */

static double walk_share(const state *s, int l) {
    return (double)s->of->layers[l].n / s->floats;
}

/* The parts that are complete once the gradient from `low` on is. */
static void walk_post(state *s, size_t low) {
    const gw_walk *w = s->of;
    for (; s->posted < w->n_parts && w->part[s->posted].span.off >= low; s->posted++) {
        s->now += w->part[s->posted].before_s;
        s->ready[s->posted] = s->now;
        s->now += w->part[s->posted].beside_s;
    }
}

/* Of each layer the gradient of its weights, then what it hands down. */
static void walk_backward(state *s) {
    const gw_walk *w = s->of;
    double products = 2 * s->floats - (double)w->layers[0].n;
    for (int l = w->n_layers - 1; l >= 0; l--) {
        double product_s = w->local.backward_s * ((double)w->layers[l].n / products);
        s->now += product_s;
        walk_post(s, w->layers[l].off);
        s->now += l > 0 ? product_s : 0;
    }
}

/* ---- the link ---- */

/* Of the parts that are not on their way yet (done < 0) the link's next. */
static int walk_next(const state *s, bool priority) {
    int best = -1;
    for (int i = 0; i < s->posted; i++) {
        if (s->done[i] >= 0)
            continue;
        if (best < 0)
            best = i; /* the first that is ready */
        else if (s->ready[i] > fmax(s->link_free, s->ready[best]))
            break; /* they become ready in order */
        else
            best = i; /* nearer the input */
        if (!priority)
            break;
    }
    return best;
}

static void walk_carry(state *s) {
    const gw_walk *w = s->of;
    for (int i = 0; i < s->posted; i++)
        s->done[i] = -1;
    for (int k = 0; k < s->posted; k++) {
        int i = walk_next(s, w->priority);
        s->link_free = fmax(s->ready[i], s->link_free) + w->part[i].wire_s;
        s->done[i] = s->link_free + w->part[i].latency_s;
    }
}

/* ---- waiting ---- */

static void walk_until(state *s, double when) {
    if (when > s->now) {
        s->waited += when - s->now;
        s->now = when;
    }
}

static void walk_await(state *s, gw_span need) {
    for (int i = 0; i < s->posted; i++)
        if (gw_span_overlap(s->of->part[i].span, need))
            walk_until(s, s->done[i]);
}

/* Layer l's shard is there, is updated, and goes out; when it has arrived everywhere. */
static double walk_publish(state *s, int l) {
    const gw_walk *w = s->of;
    const gw_walk_part *p = &w->part[w->n_layers - 1 - l];
    walk_await(s, w->layers[l]);
    s->now += w->local.update_s * walk_share(s, l);
    s->link_free = fmax(s->now, s->link_free) + p->gather_s;
    return s->link_free + p->latency_s;
}

static void walk_forward_gathering(state *s) {
    const gw_walk *w = s->of;
    double there = walk_publish(s, 0);
    for (int l = 0; l < w->n_layers; l++) {
        double above = l + 1 < w->n_layers ? walk_publish(s, l + 1) : 0;
        walk_until(s, there);
        there = above;
        s->now += w->local.forward_s * walk_share(s, l);
    }
}

static void walk_forward(state *s) {
    const gw_walk *w = s->of;
    for (int l = 0; l < w->n_layers; l++) {
        if (w->lazy)
            walk_await(s, w->layers[l]);
        s->now += (w->local.update_s + w->local.forward_s) * walk_share(s, l);
    }
}

gw_walked gw_walk_step(const gw_walk *w) {
    state s;
    s.of = w;
    s.floats = s.now = s.waited = s.link_free = 0;
    s.posted = 0;
    for (int l = 0; l < w->n_layers; l++)
        s.floats += (double)w->layers[l].n;
    walk_backward(&s);
    walk_carry(&s);
    for (int i = 0; i < s.posted && !w->lazy; i++)
        walk_until(&s, s.done[i]);
    s.now += w->local.data_s + w->local.other_s;
    if (w->gathers)
        walk_forward_gathering(&s);
    else
        walk_forward(&s);
    return (gw_walked){s.now, s.waited};
}
