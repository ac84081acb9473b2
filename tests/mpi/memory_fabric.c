#include "memory_fabric.h"

#include "base/mem.h"
#include "base/rng.h"

#include <omp.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    PATIENCE = 4000, /* turns without an event: no rank can go on */
    WORTHLESS = 0xff /* of floats, a NaN */
};

/* A message, as one of its ends has posted it. Lives as long as the world. */
typedef struct flight {
    struct flight *next;
    bool sends, eager; /* eager: complete before it is received */
    bool moved, complete;
    char *data, *kept; /* kept, of what is sent: a copy */
    size_t cap, *len;  /* cap of what is sent: its length */
    int group, from, to, tag;
    int64_t due;
    struct flight *other; /* end; NULL: not posted yet */
} flight;

struct gw_posts {
    int room;
    flight *flight[]; /* NULL: none under way */
};

/* What a rank brings to a meeting. */
typedef struct word {
    int value;
    gw_err e;
    char text[256];
    const void *data;
} word;

typedef struct group {
    struct group *next;
    int id, size, arrived;
    uint64_t met; /* meetings so far */
    word words[2][MEMORY_RANKS];
    int parent, color; /* what it was split off, */
    uint64_t then;     /* and in which meeting */
} group;

typedef struct world world;

typedef struct rank {
    world *w;
    pthread_t thread;
    sem_t go; /* its turn: one rank runs at a time */
    int number, lanes;
    int runs; /* schedules under way */
    bool ended;
} rank;

struct world {
    rank rank[MEMORY_RANKS];
    int ranks, alive;
    uint64_t seed, drawn;
    int calm;                 /* of 8 turns, so many go to the same rank again */
    int slow, eager;          /* turns of a message at most; of 2 sends, so many */
    int64_t turn, last_event; /* turns taken; no time passes here */
    gw_err failed;
    char text[512];
    flight *first, **end;
    flight *open; /* all before it have their other ends */
    group *groups;
    gw_err (*body)(void *ctx, gw_fabric *fabric);
    void *ctx;
};

/* What a rank sees of a group. */
typedef struct member {
    gw_fabric head;
    rank *me;
    group *group;
} member;

static int memory_draw(world *w, int below) {
    return (int)(gw_rng_u64(w->seed, w->drawn++) % (uint64_t)below);
}

static world *memory_world(const gw_fabric *f) {
    return ((const member *)f)->me->w;
}

static gw_err memory_state(const world *w) {
    return w->failed == GW_OK ? GW_OK : gw_fail(w->failed, "%s", w->text);
}

/* The first failure is everybody's. */
__attribute__((format(printf, 3, 4))) static gw_err memory_fail(world *w, gw_err e,
                                                                const char *format, ...) {
    va_list args;
    va_start(args, format);
    if (w->failed == GW_OK)
        vsnprintf(w->text, sizeof w->text, format, args);
    va_end(args);
    w->failed = w->failed == GW_OK ? e : w->failed;
    return memory_state(w);
}

/* ---- turns ---- */

/* Who goes on, of all that have not ended. */
static rank *memory_next(world *w) {
    int nth = memory_draw(w, w->alive), i = 0;
    while (w->rank[i].ended || nth-- > 0)
        i++;
    return &w->rank[i];
}

static void memory_await_turn(rank *me) {
    while (sem_wait(&me->go) != 0) /* a signal */
        ;
}

/* `away`: whoever is drawn goes on, however calm it is. */
static gw_err memory_turn(const gw_fabric *f, bool away) {
    rank *me = ((const member *)f)->me;
    world *w = me->w;
    GW_TRY(memory_state(w));
    if (++w->turn - w->last_event > PATIENCE)
        return memory_fail(w, GW_ERR_INTERNAL, "no rank can go on");
    rank *next = away || memory_draw(w, 8) >= w->calm ? memory_next(w) : me;
    if (next != me) {
        sem_post(&next->go);
        memory_await_turn(me);
    }
    return memory_state(w);
}

static int64_t memory_now_ns(const gw_fabric *f) {
    return 1000 * memory_world(f)->turn;
}

static void memory_yield(const gw_fabric *f, int64_t ns) {
    (void)ns;
    memory_turn(f, true); /* a failure meets the next call that can tell it */
}

