/* tree: binomial reduce to a root and binomial broadcast. R. Thakur, R. Rabenseifner, W. Gropp,
 * "Optimization of collective communication operations in MPICH", IJHPCA 2005.
 *
 * Ranks are counted from the root: v = (rank - root) mod P.
 *
 *  1. Reduce, ceil(log2 P) rounds at distance d = 1, 2, 4, ..: a rank whose v is an odd multiple of
 *     d sends what it has summed to v-d and is done; others add what v+d sends. So the order of
 *     summation is fixed by P and the root, and each rank encodes once.
 *  2. Broadcast, ceil(log2 P) rounds back up: the root encodes the sum once and keeps what that
 *     decodes to, and whoever has it sends it on verbatim, to the farthest first.
 *
 * 2(P-1) b bytes and 2(P-1) messages, all ranks together, half of them for either phase alone; but
 * every round moves whole spans, so long spans take log2 P times as long as by `ring`. */
#include "comm/algo.h"

static int peer_at(const gw_lane *lane, int root, int v) {
    return (v + root) % lane->size;
}

static gw_err reduce(const gw_args *args, gw_schedule *s, int root) {
    (void)args;
    const gw_lane *lane = gw_schedule_lane(s);
    gw_span span = gw_schedule_span(s);
    int v = (lane->rank - root + lane->size) % lane->size, slot, distance = 1;
    for (; distance < lane->size && !(v & distance); distance *= 2) {
        if (v + distance >= lane->size)
            continue;
        GW_TRY(gw_schedule_recv(s, span, peer_at(lane, root, v + distance), false, &slot));
        GW_TRY(gw_schedule_round(s));
        GW_TRY(gw_schedule_unpack(s, slot, span, true));
    }
    if (v == 0)
        return GW_OK;
    GW_TRY(gw_schedule_pack(s, span, false, &slot));
    GW_TRY(gw_schedule_send(s, slot, peer_at(lane, root, v - distance)));
    return gw_schedule_round(s);
}

static gw_err bcast(const gw_args *args, gw_schedule *s, int root) {
    (void)args;
    const gw_lane *lane = gw_schedule_lane(s);
    gw_span span = gw_schedule_span(s);
    int v = (lane->rank - root + lane->size) % lane->size, slot, distance = 1;
    if (lane->size == 1)
        return GW_OK;
    while (distance < lane->size && !(v & distance))
        distance *= 2;
    if (v == 0) {
        GW_TRY(gw_schedule_pack(s, span, true, &slot));
    } else {
        GW_TRY(gw_schedule_recv(s, span, peer_at(lane, root, v - distance), true, &slot));
        GW_TRY(gw_schedule_round(s));
    }
    while ((distance /= 2) > 0)
        if (v + distance < lane->size)
            GW_TRY(gw_schedule_send(s, slot, peer_at(lane, root, v + distance)));
    return v == 0 ? GW_OK : gw_schedule_unpack(s, slot, span, false); /* sent on first */
}

static gw_err allreduce(const gw_args *args, gw_schedule *s) {
    GW_TRY(reduce(args, s, 0));
    return bcast(args, s, 0);
}

static gw_cost cost(const gw_args *args, gw_lane *lane, gw_verb what, size_t n) {
    (void)args;
    uint64_t messages = (uint64_t)(lane->size - 1) * (what == GW_ALLREDUCE ? 2 : 1);
    return n ? (gw_cost){messages * gw_codec_bound(lane->codec, n), messages} : (gw_cost){0};
}

const gw_algo_ops gw_algo_tree = {
    .head = {GW_ALGO_ABI, "tree", "binomial reduce and broadcast: small spans, few messages", NULL},
    .formula = "2(P-1) b bytes, 2(P-1) messages",
    .allreduce = allreduce,
    .reduce = reduce,
    .bcast = bcast,
    .cost = cost,
};
