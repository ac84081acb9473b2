/* bine: a butterfly of negabinary distances. D. De Sensi et al., "Bine trees: Enhancing collective
 * operations by optimizing communication locality", SC 2025.
 *
 * The partners are those of swing: in step s of the reduce-scatter at distance 1, -1, 3, -5, 11,
 * .., the value of s + 1 ones in base -2, to the right of even ranks and to the left of odd ones.
 * But blocks are numbered so that those of a step lie side by side and need no packing: rank r owns
 * block nu(r), the bits of its Gray-coded number in base -2, first one last, and partners in step s
 * share the first s bits of theirs. The allgather puts each block where it belongs, so nothing is
 * reordered; but part r of a span is not rank r's, and the other collectives are the kit's.
 *
 * Of P ranks the first Q, the largest power of two, form the core (comm/schedule/relay.h). */
#include "comm/schedule/relay.h"

#include <stdint.h>

static const uint32_t bine_odd = 0xAAAAAAAA; /* the bits that stand for negative powers of -2 */

static int bine_to(int core, int rank, int round) {
    uint32_t ones = (uint32_t)core / (1u << round) - 1; /* core >> round is 2^(s+1) */
    uint32_t distance = (ones ^ bine_odd) - bine_odd, r = (uint32_t)rank;
    return (int)((rank % 2 ? r - distance : r + distance) & ((uint32_t)core - 1));
}

/* nu: numbers modulo Q have their low log2 Q bits in base -2 in common. */
static int bine_block(int core, int rank) {
    uint32_t r = (uint32_t)rank, bits = ((rank % 2 ? r : -r) + bine_odd) ^ bine_odd;
    int block = 0;
    bits &= (uint32_t)core - 1;
    bits ^= bits >> 1;
    for (int i = 1; i < core; i *= 2, bits >>= 1)
        block = 2 * block + (int)(bits & 1);
    return block;
}

static int bine_blocks(int core, int rank, int round, int *run) {
    return gw_relay_halves(bine_block(core, rank), round, run);
}

static const gw_relay bine = {gw_kit_core, bine_to, bine_blocks, bine_block};

static gw_err bine_lay_down(const gw_args *args, gw_schedule *s, gw_verb what, int root) {
    (void)root;
    return gw_relay_lay_down(&bine, args, s, what);
}

static gw_cost bine_cost(const gw_args *args, gw_lane *lane, gw_verb what, size_t n) {
    return gw_relay_cost(&bine, args, lane, what, n);
}

const gw_algo_ops gw_algo_bine = {
    .head = {GW_ALGO_ABI, "bine", "a butterfly with near partners and blocks side by side",
             gw_relay_opts},
    .formula = "2(P-1) b bytes, 2P log2 P messages per chunk (exact, P = 2^k)",
    .lay_down = bine_lay_down,
    .cost = bine_cost,
};
