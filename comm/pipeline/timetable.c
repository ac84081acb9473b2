#include "comm/pipeline/timetable.h"

#include "base/mem.h"

#include <stdlib.h>

#define X(name) extern const gw_timetable_ops gw_timetable_##name;
#include "comm/pipeline/timetables.def"
#undef X

static const gw_entry *const entries[] = {
#define X(name) &gw_timetable_##name.head,
#include "comm/pipeline/timetables.def"
#undef X
    NULL,
};

static const gw_hook needs[] = {GW_HOOK(gw_timetable_ops, lay_down),
                                GW_HOOK(gw_timetable_ops, bubble),
                                GW_HOOK(gw_timetable_ops, held),
                                {0}};

const gw_registry gw_timetables = {.kind = "timetable",
                                   .symbol = "gw_timetable_plugin",
                                   .abi = GW_TIMETABLE_ABI,
                                   .entries = entries,
                                   .needs = needs};

/* Microbatches that passed a chunk, and how many it held at a time. */
typedef struct passed {
    int forward, input, weights, slots;
} passed;

struct gw_timetable {
    const gw_timetable_ops *ops;
    gw_args *args;
    int stages, micro, chunks;
    int laying;     /* the stage that is laid down */
    passed *passed; /* [stages * chunks], by run */
    gw_act *acts;   /* [stages][most] */
    int *n;         /* [stages]: how many of these */
    size_t most;
};

/* ---- laying down ---- */

static passed *timetable_passed(const gw_timetable *t, int stage, int chunk) {
    return &t->passed[chunk * t->stages + stage];
}

/* The number of the microbatch that is due, counted in *p; -1: none is. */
static int timetable_due(const gw_timetable *t, gw_act_kind kind, passed *p) {
    switch (kind) {
    case GW_ACT_FORWARD: return p->forward < t->micro ? p->forward++ : -1;
    case GW_ACT_INPUT: return p->input < p->forward ? p->input++ : -1;
    case GW_ACT_WEIGHTS: return p->weights < p->input ? p->weights++ : -1;
    case GW_ACT_BACKWARD:
        if (p->input == p->forward || p->weights < p->input)
            return -1;
        p->input++;
        return p->weights++;
    }
    return -1;
}

gw_err gw_timetable_add(gw_timetable *t, gw_act_kind kind, int chunk) {
    int stage = t->laying, *n = &t->n[stage];
    passed *p = chunk >= 0 && chunk < t->chunks ? timetable_passed(t, stage, chunk) : NULL;
    int micro = p ? timetable_due(t, kind, p) : -1;
    if (micro < 0)
        return gw_fail(GW_ERR_INPUT,
                       "timetable %s: stage %d of %d, action %d: %c of chunk %d, where none of %d "
                       "microbatches is due",
                       t->ops->head.name, stage, t->stages, *n, gw_act_letter(kind), chunk,
                       t->micro);
    if (p->forward - p->weights > p->slots)
        p->slots = p->forward - p->weights;
    t->acts[(size_t)stage * t->most + (size_t)(*n)++] = (gw_act){kind, chunk, micro};
    return GW_OK;
}

/* ---- can a step end? ---- */

/* A stage on its way through a step in which every send waits for its receive. It keeps two
 * receives posted, for the next activation and the next delta that it takes from another stage. */
typedef struct walker {
    const gw_act *acts;
    int n, at;     /* its actions; the present one, */
    bool computed; /* whose result has not been received yet */
    int next[2];   /* the actions that the posted receives are for: by walk_way */
} walker;

typedef struct walk {
    const gw_timetable *t;
    walker *stage;
    int (*computed)[2]; /* [run]: microbatches that passed it, by walk_way; they pass in order */
} walk;

static int walk_way(gw_act a) {
    return a.kind == GW_ACT_FORWARD;
}

static int *walk_computed(const walk *w, gw_place at, gw_act a) {
    return &w->computed[at.chunk * w->t->stages + at.stage][walk_way(a)];
}

/* Post the receive of what another stage sends for the first such action from `from` on. */
static void walk_post(const walk *w, int stage, int from, int way) {
    walker *s = &w->stage[stage];
    for (; from < s->n; from++) {
        int source = gw_timetable_source(w->t, stage, s->acts[from]).stage;
        if (walk_way(s->acts[from]) == way && source >= 0 && source != stage)
            break;
    }
    s->next[way] = from;
}

