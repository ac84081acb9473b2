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

static gw_err tree_lay_down(const gw_args *args, gw_schedule *s, gw_verb what, int root) {
    (void)args;
    const gw_lane *lane = gw_schedule_lane(s);
    gw_span span = gw_schedule_span(s);
    int ranks = gw_lane_size(lane), me = gw_lane_rank(lane), slot, distance = 1;
    int v = (me - root + ranks) % ranks;
    for (; distance < ranks && !(v & distance); distance *= 2) {
        if (what == GW_BCAST || v + distance >= ranks)
            continue;
        GW_TRY(gw_schedule_recv(s, span, (me + distance) % ranks, false, &slot));
        GW_TRY(gw_schedule_round(s));
        GW_TRY(gw_schedule_unpack(s, slot, span, true));
    }
    int nearer = (me - distance + ranks) % ranks; /* v - d; the root has none */
    if (what != GW_BCAST && v > 0) {
        GW_TRY(gw_schedule_pack(s, span, false, &slot));
        GW_TRY(gw_schedule_send(s, slot, nearer));
        GW_TRY(gw_schedule_round(s));
    }
    if (what == GW_REDUCE)
        return GW_OK;
    if (v == 0) {
        GW_TRY(gw_schedule_pack(s, span, true, &slot));
    } else {
        GW_TRY(gw_schedule_recv(s, span, nearer, true, &slot));
        GW_TRY(gw_schedule_round(s));
    }
    while ((distance /= 2) > 0)
        if (v + distance < ranks)
            GW_TRY(gw_schedule_send(s, slot, (me + distance) % ranks));
    return v == 0 ? GW_OK : gw_schedule_unpack(s, slot, span, false); /* after forwarding */
}

const gw_algo_ops gw_algo_tree = {
    .head = {GW_ALGO_ABI, "tree", "binomial reduce and broadcast: small spans, few messages", NULL},
    .verbs = GW_VERB(GW_REDUCE) | GW_VERB(GW_BCAST),
    .formula = "2(P-1) b bytes, 2(P-1) messages",
    .lay_down = tree_lay_down,
    .cost = gw_kit_rooted_cost,
};