static void memory_tell(const gw_fabric *f, gw_exchange_event event, const gw_exchange *x) {
    rank *me = ((const member *)f)->me;
    (void)x;
    me->runs += (event == GW_EXCHANGE_START) - (event == GW_EXCHANGE_DONE);
}

/* ---- messages ---- */

static gw_err memory_room(int n, gw_posts **out) {
    gw_posts *p = NULL;
    GW_TRY(gw_alloc(&p, 1, sizeof *p + (size_t)n * sizeof p->flight[0]));
    p->room = n;
    *out = p;
    return GW_OK;
}

/* The other end that was posted first: messages of one tag do not overtake each other. */
static gw_err memory_match(world *w, flight *x) {
    if (!w->open)
        w->open = w->first;
    while (w->open->other)
        w->open = w->open->next;
    flight *y = w->open;
    while (y && (y->sends == x->sends || y->other || y->group != x->group || y->from != x->from ||
                 y->to != x->to || y->tag != x->tag))
        y = y->next;
    if (!y)
        return GW_OK;
    x->other = y;
    y->other = x;
    size_t sent = x->sends ? x->cap : y->cap, room = x->sends ? y->cap : x->cap;
    return sent <= room ? GW_OK
                        : memory_fail(w, GW_ERR_INTERNAL,
                                      "rank %d sends %zu bytes to rank %d, which receives %zu",
                                      x->from, sent, x->to, room);
}

static gw_err memory_post(gw_fabric *f, gw_posts *p, int i, const flight *what) {
    world *w = memory_world(f);
    flight *x = NULL;
    GW_TRY(memory_state(w));
    if (i >= p->room || p->flight[i] || what->from >= f->size || what->to >= f->size ||
        what->tag > f->most_tag)
        return memory_fail(w, GW_ERR_INTERNAL, "rank %d: message %d from %d to %d, tag %d", f->rank,
                           i, what->from, what->to, what->tag);
    GW_TRY(gw_alloc(&x, 1, sizeof *x));
    *x = *what;
    x->group = ((member *)f)->group->id;
    x->due = w->turn + memory_draw(w, w->slow);
    x->eager = memory_draw(w, 2) < w->eager;
    *w->end = x;
    w->end = &x->next;
    if (x->sends) {
        GW_TRY(gw_alloc(&x->kept, x->cap, 1));
        memcpy(x->kept, x->data, x->cap);
    } else {
        memset(x->data, WORTHLESS, x->cap);
    }
    p->flight[i] = x;
    w->last_event = w->turn;
    GW_TRY(memory_match(w, x));
    return memory_turn(f, false);
}

static gw_err memory_isend(gw_fabric *f, gw_posts *p, int i, const void *data, size_t len, int peer,
                           int tag) {
    return memory_post(f, p, i,
                       &(flight){.sends = true,
                                 .data = (char *)(uintptr_t)data,
                                 .cap = len,
                                 .from = f->rank,
                                 .to = peer,
                                 .tag = tag});
}

static gw_err memory_irecv(gw_fabric *f, gw_posts *p, int i, void *data, size_t cap, int peer,
                           int tag, size_t *len) {
    return memory_post(
        f, p, i,
        &(flight){.data = data, .cap = cap, .len = len, .from = peer, .to = f->rank, .tag = tag});
}

static gw_err memory_move(world *w, flight *in) {
    for (size_t i = 0; i < in->cap && !in->moved; i++)
        if ((unsigned char)in->data[i] != WORTHLESS)
            return memory_fail(w, GW_ERR_INTERNAL, "rank %d wrote to what arrives from rank %d",
                               in->to, in->from);
    if (!in->moved)
        memcpy(in->data, in->other->kept, in->other->cap);
    in->moved = true;
    return GW_OK;
}

/* What has come moves, also while other messages of the round are on their way. */
static gw_err memory_ready(world *w, flight *x, bool *ready) {
    *ready = w->turn >= x->due && (x->other || (x->sends && x->eager));
    return *ready && !x->sends ? memory_move(w, x) : GW_OK;
}

static gw_err memory_complete(world *w, flight *x) {
    x->complete = true;
    if (!x->sends)
        *x->len = x->other->cap;
    else if (memcmp(x->kept, x->data, x->cap) != 0)
        return memory_fail(w, GW_ERR_INTERNAL, "rank %d wrote to what it sends to rank %d", x->from,
                           x->to);
    return GW_OK;
}

