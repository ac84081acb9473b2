/** Kernel of the topk codec: which elements of a span are large enough. */
#ifndef GW_COMPRESS_KERNEL_TOPK_H
#define GW_COMPRESS_KERNEL_TOPK_H

#include "compress/kernel/simd.h"

/** A float's magnitude: its bits without the sign. They order floats by |x|, infinity above all
 *  numbers and NaN above infinity, in whatever mode denormals are. */
#define GW_TOPK_MAGNITUDE 0x7fffffffu

/** Write to at[] `first` + i for each i with the magnitude of x[i] at least `least`, ascending, and
 *  return how many there are. n is a multiple of GW_BLOCK; at has room for n words, and words past
 *  the count returned may be overwritten. */
typedef size_t (*gw_topk_pick)(const float *x, size_t n, uint32_t least, uint32_t first,
                               uint32_t *at);

size_t gw_topk_pick_portable(const float *x, size_t n, uint32_t least, uint32_t first,
                             uint32_t *at);
#ifdef GW_X86
size_t gw_topk_pick_avx2(const float *x, size_t n, uint32_t least, uint32_t first, uint32_t *at);
size_t gw_topk_pick_avx512(const float *x, size_t n, uint32_t least, uint32_t first, uint32_t *at);
#endif

#endif
