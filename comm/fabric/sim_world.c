/* A world under virtual time: see comm/fabric/sim.h. */
#include "comm/fabric/sim_parts.h"

#include "base/mem.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

enum {
    STACK = 256 << 10, /* of a rank that carries nothing; what it never touches takes no memory */
    GUARD = 4096
};

static gw_sim_world *sim_world; /* the one that runs */

/* ---- what a rank asks of its fabric ---- */

/* As gw_sim_spend, and whoever watches is told of it. */
static void sim_compute(gw_sim_rank *me, double seconds) {
    const gw_sim_watch *watch = me->w->setup.watch;
    int64_t from = me->clock;
    me->sweep.idle = false;
    gw_sim_spend(me, seconds);
    if (watch && me->clock > from)
        watch->compute(watch->ctx, me->number, me->clock - from);
}

static int64_t sim_now_ns(const gw_fabric *f) {
    gw_sim_rank *me = gw_sim_me(f);
    me->sweep.idle = false;
    return me->clock;
}

static void sim_yield(const gw_fabric *f, int64_t ns) {
    gw_sim_rank *me = gw_sim_me(f);
    me->clock += ns > 0 ? ns : 0;
    me->sweep.idle &= ns <= 0;
    if (ns > 0 || me->fruitless == 0) /* it has not asked for anything in vain */
        gw_sim_catch_up(me);
    else
        gw_sim_rest(me);
}

void gw_sim_compute(const gw_fabric *f, double seconds) {
    sim_compute(gw_sim_me(f), seconds);
    gw_sim_sweep_begin(&gw_sim_me(f)->sweep, false);
}

const gw_sim_tally *gw_sim_so_far(const gw_fabric *f) {
    return &gw_sim_me(f)->w->tally;
}

void gw_sim_count(gw_fabric *f, gw_sim_tally *sent) {
    ((gw_sim_member *)f)->sent = sent;
}

static void sim_hear(const gw_fabric *f, gw_exchange_event event, const gw_exchange *x) {
    (void)f, (void)event, (void)x;
}

uint64_t gw_sim_ns(void) {
    return (uint64_t)sim_world->running->clock;
}

/* Codecs work on the core of the rank that runs. */
static void sim_coded(double seconds) {
    gw_sim_rank *me = sim_world->running;
    if (me->w->works > 0) /* a part of what is timed */
        return;
    me->w->tally.coded_s += seconds;
    sim_compute(me, seconds);
}

/* The outermost region is timed. Ranks take turns only where they wait, so nobody else works
 * meanwhile. */
static void sim_work(int begins) {
    gw_sim_world *w = sim_world;
    if (begins && w->works++ == 0)
        w->work_from_s = w->setup.clock_s();
    else if (!begins && --w->works == 0)
        sim_compute(w->running, (w->setup.clock_s() - w->work_from_s) / w->setup.speed);
}

/* ---- collectives ---- */

gw_err gw_sim_meet(gw_fabric *f, gw_err mine, int value, const void *shown,
                   const gw_sim_meeting **all) {
    gw_sim_rank *me = gw_sim_me(f);
    gw_sim_world *w = me->w;
    gw_sim_group *g = ((gw_sim_member *)f)->group;
    gw_sim_catch_up(me);
    me->sweep.idle = false;
    uint64_t met = g->met;
    gw_sim_meeting *m = &g->meeting[met % 2];
    *all = m;
    if (g->arrived == 0)
        *m = (gw_sim_meeting){.value = m->value, .shown = m->shown};
    if (m->e == GW_OK && mine != GW_OK)
        snprintf(m->text, sizeof m->text, "%s", gw_err_text());
    m->e = m->e == GW_OK ? mine : m->e;
    for (int r = f->rank; r < g->size; r += w->played) /* its likes bring the same */
        m->value[r] = value;
    if (m->shown)
        m->shown[f->rank] = shown;
    g->arrived++;
    if (g->arrived == (g->size < w->played ? g->size : w->played)) {
        g->arrived = 0;
        g->met++;
        for (int r = 0; r < g->size; r++)
            if (g->world[r] < w->played && w->rank[g->world[r]].waits)
                gw_sim_make_ready(&w->rank[g->world[r]]);
    }
    while (g->met == met && w->failed == GW_OK) {
        me->waits = true;
        gw_sim_leave(me);
    }
    return g->met == met ? gw_sim_state(w) : GW_OK;
}

