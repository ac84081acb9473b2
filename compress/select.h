/** Choosing the k floats of a span that are largest in magnitude, exactly; of equal magnitudes the
 *  lower index wins, and a NaN counts as larger than infinity. */
#ifndef GW_COMPRESS_SELECT_H
#define GW_COMPRESS_SELECT_H

#include "compress/kernel/pick.h"

/** Places and bits of chosen floats, by ascending place. */
typedef struct gw_kept {
    uint32_t *at, *bits;
    size_t n;
} gw_kept;

/** The longest span: 32 bits name a place. */
#define GW_SELECT_MOST (UINT32_MAX - GW_BLOCK)

/** Words of memory that choosing k of n floats works in, 1 <= k <= n <= GW_SELECT_MOST. */
size_t gw_select_words(size_t n, size_t k);

/** The k largest of x[0..n); with e (else NULL) of e[0..n), to which x is added first. *out lies in
 *  `words`, gw_select_words of them. Any thread. */
void gw_select_largest(const gw_pick_kernels *kernels, const float *x, float *e, size_t n, size_t k,
                       uint32_t *words, gw_kept *out);

/** Take what was kept off the span that it was chosen from: a number leaves 0 there, an infinity or
 *  a NaN leaves NaN. */
static inline void gw_kept_take(const gw_kept *kept, float *e) {
    for (size_t i = 0; i < kept->n; i++)
        e[kept->at[i]] -= gw_float_of(kept->bits[i]);
}

#endif