/* Return whether stage `to` has received the result of `a`, or has posted its receive. */
static bool walk_received(const walk *w, gw_place to, gw_act a) {
    const walker *s = &w->stage[to.stage];
    int next = s->next[walk_way(a)];
    return *walk_computed(w, to, a) > a.micro ||
           (next < s->n && s->acts[next].chunk == to.chunk && s->acts[next].micro == a.micro);
}

/* Take a stage as far as it gets; true: further than it was. */
static bool walk_advance(const walk *w, int stage) {
    walker *s = &w->stage[stage];
    bool moved = false;
    for (; s->at < s->n; s->at++, s->computed = false, moved = true) {
        gw_act a = s->acts[s->at];
        gw_place from = gw_timetable_source(w->t, stage, a),
                 to = gw_timetable_target(w->t, stage, a);
        if (!s->computed) {
            if (from.stage >= 0 && *walk_computed(w, from, a) <= a.micro)
                return moved;
            s->computed = moved = true;
            if (a.kind != GW_ACT_WEIGHTS)
                ++*walk_computed(w, (gw_place){stage, a.chunk}, a);
            if (from.stage >= 0 && from.stage != stage)
                walk_post(w, stage, s->at + 1, walk_way(a));
        }
        if (to.stage >= 0 && to.stage != stage && !walk_received(w, to, a))
            return moved;
    }
    return moved;
}

static gw_err walk_stuck(const walk *w) {
    for (int i = 0; i < w->t->stages; i++) {
        const walker *s = &w->stage[i];
        if (s->at < s->n)
            return gw_fail(GW_ERR_INPUT,
                           "timetable %s: deadlock on %d stages with %d microbatches: stage %d "
                           "waits to %s %c%d of chunk %d",
                           gw_timetable_name(w->t), w->t->stages, w->t->micro, i,
                           s->computed ? "send the result of" : "receive for",
                           gw_act_letter(s->acts[s->at].kind), s->acts[s->at].micro,
                           s->acts[s->at].chunk);
    }
    return GW_OK;
}

/* Follow all stages until nobody gets any further. */
static gw_err timetable_check(const gw_timetable *t) {
    walk w = {.t = t};
    gw_err e = gw_alloc(&w.stage, (size_t)t->stages, sizeof *w.stage);
    GW_THEN(e, gw_alloc(&w.computed, (size_t)t->stages * (size_t)t->chunks, sizeof *w.computed));
    for (int i = 0; e == GW_OK && i < t->stages; i++) {
        w.stage[i].acts = gw_timetable_acts(t, i, &w.stage[i].n);
        walk_post(&w, i, 0, 0);
        walk_post(&w, i, 0, 1);
    }
    for (bool moved = e == GW_OK; moved;) {
        moved = false;
        for (int i = 0; i < t->stages; i++)
            moved = walk_advance(&w, i) || moved;
    }
    GW_THEN(e, walk_stuck(&w));
    free(w.stage);
    free(w.computed);
    return e;
}

static gw_err timetable_fill(gw_timetable *t, const gw_spec *spec) {
    const gw_timetable_ops *ops = t->ops;
    GW_TRY(gw_args_of(&t->args, ops->head.opts, ops->head.name, spec));
    const char *why = ops->refuses ? ops->refuses(t->args, t->stages, t->micro) : NULL;
    if (why)
        return gw_fail(GW_ERR_UNSUPPORTED, "--timetable %s: %s", ops->head.name, why);
    t->chunks = ops->chunks ? ops->chunks(t->args) : 1;
    if (t->chunks < 1)
        return gw_fail(GW_ERR_INPUT, "timetable %s: %d chunks a stage: give 1 or more",
                       ops->head.name, t->chunks);
    size_t runs = (size_t)t->stages * (size_t)t->chunks;
    t->most = 3 * (size_t)t->chunks * (size_t)t->micro; /* F, I and W of each */
    GW_TRY(gw_alloc(&t->passed, runs, sizeof *t->passed));
    GW_TRY(gw_alloc(&t->acts, (size_t)t->stages * t->most, sizeof *t->acts));
    GW_TRY(gw_alloc(&t->n, (size_t)t->stages, sizeof *t->n));
    for (int s = 0; s < t->stages; s++) {
        t->laying = s;
        GW_TRY(ops->lay_down(t->args, t, s));
        for (int c = 0; c < t->chunks; c++)
            if (timetable_passed(t, s, c)->weights < t->micro)
                return gw_fail(GW_ERR_INPUT,
                               "timetable %s: stage %d of %d: %d of %d microbatches pass chunk %d",
                               ops->head.name, s, t->stages, timetable_passed(t, s, c)->weights,
                               t->micro, c);
    }
    return timetable_check(t);
}

