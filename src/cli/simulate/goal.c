#include "cli/simulate/goal.h"

#include "base/mem.h"

#include <inttypes.h>
#include <stdlib.h>

/* A label, and before it what it waits for: a computation or join, or nothing (-1). */
typedef struct goal_op {
    enum { SEND, RECV, CALC, JOINS } kind; /* JOINS: one more label that the next CALC waits for */
    int peer;
    int64_t amount, after; /* bytes, ns, label */
    uint32_t tag;
} goal_op;

typedef struct goal_rank {
    goal_op *op;
    int64_t n, room,
        last;   /* last: the join or computation that all later ones wait for; -1: none */
    bool joins; /* JOINS came since */
} goal_rank;

struct gw_goal {
    int ranks;
    uint32_t tags;
    bool full; /* memory ran out */
    goal_rank of[];
};

gw_err gw_goal_open(gw_goal **out, int ranks) {
    gw_goal *g = NULL;
    GW_TRY(gw_alloc(&g, 1, sizeof *g + (size_t)ranks * sizeof g->of[0]));
    g->ranks = ranks;
    for (int r = 0; r < ranks; r++)
        g->of[r].last = -1;
    *out = g;
    return GW_OK;
}

void gw_goal_close(gw_goal *g) {
    for (int r = 0; g && r < g->ranks; r++)
        free(g->of[r].op);
    free(g);
}

static int64_t goal_add(gw_goal *g, goal_rank *r, goal_op op) {
    if (r->n == r->room) {
        int64_t room = r->room ? 2 * r->room : 64;
        goal_op *wide = realloc(r->op, (size_t)room * sizeof *wide);
        g->full |= !wide;
        if (!wide)
            return 0;
        r->op = wide;
        r->room = room;
    }
    op.after = op.kind == JOINS ? op.after : r->last;
    r->op[r->n] = op;
    return r->n++;
}

static void goal_join(gw_goal *g, goal_rank *r, int64_t ns) {
    r->last = goal_add(g, r, (goal_op){.kind = CALC, .amount = ns});
    r->joins = false;
}

static void goal_compute(void *ctx, int rank, int64_t ns) {
    gw_goal *g = ctx;
    goal_join(g, &g->of[rank], ns);
}

static int64_t goal_post(void *ctx, int rank, bool sends, int peer) {
    gw_goal *g = ctx;
    goal_rank *r = &g->of[rank];
    if (r->joins)
        goal_join(g, r, 0);
    return goal_add(g, r, (goal_op){.kind = sends ? SEND : RECV, .peer = peer});
}

static void goal_match(void *ctx, const int rank[2], const int64_t post[2], size_t bytes) {
    gw_goal *g = ctx;
    uint32_t tag = g->tags++;
    for (int end = 0; end < 2 && !g->full; end++) {
        goal_op *op = &g->of[rank[end]].op[post[end]];
        op->amount = (int64_t)bytes;
        op->tag = tag;
    }
}

static void goal_seen(void *ctx, int rank, int64_t post) {
    gw_goal *g = ctx;
    g->of[rank].joins = true;
    goal_add(g, &g->of[rank], (goal_op){.kind = JOINS, .after = post});
}

gw_sim_watch gw_goal_watch(gw_goal *g) {
    return (gw_sim_watch){g, goal_compute, goal_post, goal_match, goal_seen};
}

static void goal_print_rank(const goal_rank *r, FILE *to) {
    int64_t joins = 0; /* where the labels begin that the next CALC waits for */
    for (int64_t i = 0; i < r->n; i++) {
        const goal_op *o = &r->op[i];
        if (o->kind == SEND)
            fprintf(to, "l%" PRId64 ": send %" PRId64 "b to %d tag %u\n", i, o->amount, o->peer,
                    o->tag);
        else if (o->kind == RECV)
            fprintf(to, "l%" PRId64 ": recv %" PRId64 "b from %d tag %u\n", i, o->amount, o->peer,
                    o->tag);
        else if (o->kind == CALC)
            fprintf(to, "l%" PRId64 ": calc %" PRId64 "\n", i, o->amount);
        if (o->kind != JOINS && o->after >= 0)
            fprintf(to, "l%" PRId64 " requires l%" PRId64 "\n", i, o->after);
        for (; o->kind == CALC && joins < i; joins++)
            if (r->op[joins].kind == JOINS)
                fprintf(to, "l%" PRId64 " requires l%" PRId64 "\n", i, r->op[joins].after);
    }
}

gw_err gw_goal_write(const gw_goal *g, FILE *to) {
    if (g->full)
        return gw_fail(GW_ERR_NOMEM, "simulate: out of memory");
    fprintf(to, "num_ranks %d\n", g->ranks);
    for (int r = 0; r < g->ranks; r++) {
        fprintf(to, "rank %d {\n", r);
        goal_print_rank(&g->of[r], to);
        fprintf(to, "}\n");
    }
    return GW_OK;
}
