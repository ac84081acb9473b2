/* tree: binomial reduce to a root and binomial broadcast. R. Thakur, R. Rabenseifner, W. Gropp,
 * "Optimization of collective communication operations in MPICH", IJHPCA 2005.
 *
 * Ranks are counted from the root: v = (rank - root) mod P.
 *
 *  1. Reduce, ceil(log2 P) rounds at distance d = 1, 2, 4, ..: a rank whose v is an odd multiple of
 *     d sends its partial sum to v-d and is done; others add what v+d sends. So P and the root
 *     fix the order of summation, and each rank encodes once.
 *  2. Broadcast, ceil(log2 P) rounds back: the root encodes the sum once and adopts what that
 *     decodes to; whoever has the bytes forwards them unchanged, to the farthest first.
 *
 * 2(P-1) b bytes and 2(P-1) messages, all ranks together, half of them in either phase; but every
 * round moves whole spans, so a long span takes log2 P times as long as with `ring`. */
#include "comm/algo.h"

typedef struct tree {
    int ranks, root, v;
} tree;

static tree tree_of(const gw_schedule *s, int root) {
    const gw_lane *lane = gw_schedule_lane(s);
    int ranks = gw_lane_size(lane);
    return (tree){ranks, root, (gw_lane_rank(lane) - root + ranks) % ranks};
}

static int tree_peer(const tree *t, int v) {
    return (v + t->root) % t->ranks;
}

static gw_err tree_reduce(gw_schedule *s, int root) {
    tree t = tree_of(s, root);
    gw_span span = gw_schedule_span(s);
    int slot, distance = 1;
    for (; distance < t.ranks && !(t.v & distance); distance *= 2) {
        if (t.v + distance >= t.ranks)
            continue;
        GW_TRY(gw_schedule_recv(s, span, tree_peer(&t, t.v + distance), false, &slot));
        GW_TRY(gw_schedule_round(s));
        GW_TRY(gw_schedule_unpack(s, slot, span, true));
    }
    if (t.v == 0)
        return GW_OK;
    GW_TRY(gw_schedule_pack(s, span, false, &slot));
    GW_TRY(gw_schedule_send(s, slot, tree_peer(&t, t.v - distance)));
    return gw_schedule_round(s);
}

static gw_err tree_bcast(gw_schedule *s, int root) {
    tree t = tree_of(s, root);
    gw_span span = gw_schedule_span(s);
    int slot, distance = 1;
    while (distance < t.ranks && !(t.v & distance))
        distance *= 2;
    if (t.v == 0) {
        GW_TRY(gw_schedule_pack(s, span, true, &slot));
    } else {
        GW_TRY(gw_schedule_recv(s, span, tree_peer(&t, t.v - distance), true, &slot));
        GW_TRY(gw_schedule_round(s));
    }
    while ((distance /= 2) > 0)
        if (t.v + distance < t.ranks)
            GW_TRY(gw_schedule_send(s, slot, tree_peer(&t, t.v + distance)));
    return t.v == 0 ? GW_OK : gw_schedule_unpack(s, slot, span, false); /* after forwarding */
}

static gw_err tree_lay_down(const gw_args *args, gw_schedule *s, gw_verb what, int root) {
    (void)args;
    if (what != GW_BCAST)
        GW_TRY(tree_reduce(s, root));
    return what == GW_REDUCE ? GW_OK : tree_bcast(s, root);
}

const gw_algo_ops gw_algo_tree = {
    .head = {GW_ALGO_ABI, "tree", "binomial reduce and broadcast: small spans, few messages", NULL},
    .verbs = GW_VERB(GW_REDUCE) | GW_VERB(GW_BCAST),
    .formula = "2(P-1) b bytes, 2(P-1) messages",
    .lay_down = tree_lay_down,
    .cost = gw_kit_rooted_cost,
};
