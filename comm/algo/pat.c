/* pat: parallel aggregated trees. S. Jeaugey, "PAT: a new algorithm for all-gather and
 * reduce-scatter operations at scale", arXiv:2506.20252; in NCCL since 2.23.
 *
 * Blocks are handed on as comm/schedule/relay.h says, by P binomial trees at once, one shifted by a
 * rank from the next: block b is at rank b + o after the round of o's lowest bit, sent on by the
 * rank that is nearer by that bit. In the rounds of the allgather rank r sends to r + 2^k, 2^k from
 * the largest one below P to 1: J. Bruck's algorithm backwards, so the farther a message goes the
 * less it carries, P/2 blocks next door and one across the machine. Any P, nobody is folded.
 *
 * `message` limits how many blocks travel together. Then the near rounds are cut into messages, as
 * in the linear part of the paper's schedule. Partial sums gather in the arena itself, which stands
 * for the paper's intermediate buffers, so that these messages need not wait for one another. */
#include "comm/schedule/relay.h"

static int pat_core(int ranks) {
    return ranks;
}

static int pat_to(int core, int rank, int round) {
    return (rank + (1 << (gw_relay_rounds(core) - 1 - round))) % core;
}

/* `rank` less the odd multiples of the round's bit, modulo P: those that wrap around lie behind the
 * others. */
static int pat_blocks(int core, int rank, int round, int *run) {
    int bit = 1 << (gw_relay_rounds(core) - 1 - round), n = 0;
    for (int around = 0; around < 2; around++) {
        int most = around ? core - 1 : rank, least = around ? rank + 1 : 0;
        for (int o = ((most / bit - 1) | 1) * bit; o >= least; o -= 2 * bit, n++) {
            run[2 * n] = rank - o + around * core;
            run[2 * n + 1] = run[2 * n] + 1;
        }
    }
    return n;
}

static const gw_relay pat = {pat_core, pat_to, pat_blocks, NULL};

static gw_err pat_lay_down(const gw_args *args, gw_schedule *s, gw_verb what, int root) {
    (void)root;
    return gw_relay_lay_down(&pat, args, s, what);
}

static gw_cost pat_cost(const gw_args *args, gw_lane *lane, gw_verb what, size_t n) {
    return gw_relay_cost(&pat, args, lane, what, n);
}

const gw_algo_ops gw_algo_pat = {
    .head = {GW_ALGO_ABI, "pat", "aggregated binomial trees: log2 P rounds each for any P",
             gw_relay_opts},
    .caps = GW_ALGO_ALIKE_UNCUT,
    .verbs = GW_VERB(GW_REDUCE_SCATTER) | GW_VERB(GW_ALLGATHER),
    .formula = "2(P-1) b bytes, 2P log2 P messages per chunk (exact, log2 rounded up)",
    .lay_down = pat_lay_down,
    .cost = pat_cost,
};
