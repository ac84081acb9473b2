/* root: all to one and back, the traffic of a parameter server. M. Li et al., "Scaling distributed
 * machine learning with the parameter server", OSDI 2014.
 *
 *  1. Reduce. Every rank encodes its part and sends it to the root, which adds what arrives to its
 *     own, unencoded part, in the order of the ranks.
 *  2. Broadcast. The root encodes the sum once, keeps what that decodes to, and sends it to each.
 *
 * 2(P-1) b bytes and 2(P-1) messages, all ranks together, half of them for either phase alone; all
 * of them cross the root's link, which every other algorithm here avoids. Rank 0 is the root of an
 * allreduce. */
#include "comm/algo.h"

static gw_err reduce(const gw_args *args, gw_schedule *s, int root) {
    (void)args;
    const gw_lane *lane = gw_schedule_lane(s);
    gw_span span = gw_schedule_span(s);
    int slot, first = GW_NO_SLOT;
    if (lane->rank != root) {
        GW_TRY(gw_schedule_pack(s, span, false, &slot));
        GW_TRY(gw_schedule_send(s, slot, root));
        return gw_schedule_round(s);
    }
    for (int r = 0; r < lane->size; r++) {
        if (r == root)
            continue;
        GW_TRY(gw_schedule_recv(s, span, r, false, &slot));
        first = first == GW_NO_SLOT ? slot : first; /* slots of one loop are numbered on */
    }
    GW_TRY(gw_schedule_round(s));
    for (int i = 0; first != GW_NO_SLOT && i < lane->size - 1; i++)
        GW_TRY(gw_schedule_unpack(s, first + i, span, true));
    return GW_OK;
}

static gw_err bcast(const gw_args *args, gw_schedule *s, int root) {
    (void)args;
    const gw_lane *lane = gw_schedule_lane(s);
    gw_span span = gw_schedule_span(s);
    int slot;
    if (lane->rank != root) {
        GW_TRY(gw_schedule_recv(s, span, root, true, &slot));
        GW_TRY(gw_schedule_round(s));
        return gw_schedule_unpack(s, slot, span, false);
    }
    if (lane->size == 1)
        return GW_OK;
    GW_TRY(gw_schedule_pack(s, span, true, &slot));
    for (int i = 1; i < lane->size; i++)
        GW_TRY(gw_schedule_send(s, slot, (root + i) % lane->size));
    return GW_OK;
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

const gw_algo_ops gw_algo_root = {
    .head = {GW_ALGO_ABI, "root", "all to rank 0 and back: the traffic of a parameter server",
             NULL},
    .formula = "2(P-1) b bytes, 2(P-1) messages, all over one link",
    .allreduce = allreduce,
    .reduce = reduce,
    .bcast = bcast,
    .cost = cost,
};
