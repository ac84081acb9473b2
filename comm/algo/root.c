/* root: all to one and back, the traffic of a parameter server. M. Li et al., "Scaling distributed
 * machine learning with the parameter server", OSDI 2014.
 *
 *  1. Reduce. Every rank encodes its part and sends it to the root, which adds what arrives to its
 *     own, unencoded part, in the order of the ranks.
 *  2. Broadcast. The root encodes the sum once, adopts what that decodes to and sends it to all.
 *
 * 2(P-1) b bytes and 2(P-1) messages, all ranks together, half of them in either phase; all cross
 * the root's link, a bottleneck that every other algorithm here avoids. Rank 0 is the root of an
 * allreduce, whose first phase is the kit's. */
#include "comm/algo.h"

static gw_err root_lay_down(const gw_args *args, gw_schedule *s, gw_verb what, int root) {
    (void)args;
    const gw_lane *lane = gw_schedule_lane(s);
    gw_span span = gw_schedule_span(s);
    int ranks = gw_lane_size(lane), slot;
    if (what == GW_ALLREDUCE) {
        GW_TRY(gw_kit_reduce(s, root));
        GW_TRY(gw_schedule_round(s));
    }
    if (gw_lane_rank(lane) != root) {
        GW_TRY(gw_schedule_recv(s, span, root, true, &slot));
        GW_TRY(gw_schedule_round(s));
        return gw_schedule_unpack(s, slot, span, false);
    }
    GW_TRY(gw_schedule_pack(s, span, true, &slot));
    for (int i = 1; i < ranks; i++)
        GW_TRY(gw_schedule_send(s, slot, (root + i) % ranks));
    return GW_OK;
}

const gw_algo_ops gw_algo_root = {
    .head = {GW_ALGO_ABI, "root", "all to rank 0 and back: the traffic of a parameter server",
             NULL},
    .verbs = GW_VERB(GW_BCAST),
    .formula = "2(P-1) b bytes, 2(P-1) messages, all over one link",
    .lay_down = root_lay_down,
    .cost = gw_kit_rooted_cost,
};
