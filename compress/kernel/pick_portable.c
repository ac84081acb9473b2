/* Picking in plain C: writes every index and keeps few, so there is no branch to mispredict. */
#include "compress/kernel/pick.h"

size_t gw_pick_filter(uint32_t *at, uint32_t *bits, size_t n, uint32_t least) {
    size_t found = 0;
    for (size_t i = 0; i < n; i++) {
        uint32_t place = at[i], b = bits[i];
        at[found] = place;
        bits[found] = b;
        found += gw_magnitude(b) >= least;
    }
    return found;
}

static size_t pick_span(const float *x, size_t n, uint32_t least, uint32_t first, uint32_t *at) {
    size_t found = 0;
    for (size_t i = 0; i < n; i++) {
        at[found] = first + (uint32_t)i;
        found += gw_magnitude(gw_float_bits(x[i])) >= least;
    }
    return found;
}

static size_t pick_add_span(const float *x, float *e, size_t n, uint32_t least, uint32_t first,
                            uint32_t *at) {
    for (size_t i = 0; i < n; i++)
        e[i] += x[i];
    return pick_span(e, n, least, first, at);
}

static size_t pick_count(const uint32_t *bits, size_t n, uint32_t least) {
    size_t found = 0;
    for (size_t i = 0; i < n; i++)
        found += gw_magnitude(bits[i]) >= least;
    return found;
}

const gw_pick_kernels gw_pick_portable = {pick_span, pick_add_span, pick_count, gw_pick_filter};
