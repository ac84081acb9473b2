/* halving: recursive halving and recursive doubling. R. Rabenseifner, "Optimization of collective
 * reduction operations", ICCS 2004; R. Thakur, R. Rabenseifner, W. Gropp, "Optimization of
 * collective communication operations in MPICH", IJHPCA 2005.
 *
 * Of P ranks the first Q, the largest power of two, form the core (comm/schedule/relay.h). In log2
 * Q rounds of a reduce-scatter partners at distance Q/2, Q/4, .., 1 share a range of blocks: each
 * sends the half that the other keeps and adds what arrives to its own. In the end rank r owns
 * block r. The allgather goes back at distance 1, 2, .., Q/2. An element is encoded log2 P times on
 * its way, not P-1 times as in a ring.
 *
 * Messages on an exact lane 2 Q log2 Q + 2(P-Q), with a codec Q log2 Q + Q(Q-1) + (P-Q)(Q+1). */
#include "comm/schedule/relay.h"

static int halving_to(int core, int rank, int round) {
    (void)core;
    return rank ^ 1 << round;
}

static int halving_blocks(int core, int rank, int round, int *run) {
    (void)core;
    return gw_relay_halves(rank, round, run);
}

static const gw_relay halving = {gw_kit_core, halving_to, halving_blocks, NULL};

static gw_err halving_lay_down(const gw_args *args, gw_schedule *s, gw_verb what, int root) {
    (void)root;
    return gw_relay_lay_down(&halving, args, s, what);
}

static gw_cost halving_cost(const gw_args *args, gw_lane *lane, gw_verb what, size_t n) {
    return gw_relay_cost(&halving, args, lane, what, n);
}

const gw_algo_ops gw_algo_halving = {
    .head = {GW_ALGO_ABI, "halving", "recursive halving and doubling: log2 P rounds each",
             gw_relay_opts},
    .caps = GW_ALGO_ALIKE_UNCUT,
    .formula = "2(P-1) b bytes, 2P log2 P messages per chunk (exact, P = 2^k)",
    .lay_down = halving_lay_down,
    .cost = halving_cost,
};
