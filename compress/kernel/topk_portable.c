/* topk in plain C: every position is written, few are kept; no branch to mispredict. */
#include "compress/kernel/topk.h"

size_t gw_topk_pick_portable(const float *x, size_t n, uint32_t least, uint32_t first,
                             uint32_t *at) {
    size_t found = 0;
    for (size_t i = 0; i < n; i++) {
        at[found] = first + (uint32_t)i;
        found += (gw_float_bits(x[i]) & GW_TOPK_MAGNITUDE) >= least;
    }
    return found;
}
