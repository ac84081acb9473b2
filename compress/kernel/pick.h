/** Kernels of the codecs that keep large elements: find those that reach a magnitude. */
#ifndef GW_COMPRESS_KERNEL_PICK_H
#define GW_COMPRESS_KERNEL_PICK_H

#include "compress/kernel/simd.h"

#include <stdbool.h>

/** A float's magnitude: its bits without the sign. They order floats by |x|, with infinity above
 *  all numbers and NaN above infinity, in any denormal mode. */
#define GW_MAGNITUDE 0x7fffffffu

static inline uint32_t gw_magnitude(uint32_t bits) {
    return bits & GW_MAGNITUDE;
}

typedef struct gw_pick_kernels {
    /** Write `first` + i to at[] for each i whose x[i] has a magnitude of at least `least`,
     *  ascending; return their number. n is a multiple of GW_BLOCK; `at` has room for n words, and
     *  words past the returned count may be overwritten. */
    size_t (*pick)(const float *x, size_t n, uint32_t least, uint32_t first, uint32_t *at);
    /** The same for e after e += x. */
    size_t (*add_pick)(const float *x, float *e, size_t n, uint32_t least, uint32_t first,
                       uint32_t *at);
    /** Count, of any n floats given by their bits, those of magnitude `least` or more. */
    size_t (*count)(const uint32_t *bits, size_t n, uint32_t least);
    /** Keep those, in order, with their at[]; return their number. */
    size_t (*filter)(uint32_t *at, uint32_t *bits, size_t n, uint32_t least);
} gw_pick_kernels;

/** By hand: in vectors the portable one is half as fast where many are picked; AVX-512 picks 1.2
 *  times as fast, or 5 times where there are many, and VBMI2 is 1.2 times as fast as that. AVX2
 *  would gain nothing, and share its loop with nobody. */
extern const gw_pick_kernels gw_pick_portable;
#ifdef GW_X86
extern const gw_pick_kernels gw_pick_avx2, gw_pick_avx512;
extern const gw_pick_kernels gw_pick_vbmi2; /* level avx512 on CPUs that also have VBMI2 */
bool gw_pick_has_vbmi2(void);
#endif

/** The portable filter: AVX2 has nothing better. */
size_t gw_pick_filter(uint32_t *at, uint32_t *bits, size_t n, uint32_t least);

/** The kernels of the level that gw_simd_pick gives; its errors. */
gw_err gw_pick_open(const gw_pick_kernels **out);

/** One chunk of any length. With e: first e[0..n) += x[0..n), then pick from e. `at` has room for n
 *  rounded up to whole blocks. */
size_t gw_pick_chunk(const gw_pick_kernels *k, const float *x, float *e, size_t n, uint32_t least,
                     uint32_t first, uint32_t *at);

#endif