static gw_err memory_test(gw_fabric *f, gw_posts *p, int first, int n, bool *done) {
    world *w = memory_world(f);
    bool ready;
    GW_TRY(memory_turn(f, false));
    *done = true;
    for (int i = first; i < first + n; i++) {
        GW_TRY(memory_ready(w, p->flight[i], &ready));
        *done = *done && ready;
    }
    for (int i = first; *done && i < first + n; i++) {
        GW_TRY(memory_complete(w, p->flight[i]));
        p->flight[i] = NULL;
        w->last_event = w->turn;
    }
    return GW_OK;
}

static gw_err memory_wait(gw_fabric *f, gw_posts *p, int first, int n) {
    for (bool done = false; !done;)
        GW_TRY(memory_test(f, p, first, n, &done));
    return GW_OK;
}

static gw_err memory_called(gw_fabric *f, int tag, bool *called) {
    world *w = memory_world(f);
    GW_TRY(memory_turn(f, false));
    *called = false;
    for (const flight *x = w->first; x && !*called; x = x->next)
        *called = x->sends && !x->other && x->group == ((member *)f)->group->id &&
                  x->to == f->rank && x->tag == tag && w->turn >= x->due;
    return GW_OK;
}

/* ---- collectives ---- */

/* What all have brought: there until this rank comes to the next meeting. */
static gw_err memory_meet(gw_fabric *f, const word *mine, const word **all) {
    group *g = ((member *)f)->group;
    world *w = memory_world(f);
    GW_TRY(memory_turn(f, false));
    uint64_t met = g->met;
    word *words = g->words[met % 2];
    words[f->rank] = *mine;
    w->last_event = w->turn;
    if (++g->arrived == g->size) {
        g->arrived = 0;
        g->met++;
    }
    while (g->met == met)
        GW_TRY(memory_turn(f, true));
    *all = words;
    return GW_OK;
}

static gw_err memory_agree(gw_fabric *f, gw_err mine) {
    const word *all;
    word own = {.e = mine};
    snprintf(own.text, sizeof own.text, "%s", gw_err_text());
    GW_TRY(memory_meet(f, &own, &all));
    for (int r = 0; r < f->size; r++)
        if (all[r].e != GW_OK)
            return gw_fail(all[r].e, "%s", all[r].text);
    return GW_OK;
}

static gw_err memory_sum(gw_fabric *f, int *x) {
    const word *all;
    GW_TRY(memory_meet(f, &(word){.value = *x}, &all));
    *x = 0;
    for (int r = 0; r < f->size; r++)
        *x += all[r].value;
    return GW_OK;
}

static gw_err memory_barrier(gw_fabric *f) {
    const word *all;
    return memory_meet(f, &(word){0}, &all);
}

static gw_err memory_bcast(gw_fabric *f, void *data, size_t bytes, int root) {
    const word *all;
    GW_TRY(memory_meet(f, &(word){.data = data}, &all));
    if (f->rank != root)
        memcpy(data, all[root].data, bytes);
    return memory_barrier(f); /* until then the root keeps it */
}

static const gw_fabric_ops memory_ops;

static gw_err memory_join(gw_fabric **out, rank *me, group *g, int number, int size) {
    member *m = NULL;
    GW_TRY(gw_alloc(&m, 1, sizeof *m));
    m->me = me;
    m->group = g;
    m->head = (gw_fabric){.ops = &memory_ops,
                          .comm = MPI_COMM_NULL,
                          .rank = number,
                          .size = size,
                          .most_tag = 32767,
                          .lanes = &me->lanes};
    *out = &m->head;
    return gw_alloc(&m->head.world, (size_t)size, sizeof *m->head.world);
}

/* The group that was split off `from` for `color` in its last meeting. */
static gw_err memory_group(world *w, const group *from, int color, int size, group **out) {
    int id = 0;
    group **at = &w->groups;
    for (; *at; at = &(*at)->next, id++)
        if ((*at)->parent == from->id && (*at)->then == from->met && (*at)->color == color) {
            *out = *at;
            return GW_OK;
        }
    GW_TRY(gw_alloc(at, 1, sizeof **at));
    **at = (group){.id = id, .size = size, .parent = from->id, .color = color, .then = from->met};
    *out = *at;
    return GW_OK;
}

