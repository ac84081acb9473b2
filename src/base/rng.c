#include "base/rng.h"

#include <math.h>

double gw_rng_normal(uint64_t key, uint64_t ctr) {
    double u = 1.0 - gw_rng_unit(key, 2 * ctr); /* (0, 1]: log stays finite */
    double v = gw_rng_unit(key, 2 * ctr + 1);
    return sqrt(-2.0 * log(u)) * cos(6.283185307179586 * v);
}

void gw_rng_shuffle(uint64_t key, uint32_t *idx, uint32_t n) {
    for (uint32_t i = n; i > 1; i--) {
        /* 64 x 32 -> high bits: the bias of the scaled draw is below 2^-32. */
        uint32_t j = (uint32_t)(((unsigned __int128)gw_rng_u64(key, i) * i) >> 64);
        uint32_t t = idx[i - 1];
        idx[i - 1] = idx[j];
        idx[j] = t;
    }
}
