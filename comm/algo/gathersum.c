/* gathersum: gather all encodings, sum them everywhere. For sparse codecs, whose sums are denser
 * than their terms: Y. Lin et al., "Deep gradient compression", ICLR 2018; H. Xu et al.,
 * "GRACE: a compressed communication framework for distributed machine learning", ICDCS 2021.
 *
 *  1. Allgather. Every rank encodes its part, once, and sends it to every other.
 *  2. Sum. Every rank decodes all encodings, its own too, and adds them in the order of the ranks:
 *     the same bits everywhere, with one encoding error for each rank's part and none for the sum.
 *
 * P(P-1) b bytes and messages, all ranks together: what a rank receives grows with P, so beyond
 * P = 2 x (compression ratio) sending plain floats by `ring` is cheaper. */
#include "comm/algo.h"

static gw_err gathersum_lay_down(const gw_args *args, gw_schedule *s, gw_verb what, int root) {
    (void)args, (void)what, (void)root;
    const gw_lane *lane = gw_schedule_lane(s);
    gw_span span = gw_schedule_span(s);
    int me = gw_lane_rank(lane), ranks = gw_lane_size(lane), own;
    /* Rank 0 can add onto its own part, which comes first. Rank 1 cannot, although a + b is b + a:
     * an element that was not sent leaves a -0.0, adding it as 0 makes +0.0. */
    bool in_place = me == 0;
    for (int i = 1; i < ranks; i++)
        GW_TRY(gw_schedule_recv(s, span, (me + ranks - i) % ranks, false, &own));
    if (in_place)
        GW_TRY(gw_schedule_pack(s, span, true, &own));
    else
        GW_TRY(gw_schedule_copy(s, span, false, &own));
    for (int i = 1; i < ranks; i++) /* staggered, so that not all send to rank 0 first */
        GW_TRY(gw_schedule_send(s, own, (me + i) % ranks));
    GW_TRY(gw_schedule_round(s));
    for (int r = 0; r < ranks; r++) {
        int slot = own - (r - me + ranks) % ranks; /* slots are numbered on, the own one last */
        if (r != me || !in_place)
            GW_TRY(gw_schedule_unpack(s, slot, span, in_place || r > 0));
    }
    return GW_OK;
}

static gw_cost gathersum_cost(const gw_args *args, gw_lane *lane, gw_verb what, size_t n) {
    (void)args, (void)what;
    uint64_t ranks = (uint64_t)gw_lane_size(lane);
    return gw_cost_messages(lane, ranks * (ranks - 1), n);
}

const gw_algo_ops gw_algo_gathersum = {
    .head = {GW_ALGO_ABI, "gathersum", "every rank gathers and sums all encodings: sparse codecs",
             NULL},
    .caps = GW_ALGO_ONCE | GW_ALGO_ALIKE,
    .formula = "P(P-1) b bytes, P(P-1) messages",
    .lay_down = gathersum_lay_down,
    .cost = gathersum_cost,
};
