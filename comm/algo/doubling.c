/* doubling: recursive doubling, the fewest rounds, for small spans. R. Thakur, R. Rabenseifner, W.
 * Gropp, "Optimization of collective communication operations in MPICH", IJHPCA 2005.
 *
 * On an exact lane it sums as it goes:
 *  1. Fold. Of P ranks the first Q, the largest power of two, form the core; each of the others
 *     sends its part to a partner in the core, which adds it.
 *  2. log2 Q rounds. Partners at distance 1, 2, .., Q/2 exchange their partial sums and add. a + b
 *     and b + a have the same bits, so partners agree, and in the end all ranks do.
 *  3. Unfold. Partners send the sum to the ranks outside the core.
 * Q log2 Q + 2(P-Q) messages of 4n bytes, all ranks together; log2 P a rank.
 *
 * With a codec each rank would encode its own sums in every round, and the replicas would drift
 * apart. So it gathers encodings and sums them at the end:
 *  1. Each rank encodes its part, once.
 *  2. ceil(log2 P) rounds at distance d = 1, 2, 4, ..: rank r sends to r-d the encodings that it
 *     has, of ranks r, r+1, .., verbatim, and so doubles what r-d has (J. Bruck et al., "Efficient
 *     algorithms for all-to-all communications in multiport message-passing systems", TPDS 1997;
 *     any P).
 *  3. All decode all encodings, their own too, and sum them in the order of the ranks.
 * P(P-1) b bytes and messages, all ranks together. */
#include "comm/algo.h"

static gw_err doubling_send(gw_schedule *s, int peer) {
    int slot;
    GW_TRY(gw_schedule_pack(s, gw_schedule_span(s), true, &slot));
    return gw_schedule_send(s, slot, peer);
}

static gw_err doubling_add_from(gw_schedule *s, int peer, bool exchange) {
    int slot;
    GW_TRY(gw_schedule_recv(s, gw_schedule_span(s), peer, false, &slot));
    if (exchange)
        GW_TRY(doubling_send(s, peer));
    GW_TRY(gw_schedule_round(s));
    return gw_schedule_unpack(s, slot, gw_schedule_span(s), true);
}

static gw_err doubling_sum(gw_schedule *s) {
    const gw_lane *lane = gw_schedule_lane(s);
    int me = gw_lane_rank(lane), core = gw_kit_core(gw_lane_size(lane));
    gw_span span = gw_schedule_span(s);
    if (me >= core) {
        int slot;
        GW_TRY(doubling_send(s, me - core));
        GW_TRY(gw_schedule_round(s)); /* both messages are the arena itself */
        GW_TRY(gw_schedule_recv(s, span, me - core, true, &slot));
        GW_TRY(gw_schedule_round(s));
        return gw_schedule_unpack(s, slot, span, false);
    }
    bool partnered = me + core < gw_lane_size(lane);
    if (partnered)
        GW_TRY(doubling_add_from(s, me + core, false));
    for (int distance = 1; distance < core; distance *= 2)
        GW_TRY(doubling_add_from(s, me ^ distance, true));
    return partnered ? doubling_send(s, me + core) : GW_OK;
}

static gw_err doubling_lay_down(const gw_args *args, gw_schedule *s, gw_verb what, int root) {
    (void)args, (void)what, (void)root;
    const gw_lane *lane = gw_schedule_lane(s);
    gw_span span = gw_schedule_span(s);
    int me = gw_lane_rank(lane), ranks = gw_lane_size(lane), own, slot;
    if (gw_lane_exact(lane))
        return doubling_sum(s);
    GW_TRY(gw_schedule_pack(s, span, false, &own));
    for (int have = 1; have < ranks; have *= 2) {
        int more = have < ranks - have ? have : ranks - have;
        int from = (me + have) % ranks, to = (me + ranks - have) % ranks;
        for (int i = 0; i < more; i++) /* slots are numbered on: that of rank me + k is own + k */
            GW_TRY(gw_schedule_recv(s, span, from, false, &slot));
        for (int i = 0; i < more; i++)
            GW_TRY(gw_schedule_send(s, own + i, to));
        GW_TRY(gw_schedule_round(s));
    }
    for (int r = 0; r < ranks; r++)
        GW_TRY(gw_schedule_unpack(s, own + (r - me + ranks) % ranks, span, r > 0));
    return GW_OK;
}

static gw_cost doubling_cost(const gw_args *args, gw_lane *lane, gw_verb what, size_t n) {
    (void)args, (void)what;
    uint64_t ranks = (uint64_t)gw_lane_size(lane), core = (uint64_t)gw_kit_core(gw_lane_size(lane));
    uint64_t messages = ranks * (ranks - 1);
    if (gw_lane_exact(lane)) {
        messages = 2 * (ranks - core);
        for (uint64_t distance = 1; distance < core; distance *= 2)
            messages += core;
    }
    return gw_cost_messages(lane, messages, n);
}

const gw_algo_ops gw_algo_doubling = {
    .head = {GW_ALGO_ABI, "doubling", "recursive doubling, log2 P rounds: small spans", NULL},
    .caps = GW_ALGO_ALIKE,
    .formula = "Q log2 Q + 2(P-Q) messages of 4n bytes (exact; Q: largest 2^k up to P), by a codec "
               "P(P-1) messages of b bytes",
    .lay_down = doubling_lay_down,
    .cost = doubling_cost,
};