static gw_err sim_agree(gw_fabric *f, gw_err mine) {
    const gw_sim_meeting *all;
    GW_TRY(gw_sim_meet(f, mine, 0, NULL, &all));
    return all->e == GW_OK ? GW_OK : gw_fail(all->e, "%s", all->text);
}

static gw_err sim_barrier(gw_fabric *f) {
    const gw_sim_meeting *all;
    return gw_sim_meet(f, GW_OK, 0, NULL, &all);
}

gw_err gw_sim_exchange(gw_fabric *f, size_t floats) {
    gw_sim_rank *me = gw_sim_me(f);
    const gw_sim_measured *m = &me->w->setup.measured;
    GW_TRY(sim_barrier(f));
    double seconds = m->seconds(m->of, floats);
    if (!m->beside) {
        gw_sim_compute(f, seconds);
        return GW_OK;
    }
    int64_t from = me->clock > me->passed ? me->clock : me->passed;
    me->passed = from + (int64_t)(1e9 * seconds + 0.5);
    me->later = me->passed - me->clock > 0 ? me->passed - me->clock : 1;
    return GW_OK;
}

static const gw_fabric_ops sim_ops;

static gw_err sim_join(gw_fabric **out, gw_sim_rank *me, gw_sim_group *g, int number) {
    gw_sim_member *m = NULL;
    GW_TRY(gw_alloc(&m, 1, sizeof *m));
    *m = (gw_sim_member){.head = {.ops = &sim_ops,
                                  .comm = MPI_COMM_NULL,
                                  .rank = number,
                                  .size = g->size,
                                  .world = g->world,
                                  .most_tag = INT_MAX,
                                  .lanes = &me->lanes},
                         .me = me,
                         .group = g};
    *out = &m->head;
    return GW_OK;
}

static gw_err sim_new_group(gw_sim_world *w, int size, gw_sim_group **out) {
    gw_sim_group *g = NULL;
    GW_TRY(gw_alloc(&g, 1, sizeof *g));
    *g = (gw_sim_group){
        .next = w->groups, .id = w->groups ? w->groups->id + 1 : 0, .size = size, .parent = -1};
    *out = w->groups = g;
    GW_TRY(gw_alloc(&g->world, 3 * (size_t)size, sizeof *g->world));
    g->meeting[0].value = g->world + size;
    g->meeting[1].value = g->world + 2 * size;
    if (!w->setup.carries)
        return GW_OK;
    GW_TRY(gw_alloc(&g->meeting[0].shown, 2 * (size_t)size, sizeof *g->meeting[0].shown));
    g->meeting[1].shown = g->meeting[0].shown + size;
    return GW_OK;
}

/* The first rank of a color makes the group: it is the latest of this meeting. */
static gw_err sim_split(gw_fabric *f, int color, gw_fabric **out) {
    const gw_sim_meeting *all;
    const gw_sim_group *from = ((gw_sim_member *)f)->group;
    gw_sim_world *w = gw_sim_me(f)->w;
    int size = 0, number = 0;
    *out = NULL;
    GW_TRY(gw_sim_meet(f, GW_OK, color, NULL, &all));
    if (color < 0)
        return GW_OK;
    for (int r = 0; r < f->size; r++) {
        size += all->value[r] == color;
        number += all->value[r] == color && r < f->rank;
    }
    gw_sim_group *to = w->groups;
    while (to && !(to->parent == from->id && to->then == from->met && to->color == color))
        to = to->next;
    if (!to) {
        GW_TRY(sim_new_group(w, size, &to));
        to->parent = from->id;
        to->then = from->met;
        to->color = color;
        for (int r = 0, i = 0; r < f->size; r++)
            if (all->value[r] == color)
                to->world[i++] = f->world[r];
    }
    GW_TRY(sim_join(out, gw_sim_me(f), to, number));
    gw_sim_count(*out, ((gw_sim_member *)f)->sent);
    return GW_OK;
}

