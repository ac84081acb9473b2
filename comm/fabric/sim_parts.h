/** What a simulated world is made of, for the files that have its ranks take turns (sim_rank.c),
 *  its messages move (sim_messages.c) and its time pass (sim_world.c). Nobody else includes
 *  this. */
#ifndef GW_COMM_FABRIC_SIM_PARTS_H
#define GW_COMM_FABRIC_SIM_PARTS_H

#include "comm/fabric/flows.h"
#include "comm/fabric/sim.h"

#include <setjmp.h>
#include <ucontext.h>

typedef struct gw_sim_world gw_sim_world;

/** The last moment, in ns, up to which the doubles of events count every one. */
#define GW_SIM_HORIZON 0x1p53

/* Of one message; as many as there is room for lie behind each other. The first of a range that is
 * tested stands for it. */
struct gw_posts {
    struct gw_sim_message *of, *fresh; /* fresh: of the range, arrived since the last look */
    int n, left;                       /* of the range: 0, not tested yet; to be complete */
    int place;                         /* in the sweep */
    bool receives;
};

/** The ranges of messages that a rank has tested since it last rested or computed. A rank that did
 *  nothing but test in vain would repeat these tests at each arrival until one of them succeeds.
 *  The engine repeats them for it, at the same moments, and wakes it when one succeeds. */
typedef struct gw_sim_sweep {
    gw_posts **of;
    uint64_t *news; /* bits: what may have something new */
    struct {
        const void *who; /* tests from here on, up to the next one's */
        int from;
    } * part;
    int n, parts, room; /* room: of each */
    int last_parts;     /* of the sweep before, where this one has not come to yet */
    int at;             /* without the rank: the next range; */
    int known;          /* with it again, so many are known: the last one of them is complete */
    bool idle;          /* it did nothing else */
} gw_sim_sweep;

/** Where a stack goes on. */
typedef struct gw_sim_context {
    ucontext_t first; /* at its beginning, */
    jmp_buf then;     /* and once it was left */
    bool left;
} gw_sim_context;

typedef struct gw_sim_rank {
    gw_event wakes; /* first: when it goes on */
    gw_sim_world *w;
    gw_sim_context context;
    int number, lanes;
    int64_t clock;           /* of this rank: not before the world's while it runs */
    bool waits, ready, news; /* for news: one of its messages moved on since it looked */
    bool dozes;              /* what it would do is done without it */
    gw_sim_sweep sweep;
    long fruitless;
    double owed;    /* part of a ns that its clock lacks */
    int64_t passed; /* when its last measured exchange has passed its link */
    int64_t later;  /* its next message stands for one: it arrives so much later; 0: it does not */
} gw_sim_rank;

typedef struct gw_sim_group gw_sim_group;

/* A message, from when one of its ends has posted it until both have seen that it is complete. */
typedef struct gw_sim_message {
    gw_flow flow;   /* first: what happens next to it */
    gw_hashed open; /* one end has posted it, and the other has not */
    struct gw_sim_message *next, *older;
    gw_sim_group *group;
    gw_posts *range[2]; /* by which its ends test for it; NULL: they did not yet */
    int end[2], tag;    /* sender and receiver, by their ranks in the group */
    bool posted[2], seen[2];
    enum { STARTS, FLOWS, ARRIVES, ARRIVED } state; /* once it is sent */
    bool taken;                                     /* by the receiver's core */
    /* A world that carries copies `data` to `to`. `copy` holds it once the sender has its memory
     * back and nobody receives yet. */
    const void *data;
    void *to, *copy;
    const gw_sim_link *link;
    gw_line *line;
    size_t bytes, cap, *len;
    int64_t later;   /* it arrives so much later than its link says */
    int64_t post[2]; /* the watch's */
} gw_sim_message;

/* What all ranks of a group have brought. */
typedef struct gw_sim_meeting {
    gw_err e; /* the first that came */
    char text[256];
    int *value;         /* [rank] */
    const void **shown; /* [rank]; NULL: the world carries nothing */
} gw_sim_meeting;

struct gw_sim_group {
    gw_sim_group *next;
    int id, size, arrived, *world;
    uint64_t met; /* meetings so far; the last two are kept */
    gw_sim_meeting meeting[2];
    int parent, color; /* what it was split off, */
    uint64_t then;     /* and in which meeting */
};

