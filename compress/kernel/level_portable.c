/* The kernels in vectors of 4 lanes, which every compiler supports. This is the reference: the
 * other levels give the same bytes. */
#define TARGET
#define WIDTH           4
#define GW_LEVEL(table) table##_portable
#include "compress/kernel/vec.h"

#include <math.h>

INLINE vu vec_choose(vi where, vu a, vu b) {
    return (a & (vu)where) | (b & ~(vu)where);
}

INLINE vu vec_min(vu a, vu b) {
    return vec_choose(a < b, a, b);
}

INLINE vu vec_max(vu a, vu b) {
    return vec_choose(a > b, a, b);
}

INLINE vu vec_reaching(vu a, uint32_t least) {
    return a & (vu)(a >= least);
}

INLINE vu vec_if_nan(vf v, vu a, vu b) {
    return vec_choose(v != v, a, b);
}

INLINE vi vec_round(vf v) {
    return (vi){(int32_t)lrintf(v[0]), (int32_t)lrintf(v[1]), (int32_t)lrintf(v[2]),
                (int32_t)lrintf(v[3])};
}

#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
#define UPPER 0
#else
#define UPPER 1
#endif

/* A load of a few bytes must not pass through the stack: hence the integers. */
INLINE vi vec_widen(const void *bytes) {
    vb none = {0}, b = (vb)(vu){*(const gw_u32u *)bytes};
    vh h = (vh)__builtin_shufflevector(UPPER ? none : b, UPPER ? b : none, 0, 16, 1, 17, 2, 18, 3,
                                       19, 4, 20, 5, 21, 6, 22, 7, 23);
    vh low = {0};
    h = __builtin_shufflevector(UPPER ? low : h, UPPER ? h : low, 0, 8, 1, 9, 2, 10, 3, 11);
    return (vi)h >> 24;
}

INLINE vu vec_widen_halves(const void *halves) {
    typedef uint64_t pair __attribute__((vector_size(16)));
    vh none = {0}, h = (vh)(pair){*(const gw_u64u *)halves};
    if (!UPPER)
        h = (h << 8) | (h >> 8 & 0xff);
    return (vu)__builtin_shufflevector(UPPER ? h : none, UPPER ? none : h, 0, 8, 1, 9, 2, 10, 3,
                                       11);
}

INLINE vh vec_upper(vu a, vu b) {
    return __builtin_shufflevector((vh)a, (vh)b, UPPER, 2 + UPPER, 4 + UPPER, 6 + UPPER, 8 + UPPER,
                                   10 + UPPER, 12 + UPPER, 14 + UPPER);
}

INLINE void vec_pack(void *out, const vh *halves) {
    typedef int8_t few __attribute__((vector_size(2 * WIDTH), aligned(1), may_alias));
    for (int h = 0; h < REGS / 2; h++)
        ((few *)out)[h] = __builtin_convertvector(halves[h], few);
}

INLINE void vec_put_upper(void *out, vu a, vu b) {
    vh h = vec_upper(a, b);
    if (!UPPER)
        h = (h << 8) | (h >> 8 & 0xff);
    memcpy(out, &h, sizeof h);
}

INLINE uint32_t vec_signs(const vu *v) {
    uint32_t word = 0;
    for (int r = 0; r < 32 / WIDTH; r++)
        for (int l = 0; l < WIDTH; l++)
            word |= v[r][l] >> 31 << (r * WIDTH + l);
    return word;
}

/* One formula for each of the three ranges of magnitudes (after F. Giesen, "Float to half done
 * quick", 2012): adding 0.5 makes the FPU round a subnormal half into the low bits; a normal one is
 * rebiased and rounded as an integer, where the carry reaches infinity at 65520. */
INLINE void vec_put_fp16(void *out, vf v) {
    vu bits = (vu)v, sign = bits >> 16 & 0x8000, mag = bits & MAGNITUDE;
    vu small = (vu)((vf)mag + 0.5f) - gw_float_bits(0.5f);
    vu normal = (mag - (112u << 23) + 0xfff + (mag >> 13 & 1)) >> 13;
    vu nan = 0x7e00 | (mag >> 13 & 0x3ff);
    vu half = vec_choose(mag < 0x38800000, small, normal);
    half = vec_choose(mag >= 0x47800000, vec_all(0x7c00), half);
    half = vec_choose(mag > 0x7f800000, nan, half);
    gw_u16u *to = out;
    for (int l = 0; l < WIDTH; l++)
        to[l] = gw_le16((uint16_t)(half[l] | sign[l]));
}

INLINE vf vec_fp16(const void *in) {
    vu half = vec_widen_halves(in), sign = (half & 0x8000) << 16, mag = (half & 0x7fff) << 13;
    vu small = (vu)((vf)(mag + (113u << 23)) - 0x1p-14f);
    vu quiet = (vu)(mag > 0x0f800000) & 1u << 22;
    vu bits = vec_choose(mag < 0x00800000, small, mag + (112u << 23));
    bits = vec_choose(mag >= 0x0f800000, (mag + (224u << 23)) | quiet, bits);
    return (vf)(bits | sign);
}

/* ---- codes narrower than 8 bits in plain C: 8 codes of b bits are b bytes ---- */
enum { OCTET = 8 };

INLINE void qsgd_pack(unsigned bits, const int8_t *codes, unsigned char *out) {
    const uint64_t mask = (1u << bits) - 1;
    for (unsigned e = 0; e < GW_BLOCK; e += OCTET) {
        uint64_t packed = 0;
        for (unsigned k = 0; k < OCTET; k++)
            packed |= ((uint64_t)codes[e + k] & mask) << (bits * k);
        for (unsigned k = 0; k < bits; k++)
            *out++ = (unsigned char)(packed >> 8 * k);
    }
}

INLINE void qsgd_unpack(unsigned bits, const unsigned char *in, size_t n, float step, float *y,
                        int add) {
    for (size_t i = 0; i < n; i += OCTET, in += bits) {
        uint64_t packed = 0;
        for (unsigned k = 0; k < bits; k++)
            packed |= (uint64_t)in[k] << 8 * k;
        for (unsigned k = 0; k < OCTET; k++) {
            uint32_t raw = (uint32_t)(packed >> bits * k);
            int32_t code = (int32_t)(raw << (32 - bits)) >> (32 - bits); /* sign extension */
            float value = (float)code * step;
            y[i + k] = add ? y[i + k] + value : value;
        }
    }
}

#include "compress/kernel/loops.h"
