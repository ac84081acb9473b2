/* sra: scatter-reduce-allgather of encodings.
 *
 *  1. Scatter-reduce. The span is cut into P slices; rank r owns slice r. Each rank encodes its
 *     part of every foreign slice and sends it to the owner. The owner decodes the P-1 encodings
 *     and adds them to its own, unencoded part, in the order of the ranks.
 *  2. Allgather. Each owner encodes the sum once, adopts what its own encoding decodes to, and
 *     sends it to all; every rank decodes the same bytes, so all replicas hold the same bits.
 *
 * Each element is encoded at most once per exchange and rank, so a lossy codec errs twice for any P
 * (a ring that decodes and encodes at each hop errs P-1 times). Bytes: every rank sends (P-1)
 * slices twice, 2(P-1)/P of the span, the minimum of any allreduce (Thakur, Rabenseifner, Gropp,
 * "Optimization of collective communication operations in MPICH", IJHPCA 2005). Messages: 2(P-1) a
 * rank, as in a ring, but in 2 rounds instead of 2(P-1). */
#include "comm/algo.h"

static gw_err sra_lay_down(const gw_args *args, gw_schedule *s, gw_verb what, int root) {
    (void)args, (void)what, (void)root;
    GW_TRY(gw_kit_reduce_scatter(s));
    return gw_kit_allgather(s); /* its first round also carries the sums of the first half */
}

static gw_cost sra_cost(const gw_args *args, gw_lane *lane, gw_verb what, size_t n) {
    (void)args, (void)what; /* all other verbs are the kit's */
    gw_cost half = gw_kit_scatter_cost(lane, n);
    return (gw_cost){2 * half.bytes, 2 * half.messages};
}

const gw_algo_ops gw_algo_sra = {
    .head = {GW_ALGO_ABI, "sra", "scatter-reduce-allgather of encodings: carries every codec",
             NULL},
    .caps = GW_ALGO_ALIKE,
    .formula = "2(P-1) b bytes, 2P(P-1) messages",
    .lay_down = sra_lay_down,
    .cost = sra_cost,
};
