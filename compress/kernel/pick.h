/** Kernels of the codecs that keep what is large: which elements of a span reach a magnitude. */
#ifndef GW_COMPRESS_KERNEL_PICK_H
#define GW_COMPRESS_KERNEL_PICK_H

#include "compress/kernel/simd.h"

#include <stdbool.h>

/** A float's magnitude: its bits without the sign. They order floats by |x|, infinity above all
 *  numbers and NaN above infinity, in whatever mode denormals are. */
#define GW_MAGNITUDE 0x7fffffffu

static inline uint32_t gw_magnitude(uint32_t bits) {
    return bits & GW_MAGNITUDE;
}

typedef struct gw_pick_kernels {
    /** Write to at[] `first` + i for each i with the magnitude of x[i] at least `least`, ascending,
     *  and return how many there are. n is a multiple of GW_BLOCK; at has room for n words, and
     *  words past the count returned may be overwritten. */
    size_t (*pick)(const float *x, size_t n, uint32_t least, uint32_t first, uint32_t *at);
    /** The same of e, to which x is added first. */
    size_t (*add_pick)(const float *x, float *e, size_t n, uint32_t least, uint32_t first,
                       uint32_t *at);
    /** How many of any n floats, given by their bits, are of magnitude `least` or more. */
    size_t (*count)(const uint32_t *bits, size_t n, uint32_t least);
    /** Keep those, in their order, and what is in at[] beside them; returns how many. */
    size_t (*filter)(uint32_t *at, uint32_t *bits, size_t n, uint32_t least);
} gw_pick_kernels;

extern const gw_pick_kernels gw_pick_portable;
#ifdef GW_X86
extern const gw_pick_kernels gw_pick_avx2, gw_pick_avx512;
extern const gw_pick_kernels gw_pick_vbmi2; /* of level avx512, where the CPU has this, too */
bool gw_pick_has_vbmi2(void);
#endif

/** The portable filter: AVX2 has nothing better. */
size_t gw_pick_filter(uint32_t *at, uint32_t *bits, size_t n, uint32_t least);

/** The kernels of the level that gw_simd_pick gives; its errors. */
gw_err gw_pick_open(const gw_pick_kernels **out);

/** One codec's chunk after chunk, of any length. With e: e[0..n) += x[0..n) first, and e is looked
 *  at. `at` has room for n rounded up to whole blocks. */
size_t gw_pick_chunk(const gw_pick_kernels *k, const float *x, float *e, size_t n, uint32_t least,
                     uint32_t first, uint32_t *at);

#endif
