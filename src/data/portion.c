#include "data/portion.h"

gw_span gw_portion_of(size_t n, int r, gw_shares by) {
    if (r < 0)
        return (gw_span){0, 0};
    if (!by.ends)
        return gw_span_part((gw_span){0, n}, r, by.parts);
    size_t all = by.ends[by.parts - 1];
    size_t lo = r > 0 ? n * by.ends[r - 1] / all : 0, hi = n * by.ends[r] / all;
    return (gw_span){lo, hi - lo};
}

gw_err gw_portion_cut(uint32_t n, int batch, int r, gw_shares by, uint32_t *first,
                      uint32_t *count) {
    if (batch < 1 || (uint32_t)batch > n)
        return gw_fail(GW_ERR_USAGE,
                       "global batch %d: must be from 1 to the number of training samples, %u",
                       batch, n);
    uint32_t full = n / (uint32_t)batch;
    gw_span whole = gw_portion_of((size_t)batch, r, by),
            rest = gw_portion_of(n % (uint32_t)batch, r, by);
    *first = full * (uint32_t)whole.off + (uint32_t)rest.off;
    *count = full * (uint32_t)whole.n + (uint32_t)rest.n;
    return GW_OK;
}