struct gw_sim_world {
    gw_sim_setup setup;
    gw_sim_tally tally;
    gw_flows flows;
    int64_t now;
    int played;
    gw_sim_rank *rank, *running;
    int works;           /* regions of a strategy's own work that have begun, */
    double work_from_s;  /* the first of them then, by setup.clock_s */
    gw_sim_rank **ready; /* a ring */
    int first, n_ready, alive;
    char *stacks;
    gw_sim_context main;
    gw_sim_group *groups, *all_ranks;
    gw_hash open;               /* messages posted by one end */
    gw_sim_message *all, *idle; /* all: ever made; idle: to be used again */
    gw_err failed;
    char text[512];
    gw_err (*body)(void *ctx, gw_fabric *fabric);
    void *ctx;
};

/* What a rank sees of a group. */
typedef struct gw_sim_member {
    gw_fabric head;
    gw_sim_rank *me;
    gw_sim_group *group;
    gw_sim_tally *sent; /* somebody's count; NULL: nobody's */
} gw_sim_member;

static inline gw_sim_rank *gw_sim_me(const gw_fabric *f) {
    return ((const gw_sim_member *)f)->me;
}

/** GW_OK, or what is everybody's failure; it fails, unless it did before. */
gw_err gw_sim_state(const gw_sim_world *w);
gw_err gw_sim_fail(gw_sim_world *w, gw_err e, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/** Let it go on in one of the next turns; go from one stack to another; give up this turn. */
void gw_sim_make_ready(gw_sim_rank *r);
void gw_sim_switch(gw_sim_context *from, gw_sim_context *to);
void gw_sim_leave(gw_sim_rank *me);

/** This rank's core works; it waits until its clock is the world's; it waits for news. */
void gw_sim_spend(gw_sim_rank *me, double seconds);
void gw_sim_catch_up(gw_sim_rank *me);
void gw_sim_rest(gw_sim_rank *me);
/** Here is news for it. */
void gw_sim_tell(gw_sim_rank *r);
/** All ranks of a group meet; what they have brought is there until the next meeting but one. */
gw_err gw_sim_meet(gw_fabric *f, gw_err mine, int value, const void *shown,
                   const gw_sim_meeting **all);

/** What is to happen to a message happens. */
gw_err gw_sim_move(gw_sim_world *w, gw_sim_message *m);
void gw_sim_free_messages(gw_sim_world *w);
/** Of the receives that nobody sends to one of the lowest rank; NULL: there is none. */
const gw_sim_message *gw_sim_lost(const gw_sim_world *w);

/** Repeat the tests of a resting rank. True: one succeeded, or the world failed, and the rank must
 *  run. */
bool gw_sim_doze(gw_sim_rank *me);
/** Begin a sweep; add a range that was tested and is not complete. */
void gw_sim_sweep_begin(gw_sim_sweep *s, bool idle);
void gw_sim_sweep_add(gw_sim_sweep *s, gw_posts *range);
/** Note that the range may have changed since its last test. */
void gw_sim_sweep_news(gw_sim_sweep *s, const gw_posts *range);
/** Is the range complete? What has arrived of it takes the core of whoever looks. */
static inline bool gw_sim_look(gw_sim_rank *me, gw_posts *range) {
    for (gw_sim_message *m; (m = range->fresh); range->left--) {
        range->fresh = m->next;
        if (!m->taken)
            gw_sim_spend(me, m->link->overhead_s + m->link->byte_s * (double)m->bytes);
        m->taken = true;
    }
    return range->left == 0;
}

/** Of gw_fabric_ops. */
gw_err gw_sim_room(int n, gw_posts **out);
gw_err gw_sim_isend(gw_fabric *f, gw_posts *p, int i, const void *data, size_t len, int peer,
                    int tag);
gw_err gw_sim_irecv(gw_fabric *f, gw_posts *p, int i, void *data, size_t cap, int peer, int tag,
                    size_t *len);
gw_err gw_sim_test(gw_fabric *f, gw_posts *p, int first, int n, bool *done);
gw_err gw_sim_wait(gw_fabric *f, gw_posts *p, int first, int n);
bool gw_sim_quiet(gw_fabric *f, const void *who);
gw_err gw_sim_called(gw_fabric *f, int tag, bool *called);

#endif
