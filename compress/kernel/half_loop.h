/* fp16 and bf16. Not vcvtneps2bf16: it flushes denormals in any mode, so its bytes would differ. */
#include "compress/kernel/half.h"

enum { HALF_BYTES = 2 * WIDTH }; /* of a register's halves */

INLINE void fp16_put(unsigned char *out, vf a, vf b) {
    vec_put_fp16(out, a);
    vec_put_fp16(out + HALF_BYTES, b);
}

INLINE vf fp16_value(const unsigned char *in) {
    return vec_fp16(in);
}

/* The rounded half above, bits to drop below. */
INLINE vu bf16_round(vf v) {
    vu bits = (vu)v, up = bits + 0x7fff + (bits >> 16 & 1);
    return vec_if_nan(v, bits | 0x400000, up);
}

INLINE void bf16_put(unsigned char *out, vf a, vf b) {
    vec_put_upper(out, bf16_round(a), bf16_round(b));
}

INLINE vf bf16_value(const unsigned char *in) {
    return (vf)(vec_widen_halves(in) << 16);
}

#define FORMAT(format)                                                                             \
    TARGET static void format##_encode(const void *in, size_t n, void *out) {                      \
        const float *x = in;                                                                       \
        unsigned char *h = out;                                                                    \
        for (size_t i = 0; i < n; i += 2 * WIDTH, h += 2 * HALF_BYTES)                             \
            format##_put(h, vec_load_floats(x + i), vec_load_floats(x + i + WIDTH));               \
    }                                                                                              \
    TARGET static void format##_decode(const void *in, size_t n, void *out) {                      \
        float *y = out;                                                                            \
        const unsigned char *h = in;                                                               \
        for (size_t i = 0; i < n; i += WIDTH, h += HALF_BYTES)                                     \
            vec_put(y + i, format##_value(h), 0);                                                  \
    }                                                                                              \
    TARGET static void format##_decode_add(const void *in, size_t n, void *out) {                  \
        float *y = out;                                                                            \
        const unsigned char *h = in;                                                               \
        for (size_t i = 0; i < n; i += WIDTH, h += HALF_BYTES)                                     \
            vec_put(y + i, format##_value(h), 1);                                                  \
    }                                                                                              \
    TARGET static void format##_add(const void *in, size_t n, void *out) {                         \
        unsigned char *a = out;                                                                    \
        const unsigned char *b = in;                                                               \
        for (size_t i = 0; i < n; i += 2 * WIDTH, a += 2 * HALF_BYTES, b += 2 * HALF_BYTES)        \
            format##_put(a, format##_value(a) + format##_value(b),                                 \
                         format##_value(a + HALF_BYTES) + format##_value(b + HALF_BYTES));         \
    }                                                                                              \
    const gw_half_kernels GW_LEVEL(gw_##format) = {format##_encode, format##_decode,               \
                                                   format##_decode_add, format##_add};

FORMAT(fp16)
FORMAT(bf16)
