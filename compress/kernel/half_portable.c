/* fp16 and bf16 in plain C, without branches so that it vectorises. This is the reference: the
 * other levels give the same bytes for all 2^32 floats. */
#include "compress/kernel/half.h"

/* One formula for each of the three ranges of magnitudes (after F. Giesen, "Float to half done
 * quick", 2012): adding 0.5 makes the FPU round a subnormal half into the low bits; a normal one is
 * rebiased and rounded as an integer, where the carry reaches infinity at 65520. */
static inline uint16_t fp16_of(float x) {
    uint32_t bits = gw_float_bits(x), sign = bits >> 16 & 0x8000, mag = bits & 0x7fffffff;
    uint32_t small = gw_float_bits(gw_float_of(mag) + 0.5f) - gw_float_bits(0.5f);
    uint32_t normal = (mag - (112u << 23) + 0xfff + (mag >> 13 & 1)) >> 13;
    uint32_t nan = 0x7e00 | (mag >> 13 & 0x3ff);
    uint32_t half = mag < 0x38800000 ? small : normal;
    half = mag >= 0x47800000 ? 0x7c00 : half;
    half = mag > 0x7f800000 ? nan : half;
    return (uint16_t)(half | sign);
}

static inline float fp16_value(uint16_t half) {
    uint32_t sign = (uint32_t)(half & 0x8000) << 16, mag = (uint32_t)(half & 0x7fff) << 13;
    uint32_t normal = mag + (112u << 23);
    uint32_t small = gw_float_bits(gw_float_of(mag + (113u << 23)) - 0x1p-14f);
    uint32_t quiet = mag > 0x0f800000 ? 1u << 22 : 0;
    uint32_t bits = mag < 0x00800000 ? small : normal;
    bits = mag >= 0x0f800000 ? (mag + (224u << 23)) | quiet : bits;
    return gw_float_of(bits | sign);
}

static inline uint16_t bf16_of(float x) {
    uint32_t bits = gw_float_bits(x);
    uint32_t rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
    uint32_t nan = bits >> 16 | 0x40;
    return (uint16_t)((bits & 0x7fffffff) > 0x7f800000 ? nan : rounded);
}

static inline float bf16_value(uint16_t half) {
    return gw_float_of((uint32_t)half << 16);
}

#define FORMAT(format)                                                                             \
    static void format##_encode(const float *x, size_t n, void *out) {                             \
        gw_u16u *h = out;                                                                          \
        for (size_t i = 0; i < n; i++)                                                             \
            h[i] = gw_le16(format##_of(x[i]));                                                     \
    }                                                                                              \
    static void format##_decode(const void *in, size_t n, float *y) {                              \
        const gw_u16u *h = in;                                                                     \
        for (size_t i = 0; i < n; i++)                                                             \
            y[i] = format##_value(gw_le16(h[i]));                                                  \
    }                                                                                              \
    static void format##_decode_add(const void *in, size_t n, float *y) {                          \
        const gw_u16u *h = in;                                                                     \
        for (size_t i = 0; i < n; i++)                                                             \
            y[i] += format##_value(gw_le16(h[i]));                                                 \
    }                                                                                              \
    static void format##_add(void *inout, const void *in, size_t n) {                              \
        gw_u16u *a = inout;                                                                        \
        const gw_u16u *b = in;                                                                     \
        for (size_t i = 0; i < n; i++)                                                             \
            a[i] = gw_le16(                                                                        \
                format##_of(format##_value(gw_le16(a[i])) + format##_value(gw_le16(b[i]))));       \
    }                                                                                              \
    const gw_half_kernels gw_##format##_portable = {format##_encode, format##_decode,              \
                                                    format##_decode_add, format##_add};

FORMAT(fp16)
FORMAT(bf16)
