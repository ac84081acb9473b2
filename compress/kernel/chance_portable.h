/** kernel/chance.h in plain C. */
#include "compress/kernel/chance.h"
#include "compress/kernel/peak_portable.h"

enum { GW_CHANCE_LANES = 16 };

/** Each element's word, rotated so that its half is the upper one. */
static inline void chance_draw(uint64_t seed, uint32_t ctr, uint32_t word[GW_BLOCK]) {
    for (unsigned l = 0; l < GW_CHANCE_LANES; l++) {
        uint32_t h = gw_qsgd_mix(seed, ctr + l), r = GW_CHANCE_R(h), s = GW_CHANCE_S(h);
        word[l] = r << 16 | r >> 16;
        word[GW_CHANCE_LANES + l] = r;
        word[2 * GW_CHANCE_LANES + l] = s << 16 | s >> 16;
        word[3 * GW_CHANCE_LANES + l] = s;
    }
}