static void sim_close(gw_fabric *f) {
    free(f);
}

/* Sums and broadcasts are for algorithms that measure, or share memory. */
static const gw_fabric_ops sim_ops = {.room = gw_sim_room,
                                      .isend = gw_sim_isend,
                                      .irecv = gw_sim_irecv,
                                      .test = gw_sim_test,
                                      .wait = gw_sim_wait,
                                      .quiet = gw_sim_quiet,
                                      .called = gw_sim_called,
                                      .now_ns = sim_now_ns,
                                      .yield = sim_yield,
                                      .tell = sim_hear,
                                      .agree = sim_agree,
                                      .barrier = sim_barrier,
                                      .split = sim_split,
                                      .close = sim_close};

/* ---- a world ---- */

/* The first thing that a rank does; it never returns from its last turn. */
static void sim_enter(void) {
    gw_sim_world *w = sim_world;
    gw_sim_rank *me = w->running;
    gw_fabric *f;
    gw_err e = sim_join(&f, me, w->all_ranks, me->number);
    GW_THEN(e, w->body(w->ctx, f));
    if (e != GW_OK)
        gw_sim_fail(w, e, "%s", gw_err_text());
    w->alive--;
    gw_sim_leave(me);
}

static void sim_take_turns(gw_sim_world *w) {
    while (w->n_ready > 0) {
        gw_sim_rank *r = w->running = w->ready[w->first];
        w->first = (w->first + 1) % w->played;
        w->n_ready--;
        r->ready = false;
        if (r->dozes && !gw_sim_doze(r))
            continue;
        if (w->setup.turn)
            w->setup.turn(w->ctx, r->number);
        gw_sim_switch(&w->main, &r->context);
    }
}

/* All that happens at the next moment. */
static gw_err sim_happen(gw_sim_world *w) {
    if (w->failed == GW_OK)
        GW_TRY(gw_flows_settle(&w->flows, w->now));
    gw_event *next = gw_events_take(&w->flows.events);
    if (!next && w->failed == GW_OK) { /* nothing will happen, and somebody waits */
        const gw_sim_message *m = gw_sim_lost(w);
        int r = 0;
        if (m)
            return gw_fail(
                GW_ERR_INTERNAL,
                "simulate: no rank can go on: rank %d waits for a message of rank %d (tag %d)",
                m->group->world[m->end[1]], m->group->world[m->end[0]], m->tag);
        while (!w->rank[r].waits)
            r++;
        return gw_fail(GW_ERR_INTERNAL, "simulate: no rank can go on: rank %d waits for all others",
                       r);
    }
    if (next && next->at > GW_SIM_HORIZON && w->failed == GW_OK)
        return gw_fail(GW_ERR_UNSUPPORTED, "simulate: it takes more than 104 days (2^53 ns): give "
                                           "faster links, fewer bytes or fewer steps");
    w->now = next ? (int64_t)next->at : w->now;
    for (; next; next = gw_events_next(&w->flows.events, (double)w->now)) {
        gw_flow *x = (gw_flow *)next;
        w->tally.events++;
        if (next->of == GW_EVENT_LINK)
            GW_TRY(gw_flows_end(&w->flows, (gw_link *)next, w->now, &x));
        if (next->of == GW_EVENT_RANK)
            gw_sim_make_ready((gw_sim_rank *)next);
        else
            GW_TRY(gw_sim_move(w, (gw_sim_message *)x));
    }
    return GW_OK;
}

static size_t sim_stack(const gw_sim_world *w) {
    return w->setup.stack ? w->setup.stack : STACK;
}

