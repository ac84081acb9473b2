#include "cli/simulate/graph.h"

#include "base/mem.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

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

/* Operation i, no JOINS, waits for op[k].after of each k from this one to i. */
static int64_t graph_first(const gw_graph_rank *r, int64_t i) {
    while (i > 0 && r->op[i - 1].kind == GW_GRAPH_JOINS)
        i--;
    return i;
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
    if (graph_first(r, r->n) < r->n)
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

/* ---- GOAL ---- */

void gw_graph_goal(const gw_graph *g, FILE *to) {
    fprintf(to, "num_ranks %d\n", g->ranks);
    for (const gw_graph_rank *r = g->of; r < g->of + g->ranks; r++) {
        fprintf(to, "rank %d {\n", (int)(r - g->of));
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
            for (int64_t k = graph_first(r, i); k <= i; k++)
                if (r->op[k].after >= 0)
                    fprintf(to, "l%" PRId64 " requires l%" PRId64 "\n", i, r->op[k].after);
        }
        fprintf(to, "}\n");
    }
}

/* ---- Chakra: Protocol Buffers, by hand ---- */

/* A message is fields of a key, number << 3 | wire type, and a value. */
enum { VARINT = 0, LENGTH = 2 };                                     /* wire types */
enum { ID = 1, NAME, TYPE, DATA_DEPS = 5, DURATION = 7, ATTR = 10 }; /* fields of a Node, */
enum { ATTR_NAME = 1, INT32 = 7, INT64 = 9, BOOL = 27 };             /* of its AttributeProto */
enum { COMP_NODE = 4, COMM_SEND_NODE, COMM_RECV_NODE };              /* values of TYPE */

typedef struct chakra_out {
    FILE *to; /* NULL: only counts */
    size_t bytes;
} chakra_out;

static void chakra_varint(chakra_out *o, uint64_t v) {
    for (bool more = true; more; v >>= 7, o->bytes++) {
        more = v > 127;
        if (o->to)
            putc((int)(v & 127) | more << 7, o->to);
    }
}

static void chakra_number(chakra_out *o, int field, uint64_t v) {
    chakra_varint(o, (uint64_t)field << 3 | VARINT);
    chakra_varint(o, v);
}

static void chakra_text(chakra_out *o, int field, const char *text) {
    size_t n = strlen(text);
    chakra_varint(o, (uint64_t)field << 3 | LENGTH);
    chakra_varint(o, n);
    o->bytes += n;
    if (o->to)
        fwrite(text, 1, n, o->to);
}

static void chakra_attr(chakra_out *o, const char *name, int field, int64_t v) {
    chakra_out body = {0};
    chakra_text(&body, ATTR_NAME, name);
    chakra_number(&body, field, (uint64_t)v);
    chakra_varint(o, (uint64_t)ATTR << 3 | LENGTH);
    chakra_varint(o, body.bytes);
    chakra_text(o, ATTR_NAME, name);
    chakra_number(o, field, (uint64_t)v);
}

static void chakra_node(chakra_out *o, const gw_graph_rank *r, int rank, int64_t i,
                        int64_t micros) {
    static const char *const names[] = {"send", "recv", "calc"};
    static const int types[] = {COMM_SEND_NODE, COMM_RECV_NODE, COMP_NODE};
    const gw_graph_op *op = &r->op[i];
    bool sends = op->kind == GW_GRAPH_SEND;
    chakra_number(o, ID, (uint64_t)i);
    chakra_text(o, NAME, names[op->kind]);
    chakra_number(o, TYPE, (uint64_t)types[op->kind]);
    for (int64_t k = graph_first(r, i); k <= i; k++)
        if (r->op[k].after >= 0)
            chakra_number(o, DATA_DEPS, (uint64_t)r->op[k].after);
    chakra_attr(o, "is_cpu_op", BOOL, false);
    if (op->kind == GW_GRAPH_CALC) {
        chakra_number(o, DURATION, (uint64_t)micros);
        return;
    }
    chakra_attr(o, "comm_src", INT32, sends ? rank : op->peer);
    chakra_attr(o, "comm_dst", INT32, sends ? op->peer : rank);
    chakra_attr(o, "comm_tag", INT32, (int64_t)op->tag);
    chakra_attr(o, "comm_size", INT64, op->amount);
}

void gw_graph_chakra(const gw_graph *g, int rank, FILE *to) {
    const gw_graph_rank *r = &g->of[rank];
    chakra_out file = {.to = to}, body = {0};
    int64_t ns = 0, micros = 0;   /* of the computations so far */
    fputs("\007\n\0050.0.4", to); /* GlobalMetadata of 7 bytes: its version, a text of 5 */
    for (int64_t i = 0; i < r->n; i++) {
        if (r->op[i].kind == GW_GRAPH_JOINS)
            continue;
        ns += r->op[i].kind == GW_GRAPH_CALC ? r->op[i].amount : 0;
        int64_t more = (ns + 500) / 1000 - micros;
        micros += more;
        body.bytes = 0;
        chakra_node(&body, r, rank, i, more);
        chakra_varint(&file, body.bytes);
        chakra_node(&file, r, rank, i, more);
    }
}
