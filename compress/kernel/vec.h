/** Vector types of one instruction set, in which the loops of *_loop.h are written. Only level_*.c
 *  and lowrank_*.c include it. Before, they define
 *    WIDTH   lanes of 32 bits in a register
 *    TARGET  the function attribute that allows the instruction set, or nothing
 *  and level_*.c after it the operations that C lacks or that compilers translate badly. All have
 *  the same:
 *    vu vec_min(a, b), vec_max(a, b)     unsigned
 *    vu vec_reaching(a, least)           a where it is at least that, else 0; below 2^31
 *    vu vec_if_nan(vf, a, b)             a where it is NaN, else b
 *    vi vec_round(vf)                    to nearest, ties to even
 *    vi vec_widen(in), vu vec_widen_halves(in)
 *                                        WIDTH signed bytes; little-endian halfwords
 *    vh vec_upper(a, b)                  upper halves of all lanes, in the order of vec_pack
 *    vec_pack(out, halves)               GW_BLOCK halves, each within a signed byte, to bytes
 *    vec_put_upper(out, a, b)            store the upper halves in order, little-endian
 *    uint32_t vec_signs(v)               the top bits of 32 lanes, lane 0's lowest
 *    vec_put_fp16(out, vf), vf vec_fp16(in)
 *                                        rounded to nearest, ties to even */
#include "compress/kernel/simd.h"

#include <string.h>

#define INLINE TARGET static inline __attribute__((always_inline))
#define APART  TARGET static __attribute__((noinline)) /* rare, or once a span */

enum { LANES = 16, PARTS = LANES / WIDTH, REGS = GW_BLOCK / WIDTH };

#define VEC(type) type __attribute__((vector_size(4 * WIDTH)))
typedef VEC(float) vf;
typedef VEC(uint32_t) vu;
typedef VEC(int32_t) vi;
typedef VEC(int16_t) vh;
typedef VEC(uint8_t) vb;
typedef vu vec_word __attribute__((aligned(1), may_alias)); /* in memory */
typedef vb vec_byte __attribute__((aligned(1), may_alias));

#define MAGNITUDE 0x7fffffffu
#define SIGN      0x80000000u

INLINE vu vec_load(const void *at) {
    return *(const vec_word *)at;
}

INLINE vf vec_load_floats(const float *x) {
    return (vf)vec_load(x);
}

/** y = v, or y += v. */
INLINE void vec_put(float *y, vf v, int add) {
    *(vec_word *)(void *)y = (vu)(add ? vec_load_floats(y) + v : v);
}

INLINE vu vec_all(uint32_t value) {
    return value - (vu){0};
}

INLINE vu vec_lanes(void) {
#if WIDTH == 4
    return (vu){0, 1, 2, 3};
#elif WIDTH == 8
    return (vu){0, 1, 2, 3, 4, 5, 6, 7};
#else
    return (vu){0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
#endif
}

/** 16 lanes' sum: lower and upper half of the lanes, until one is left. */
INLINE float vec_total(const vf *lanes) {
    typedef float quad __attribute__((vector_size(16)));
    quad x[4];
    memcpy(x, lanes, sizeof x);
    quad a = x[0] + x[2], b = x[1] + x[3], c = a + b;
    return (c[0] + c[2]) + (c[1] + c[3]);
}
