/* swing: a butterfly whose partners stay near on a ring of nodes. D. De Sensi, T. Bonato, D. Saam,
 * T. Hoefler, "Swing: Short-cutting rings for higher bandwidth allreduce", NSDI 2024.
 *
 * The bandwidth form, blocks handed on as comm/schedule/relay.h says. In step s = 0, 1, .. of the
 * reduce-scatter the partner of rank r is r + rho(s) if r is even, r - rho(s) if it is odd, modulo
 * P; rho(s) = (1 - (-2)^(s+1)) / 3 = 1, -1, 3, -5, 11, .. The most data go the shortest way, and no
 * step goes as far as that of recursive halving: a third of 2^(s+1) hops instead of 2^s. A rank
 * sends each block that its partner reaches in the steps that follow; they do not lie side by side.
 *
 * Any even P will do: a block that comes by two ways is sent on the first one of the allgather. Of
 * an odd P the last rank is folded onto rank 0. With several dimensions the paper runs one such
 * collective for each and direction; here ranks are one ring, and one direction is used. */
#include "comm/schedule/relay.h"

static int swing_core(int ranks) {
    return ranks & ~1;
}

static int swing_to(int core, int rank, int round) {
    int rho = 0, step = gw_relay_rounds(core) - 1 - round;
    for (int i = 0, term = 1; i <= step; i++, term *= -2)
        rho += term;
    int to = (rank % 2 ? rank - rho : rank + rho) % core;
    return to < 0 ? to + core : to;
}

/* All that `from` has before round `before` arrives in `round`, unless it did before. */
static void swing_arrive(int core, int from, int before, int round, int *when) {
    if (when[from] > round)
        when[from] = round;
    for (int i = 0; i < before; i++)
        swing_arrive(core, swing_to(core, from, i), i, round, when);
}

static int swing_blocks(int core, int rank, int round, int *run) {
    int n = 0, *when = run + core; /* every other block at most begins a run */
    for (int block = 0; block < core; block++)
        when[block] = block == rank ? -1 : round + 1;
    for (int i = 0; i <= round; i++)
        swing_arrive(core, swing_to(core, rank, i), i, i, when);
    for (int block = 0; block < core; block++) {
        if (when[block] != round)
            continue;
        if (n == 0 || run[2 * n - 1] < block)
            run[2 * n++] = block;
        run[2 * n - 1] = block + 1;
    }
    return n;
}

static const gw_relay swing = {swing_core, swing_to, swing_blocks, NULL};

static gw_err swing_lay_down(const gw_args *args, gw_schedule *s, gw_verb what, int root) {
    (void)root;
    return gw_relay_lay_down(&swing, args, s, what);
}

static gw_cost swing_cost(const gw_args *args, gw_lane *lane, gw_verb what, size_t n) {
    return gw_relay_cost(&swing, args, lane, what, n);
}

const gw_algo_ops gw_algo_swing = {
    .head = {GW_ALGO_ABI, "swing", "a butterfly with near partners on a ring or torus of nodes",
             gw_relay_opts},
    .verbs = GW_VERB(GW_REDUCE_SCATTER) | GW_VERB(GW_ALLGATHER),
    .formula = "2(P-1) b bytes, 2P log2 P messages per chunk (exact, P even, log2 rounded up)",
    .lay_down = swing_lay_down,
    .cost = swing_cost,
};
