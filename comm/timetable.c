#include "comm/timetable.h"

#include "base/mem.h"

#include <stdlib.h>

#define X(name) extern const gw_timetable_ops gw_timetable_##name;
#include "comm/timetables.def"
#undef X

static const gw_entry *const entries[] = {
#define X(name) &gw_timetable_##name.head,
#include "comm/timetables.def"
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

static gw_err timetable_lay_down_stage(gw_timetable *t, int stage) {
    t->laying = stage;
    GW_TRY(t->ops->lay_down(t->args, t, stage));
    for (int c = 0; c < t->chunks; c++)
        if (timetable_passed(t, stage, c)->weights < t->micro)
            return gw_fail(GW_ERR_INPUT,
                           "timetable %s: stage %d of %d: %d of %d microbatches pass chunk %d",
                           t->ops->head.name, stage, t->stages,
                           timetable_passed(t, stage, c)->weights, t->micro, c);
    return GW_OK;
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
    for (int s = 0; s < t->stages; s++)
        GW_TRY(timetable_lay_down_stage(t, s));
    gw_run_cost *none = NULL;
    GW_TRY(gw_alloc(&none, runs, sizeof *none));
    gw_pipe_times times;
    gw_err e = gw_timetable_simulate(t, none, GW_SENDS_SYNCHRONOUS, &times, NULL);
    free(none);
    return e;
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
