#include "cli/simulate/graph.h"

#include "base/mem.h"

#include <inttypes.h>
#include <stdlib.h>

gw_err gw_graph_open(gw_graph **out, int ranks) {
    gw_graph *g = NULL;
    GW_TRY(gw_alloc(&g, 1, sizeof *g + (size_t)ranks * sizeof g->of[0]));
    g->ranks = ranks;
    for (int r = 0; r < ranks; r++)
        g->of[r].last = -1;
    *out = g;
    return GW_OK;
}

void gw_graph_close(gw_graph *g) {
    for (int r = 0; g && r < g->ranks; r++)
        free(g->of[r].op);
    free(g);
}

static int64_t graph_add(gw_graph *g, gw_graph_rank *r, gw_graph_op op) {
    if (r->n == r->room) {
        int64_t room = r->room ? 2 * r->room : 64;
        gw_graph_op *wide = realloc(r->op, (size_t)room * sizeof *wide);
        g->full |= !wide;
        if (!wide)
            return 0;
        r->op = wide;
        r->room = room;
    }
    op.after = op.kind == GW_GRAPH_JOINS ? op.after : r->last;
    r->op[r->n] = op;
    return r->n++;
}

static void graph_compute(void *ctx, int rank, int64_t ns) {
    gw_graph *g = ctx;
    gw_graph_rank *r = &g->of[rank];
    r->last = graph_add(g, r, (gw_graph_op){.kind = GW_GRAPH_CALC, .amount = ns});
}

static int64_t graph_post(void *ctx, int rank, bool sends, int peer) {
    gw_graph *g = ctx;
    gw_graph_rank *r = &g->of[rank];
    if (gw_graph_first(r, r->n) < r->n)
        graph_compute(ctx, rank, 0);
    int kind = sends ? GW_GRAPH_SEND : GW_GRAPH_RECV;
    return graph_add(g, r, (gw_graph_op){.kind = kind, .peer = peer});
}

static void graph_match(void *ctx, const int rank[2], const int64_t post[2], size_t bytes) {
    gw_graph *g = ctx;
    uint32_t tag = g->tags++;
    for (int end = 0; end < 2 && !g->full; end++) {
        gw_graph_op *op = &g->of[rank[end]].op[post[end]];
        op->amount = (int64_t)bytes;
        op->tag = tag;
    }
}

static void graph_seen(void *ctx, int rank, int64_t post) {
    gw_graph *g = ctx;
    graph_add(g, &g->of[rank], (gw_graph_op){.kind = GW_GRAPH_JOINS, .after = post});
}

gw_sim_watch gw_graph_watch(gw_graph *g) {
    return (gw_sim_watch){g, graph_compute, graph_post, graph_match, graph_seen};
}

int64_t gw_graph_first(const gw_graph_rank *r, int64_t i) {
    while (i > 0 && r->op[i - 1].kind == GW_GRAPH_JOINS)
        i--;
    return i;
}

static void graph_goal(const gw_graph_rank *r, FILE *to) {
    for (int64_t i = 0; i < r->n; i++) {
        const gw_graph_op *o = &r->op[i];
        if (o->kind == GW_GRAPH_JOINS)
            continue;
        if (o->kind == GW_GRAPH_CALC)
            fprintf(to, "l%" PRId64 ": calc %" PRId64 "\n", i, o->amount);
        else
            fprintf(to, "l%" PRId64 ": %s %" PRId64 "b %s %d tag %u\n", i,
                    o->kind == GW_GRAPH_SEND ? "send" : "recv", o->amount,
                    o->kind == GW_GRAPH_SEND ? "to" : "from", o->peer, o->tag);
        for (int64_t k = gw_graph_first(r, i); k <= i; k++)
            if (r->op[k].after >= 0)
                fprintf(to, "l%" PRId64 " requires l%" PRId64 "\n", i, r->op[k].after);
    }
}

void gw_graph_goal(const gw_graph *g, FILE *to) {
    fprintf(to, "num_ranks %d\n", g->ranks);
    for (int r = 0; r < g->ranks; r++) {
        fprintf(to, "rank %d {\n", r);
        graph_goal(&g->of[r], to);
        fprintf(to, "}\n");
    }
}
