/** Allreduces that pass blocks on in rounds, ceil(log2 P) each way. One function defines one: which
 *  blocks arrive at a rank in a round of the allgather. The reduce-scatter before it is its mirror
 *  image: rounds in reverse order, partial sums in place of results, and each rank sends what it
 *  will receive then. So every part reaches its block's owner once, and every sum every rank.
 *
 *   - Fold. Ranks outside the core send their whole parts to partners in it, which add them, and
 *     receive the result in the end, in the form of the allgather.
 *   - Reduce-scatter. A round's blocks are one message, packed if they are not contiguous; with a
 *     codec, one for each contiguous run of blocks. No rank encodes an element twice.
 *   - Allgather. The owner encodes its block once and adopts the decoded values. A round's blocks
 *     are one message on an exact lane, else one per block, passed on verbatim.
 *
 *  2(Q-1) b + 2(P-Q) b bytes for a core of Q, all ranks together. `chunk` cuts the span into chunks
 *  that pass these phases side by side, `window` at a time; `message` cuts a round's blocks. */
#ifndef GW_COMM_SCHEDULE_RELAY_H
#define GW_COMM_SCHEDULE_RELAY_H

#include "comm/algo.h"

typedef struct gw_relay {
    /** Return how many of `ranks` are the core, at least half. Rank core + i is folded onto i. */
    int (*core)(int ranks);
    /** Return the rank that `rank` sends to in this round of the allgather: a permutation. */
    int (*to)(int core, int rank, int round);
    /** Write to run[2 core] the blocks that `rank` receives in this round, as nonempty runs
     *  [run[2i], run[2i+1]) in order. Return the number of runs. */
    int (*blocks)(int core, int rank, int round, int *run);
    /** Return the block that `rank` owns; NULL: number `rank`. */
    int (*own)(int core, int rank);
} gw_relay;

extern const gw_opt gw_relay_opts[];

/** Return the rounds of an allgather: ceil(log2 core). */
int gw_relay_rounds(int core);

/** For gw_relay.blocks: find what the owner of block `own` receives if partners in a round own
 *  blocks whose numbers differ in that bit, and perhaps in lower ones. */
int gw_relay_halves(int own, int round, int *run);

/** Algorithms may name the verbs reduce_scatter and allgather if rank r owns block r. If the core
 *  does not have all ranks, the kit lays these down. */
gw_err gw_relay_lay_down(const gw_relay *how, const gw_args *args, gw_schedule *s, gw_verb what);
gw_cost gw_relay_cost(const gw_relay *how, const gw_args *args, const gw_lane *lane, gw_verb what,
                      size_t n);

#endif