static gw_err memory_split(gw_fabric *f, int color, gw_fabric **out) {
    const word *all;
    member *m = (member *)f;
    group *g;
    *out = NULL;
    GW_TRY(memory_meet(f, &(word){.value = color}, &all));
    if (color < 0)
        return GW_OK;
    int size = 0, number = 0;
    for (int r = 0; r < f->size; r++) {
        size += all[r].value == color;
        number += all[r].value == color && r < f->rank;
    }
    GW_TRY(memory_group(m->me->w, m->group, color, size, &g));
    GW_TRY(memory_join(out, m->me, g, number, size));
    for (int r = 0, i = 0; r < f->size; r++)
        if (all[r].value == color)
            (*out)->world[i++] = f->world[r];
    return GW_OK;
}

static void memory_close(gw_fabric *f) {
    free(f->world);
    free(f);
}

static const gw_fabric_ops memory_ops = {.room = memory_room,
                                         .isend = memory_isend,
                                         .irecv = memory_irecv,
                                         .test = memory_test,
                                         .wait = memory_wait,
                                         .called = memory_called,
                                         .now_ns = memory_now_ns,
                                         .yield = memory_yield,
                                         .tell = memory_tell,
                                         .agree = memory_agree,
                                         .sum = memory_sum,
                                         .bcast = memory_bcast,
                                         .barrier = memory_barrier,
                                         .split = memory_split,
                                         .close = memory_close};

/* ---- a world ---- */

static gw_err memory_begin_rank(rank *me) {
    world *w = me->w;
    gw_fabric *f;
    GW_TRY(memory_join(&f, me, w->groups, me->number, w->ranks));
    for (int r = 0; r < w->ranks; r++)
        f->world[r] = r;
    return w->body(w->ctx, f);
}

static void *memory_rank(void *arg) {
    rank *me = arg;
    world *w = me->w;
    omp_set_num_threads(1);
    memory_await_turn(me);
    gw_err e = memory_begin_rank(me);
    if (e != GW_OK)
        memory_fail(w, e, "rank %d: %s", me->number, gw_err_text());
    else if (me->runs != 0)
        memory_fail(w, GW_ERR_INTERNAL, "rank %d leaves %d schedules behind", me->number, me->runs);
    me->ended = true;
    w->last_event = w->turn;
    if (--w->alive > 0)
        sem_post(&memory_next(w)->go);
    return NULL;
}

static void memory_clear(world *w) {
    for (flight *x = w->first, *next; x; x = next) {
        next = x->next;
        if (!x->complete || !x->other)
            memory_fail(w, GW_ERR_INTERNAL, "a message from rank %d to rank %d is left behind",
                        x->from, x->to);
        free(x->kept);
        free(x);
    }
    for (group *g = w->groups, *next; g; g = next) {
        next = g->next;
        free(g);
    }
}

gw_err memory_run(int ranks, uint64_t seed, gw_err (*body)(void *ctx, gw_fabric *fabric),
                  void *ctx) {
    static const int calm[] = {0, 4, 7}, slow[] = {1, 8, 64};
    world *w = NULL;
    GW_TRY(gw_alloc(&w, 1, sizeof *w));
    *w = (world){
        .ranks = ranks, .alive = ranks, .seed = seed, .end = &w->first, .body = body, .ctx = ctx};
    w->calm = calm[memory_draw(w, 3)];
    w->slow = slow[memory_draw(w, 3)];
    w->eager = memory_draw(w, 3);
    GW_TRY(gw_alloc(&w->groups, 1, sizeof *w->groups));
    *w->groups = (group){.size = ranks, .parent = -1};
    cpu_set_t cores, one; /* one rank runs at a time: handing over is fastest within a core */
    CPU_ZERO(&one);
    CPU_SET(sched_getcpu(), &one);
    sched_getaffinity(0, sizeof cores, &cores);
    sched_setaffinity(0, sizeof one, &one);
    for (int r = 0; r < ranks; r++) {
        w->rank[r] = (rank){.w = w, .number = r};
        sem_init(&w->rank[r].go, 0, 0);
        if (pthread_create(&w->rank[r].thread, NULL, memory_rank, &w->rank[r]) != 0)
            abort(); /* those that were started would wait for ever */
    }
    sched_setaffinity(0, sizeof cores, &cores);
    sem_post(&memory_next(w)->go);
    for (int r = 0; r < ranks; r++)
        pthread_join(w->rank[r].thread, NULL);
    memory_clear(w);
    gw_err e = memory_state(w);
    free(w);
    return e;
}
