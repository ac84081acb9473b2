#include "data/portion.h"

gw_span gw_portion_of(size_t n, int rank, int ranks) {
    return rank < 0 ? (gw_span){0, 0} : gw_span_part((gw_span){0, n}, rank, ranks);
}

gw_err gw_portion_cut(uint32_t n, int batch, int rank, int ranks, uint32_t *first,
                      uint32_t *count) {
    if (batch < 1 || (uint32_t)batch > n)
        return gw_fail(GW_ERR_USAGE,
                       "global batch %d: must be from 1 to the number of training samples, %u",
                       batch, n);
    uint32_t full = n / (uint32_t)batch;
    gw_span whole = gw_portion_of((size_t)batch, rank, ranks),
            rest = gw_portion_of(n % (uint32_t)batch, rank, ranks);
    *first = full * (uint32_t)whole.off + (uint32_t)rest.off;
    *count = full * (uint32_t)whole.n + (uint32_t)rest.n;
    return GW_OK;
}
