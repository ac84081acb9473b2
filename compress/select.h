/** Select the k floats of a span that are largest in magnitude, exactly; among equal magnitudes the
 *  lower index wins, and a NaN counts as larger than infinity. */
#ifndef GW_COMPRESS_SELECT_H
#define GW_COMPRESS_SELECT_H

#include "compress/kernel/pick.h"

/** Indices, ascending, and bits of the selected floats. */
typedef struct gw_kept {
    uint32_t *at, *bits;
    size_t n;
} gw_kept;

/** The longest span: indices have 32 bits. */
#define GW_SELECT_MOST (UINT32_MAX - GW_BLOCK)

/** Words of memory needed to select k of n floats, 1 <= k <= n <= GW_SELECT_MOST. */
size_t gw_select_words(size_t n, size_t k);

/** Select the k largest of x[0..n), or with e (not NULL) of e[0..n) after e += x. *out lies in
 *  `words`, which has gw_select_words(n, k) words. Any thread. */
void gw_select_largest(const gw_pick_kernels *kernels, const float *x, float *e, size_t n, size_t k,
                       uint32_t *words, gw_kept *out);

/** Subtract the kept values from the span they came from: a number leaves 0, an infinity or a NaN
 *  leaves NaN. */
static inline void gw_kept_take(const gw_kept *kept, float *e) {
    for (size_t i = 0; i < kept->n; i++)
        e[kept->at[i]] -= gw_float_of(kept->bits[i]);
}

#endif
