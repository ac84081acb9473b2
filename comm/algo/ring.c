/* ring: reduce-scatter and allgather around a ring. P. Patarasuk, X. Yuan, "Bandwidth optimal
 * all-reduce algorithms for clusters of workstations", JPDC 2009; used for training by Baidu and
 * Horovod (Sergeev, Del Balso, arXiv:1802.05799).
 *
 *  1. Cut. The span is cut into P blocks, block r for rank r, and every block into chunks of at
 *     most `chunk` bytes of floats. Each chunk goes around as a strand of its own, `window` of them
 *     at a time: while one is summed, the others use the link.
 *  2. Reduce-scatter, P-1 hops. Each rank receives a partial sum from its left, adds its own part
 *     and sends the result to its right; the sum of block r ends at rank r. Block r is summed in
 *     the order r+1, r+2, .., r (mod P). With a codec every hop decodes, adds and encodes, so the
 *     errors of P-1 encodings add up.
 *  3. Allgather, P-1 hops. The owner encodes its sum once and adopts what that decodes to; every
 *     rank forwards the bytes unchanged.
 *
 * Over TCP a long message may start with a handshake whose answer queues behind data of the other
 * direction. Messages short enough to need none (chunk=16K,window=64) then keep the link full,
 * while longer ones leave it idle for up to a chunk's time.
 *
 * Each block crosses P-1 links in either phase: 2(P-1) b bytes and 2P(P-1) messages a chunk, all
 * ranks together; 2(P-1)/P b a rank, the minimum of any allreduce, and no link carries more in
 * one direction than it must. */
#include "comm/algo.h"

typedef struct ring {
    gw_schedule *s;
    gw_span span;
    int me, ranks;
    int chunk, chunks;
} ring;

/* The part of the block of `rank` (mod P; not below -P) in the current chunk. */
static gw_span ring_block(const ring *g, int rank) {
    gw_span whole = gw_span_part(g->span, (rank + g->ranks) % g->ranks, g->ranks);
    return gw_span_part(whole, g->chunk, g->chunks);
}

static int ring_left(const ring *g) {
    return (g->me + g->ranks - 1) % g->ranks;
}

static int ring_right(const ring *g) {
    return (g->me + 1) % g->ranks;
}

/* Post each receive before the sum, so that the next part arrives meanwhile. *partial: the last
 * part received, still to be added to the own block. */
static gw_err ring_scatter(const ring *g, int *partial) {
    int arriving, out;
    *partial = GW_NO_SLOT;
    for (int hop = 1; hop < g->ranks; hop++) {
        gw_span sum = ring_block(g, g->me - hop);
        GW_TRY(
            gw_schedule_recv(g->s, ring_block(g, g->me - hop - 1), ring_left(g), false, &arriving));
        GW_TRY(gw_schedule_unpack(g->s, *partial, sum, true));
        GW_TRY(gw_schedule_pack(g->s, sum, false, &out));
        GW_TRY(gw_schedule_send(g->s, out, ring_right(g)));
        GW_TRY(gw_schedule_round(g->s));
        *partial = arriving;
    }
    return GW_OK;
}

static gw_err ring_gather(const ring *g, int partial) {
    gw_span own = ring_block(g, g->me);
    int arriving, held = GW_NO_SLOT;
    for (int hop = 1; hop < g->ranks; hop++) {
        GW_TRY(gw_schedule_recv(g->s, ring_block(g, g->me - hop), ring_left(g), true, &arriving));
        if (hop == 1) {
            GW_TRY(gw_schedule_unpack(g->s, partial, own, true));
            GW_TRY(gw_schedule_pack(g->s, own, true, &held));
        }
        GW_TRY(gw_schedule_send(g->s, held, ring_right(g)));
        if (hop > 1) /* forward first, then decode while it travels */
            GW_TRY(gw_schedule_unpack(g->s, held, ring_block(g, g->me - hop + 1), false));
        GW_TRY(gw_schedule_round(g->s));
        held = arriving;
    }
    return gw_schedule_unpack(g->s, held, ring_block(g, g->me + 1), false);
}

static int ring_count_chunks(const gw_args *args, size_t n, int ranks) {
    size_t most = gw_args_bytes(args, "chunk") / sizeof(float);
    size_t longest = (n + (size_t)ranks - 1) / (size_t)ranks;
    return most == 0 || longest == 0 ? 1 : (int)((longest + most - 1) / most);
}

static gw_err ring_lay_down(const gw_args *args, gw_schedule *s, gw_verb what, int root) {
    (void)root;
    const gw_lane *lane = gw_schedule_lane(s);
    ring g = {.s = s, .span = gw_schedule_span(s)};
    g.me = gw_lane_rank(lane);
    g.ranks = gw_lane_size(lane);
    g.chunks = ring_count_chunks(args, g.span.n, g.ranks);
    gw_schedule_window(s, (int)gw_args_int(args, "window"));
    for (; g.chunk < g.chunks; g.chunk++) {
        int partial = GW_NO_SLOT;
        if (g.chunk > 0)
            GW_TRY(gw_schedule_strand(s));
        if (what != GW_ALLGATHER)
            GW_TRY(ring_scatter(&g, &partial));
        if (what != GW_REDUCE_SCATTER)
            GW_TRY(ring_gather(&g, partial));
        else
            GW_TRY(gw_schedule_unpack(s, partial, ring_block(&g, g.me), true));
    }
    return GW_OK;
}

static gw_cost ring_cost(const gw_args *args, gw_lane *lane, gw_verb what, size_t n) {
    ring g = {.span = {0, n}, .ranks = gw_lane_size(lane)};
    uint64_t hops = (uint64_t)(g.ranks - 1) * (what == GW_ALLREDUCE ? 2 : 1);
    gw_cost sum = {0};
    g.chunks = ring_count_chunks(args, n, g.ranks);
    for (; g.chunk < g.chunks; g.chunk++)
        for (int r = 0; r < g.ranks; r++)
            sum = gw_cost_sum(sum, gw_cost_messages(lane, hops, ring_block(&g, r).n));
    return sum;
}

static const gw_opt ring_opts[] = {
    {"chunk", GW_OPT_BYTES, "256K", 0, 1 << 30, NULL, NULL,
     "bytes of floats per message at most (0: one message per hop)"},
    {"window", GW_OPT_INT, "4", 0, 1024, NULL, NULL, "chunks in flight at a time (0: all)"},
    {0},
};

const gw_algo_ops gw_algo_ring = {
    .head = {GW_ALGO_ABI, "ring", "chunks around a ring, pipelined: long spans", ring_opts},
    .caps = GW_ALGO_ALIKE,
    .verbs = GW_VERB(GW_REDUCE_SCATTER) | GW_VERB(GW_ALLGATHER),
    .formula = "2(P-1) b bytes, 2P(P-1) messages per chunk",
    .lay_down = ring_lay_down,
    .cost = ring_cost,
};