gw_err gw_timetable_lay_down(gw_timetable **out, const gw_timetable_ops *ops, const gw_spec *spec,
                             int stages, int micro) {
    gw_timetable *t = NULL;
    GW_TRY(gw_alloc(&t, 1, sizeof *t));
    t->ops = ops;
    t->stages = stages;
    t->micro = micro;
    gw_err e = timetable_fill(t, spec);
    GW_OPENED(e, out, t, gw_timetable_close);
}

gw_err gw_timetable_open(gw_timetable **out, const gw_spec *spec, int stages, int micro) {
    const gw_entry *entry = NULL;
    spec = spec ? spec : &GW_SPEC_NAMED("1f1b");
    GW_TRY(gw_registry_find(&gw_timetables, spec->name, &entry));
    return gw_timetable_lay_down(out,
                                 (const gw_timetable_ops *)entry, /* head is the first member */
                                 spec, stages, micro);
}

void gw_timetable_close(gw_timetable *t) {
    if (!t)
        return;
    gw_args_free(t->args);
    free(t->passed);
    free(t->acts);
    free(t->n);
    free(t);
}

/* ---- reading ---- */

const char *gw_timetable_name(const gw_timetable *t) {
    return t->ops->head.name;
}

int gw_timetable_stages(const gw_timetable *t) {
    return t->stages;
}

int gw_timetable_micro(const gw_timetable *t) {
    return t->micro;
}

int gw_timetable_chunks(const gw_timetable *t) {
    return t->chunks;
}

const gw_act *gw_timetable_acts(const gw_timetable *t, int stage, int *n) {
    *n = t->n[stage];
    return t->acts + (size_t)stage * t->most;
}

int gw_timetable_slots(const gw_timetable *t, int stage, int chunk) {
    return timetable_passed(t, stage, chunk)->slots;
}

int gw_timetable_kept(const gw_timetable *t, int stage, int chunk) {
    int kept = 1, now = 0, n;
    const gw_act *acts = gw_timetable_acts(t, stage, &n);
    for (int i = 0; i < n; i++) {
        if (acts[i].chunk != chunk)
            continue;
        now += (acts[i].kind == GW_ACT_INPUT) - (acts[i].kind == GW_ACT_WEIGHTS);
        kept = now > kept ? now : kept;
    }
    return kept;
}

double gw_timetable_bubble(const gw_timetable *t, const gw_act_cost *cost) {
    return t->ops->bubble(t->args, t->stages, cost);
}

int gw_timetable_held(const gw_timetable *t, int stage) {
    return t->ops->held(t->args, t->stages, t->micro, stage);
}

/* ---- hops ---- */

/* The place of the run `by` runs further than a chunk of `stage`. */
static gw_place timetable_run(const gw_timetable *t, int stage, int chunk, int by) {
    int run = chunk * t->stages + stage + by;
    bool is = run >= 0 && run < t->stages * t->chunks;
    return is ? (gw_place){run % t->stages, run / t->stages} : (gw_place){-1, -1};
}

/* The way that a result of this kind takes: a run on, a run back, none. */
static int timetable_way(gw_act_kind kind) {
    return kind == GW_ACT_FORWARD ? 1 : kind == GW_ACT_WEIGHTS ? 0 : -1;
}

gw_place gw_timetable_source(const gw_timetable *t, int stage, gw_act a) {
    int way = timetable_way(a.kind);
    return way ? timetable_run(t, stage, a.chunk, -way) : (gw_place){-1, -1};
}

gw_place gw_timetable_target(const gw_timetable *t, int stage, gw_act a) {
    int way = timetable_way(a.kind);
    return way ? timetable_run(t, stage, a.chunk, way) : (gw_place){-1, -1};
}