/* getcontext() may return twice, so that no variable of a caller's may change around it. */
static void sim_give_stack(gw_sim_rank *r, char *stack) {
    getcontext(&r->context.first);
    r->context.first.uc_stack = (stack_t){.ss_sp = stack, .ss_size = sim_stack(r->w)};
    makecontext(&r->context.first, sim_enter, 0);
}

static gw_err sim_open(gw_sim_world *w) {
    const gw_sim_setup *s = &w->setup;
    int ranks = w->played = s->played ? s->played : s->ranks, links = gw_network_links(s->network);
    size_t each = sim_stack(w) + GUARD, bytes = each * (size_t)ranks;
    int hosts = (s->ranks + s->per_host - 1) / s->per_host;
    GW_TRY(gw_flows_open(&w->flows, links + hosts));
    for (int i = 0; i < w->flows.n; i++)
        w->flows.link[i].capacity =
            1e-9 * (i < links ? gw_network_bytes_per_s(s->network, i) : s->memory.bytes_per_s);
    GW_TRY(gw_alloc(&w->rank, (size_t)ranks, sizeof *w->rank));
    GW_TRY(gw_alloc(&w->ready, (size_t)ranks, sizeof *w->ready));
    GW_TRY(sim_new_group(w, s->ranks, &w->all_ranks));
    for (int i = 0; i < s->ranks; i++)
        w->all_ranks->world[i] = i;
    w->stacks = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (w->stacks == MAP_FAILED)
        return gw_fail(GW_ERR_NOMEM, "simulate: no memory for the stacks of %d ranks", ranks);
    for (int i = 0; i < ranks; i++) {
        gw_sim_rank *r = &w->rank[i];
        char *stack = w->stacks + (size_t)i * each + GUARD;
        if (mprotect(stack, sim_stack(w), PROT_READ | PROT_WRITE) != 0)
            return gw_fail(GW_ERR_NOMEM, "simulate: no memory for the stacks of %d ranks", ranks);
        *r = (gw_sim_rank){.w = w, .number = i, .wakes.of = GW_EVENT_RANK};
        sim_give_stack(r, stack);
        gw_sim_make_ready(r);
    }
    w->alive = ranks;
    return GW_OK;
}

static void sim_free(gw_sim_world *w) {
    if (w->stacks && w->stacks != MAP_FAILED)
        munmap(w->stacks, (sim_stack(w) + GUARD) * (size_t)w->played);
    for (gw_sim_group *g = w->groups, *next; g; g = next) {
        next = g->next;
        free(g->world);
        free(g->meeting[0].shown);
        free(g);
    }
    gw_sim_free_messages(w);
    gw_flows_close(&w->flows);
    for (int i = 0; w->rank && i < w->played; i++) {
        free(w->rank[i].sweep.of);
        free(w->rank[i].sweep.news);
        free(w->rank[i].sweep.part);
    }
    free(w->rank);
    free(w->ready);
}

gw_err gw_sim_run(const gw_sim_setup *setup, gw_err (*body)(void *ctx, gw_fabric *fabric),
                  void *ctx) {
    gw_sim_world w = {.setup = *setup, .body = body, .ctx = ctx};
    sim_world = &w;
    gw_err e = sim_open(&w);
    gw_probe_spend = sim_coded;
    gw_probe_work = setup->clock_s ? sim_work : NULL;
    while (e == GW_OK && w.alive > 0) {
        sim_take_turns(&w);
        gw_err ends = w.alive > 0 ? sim_happen(&w) : GW_OK;
        if (ends != GW_OK)
            gw_sim_fail(&w, ends, "%s", gw_err_text());
    }
    gw_probe_spend = NULL;
    gw_probe_work = NULL;
    if (e == GW_OK && w.failed == GW_OK && w.open.n > 0)
        gw_sim_fail(&w, GW_ERR_INTERNAL, "simulate: %zu messages are left behind", w.open.n);
    GW_THEN(e, gw_sim_state(&w));
    sim_free(&w);
    return e;
}
