/* onebit in plain C: the reference; the other levels give the same bytes. */
#include "compress/kernel/onebit.h"

static inline float onebit_gather(const float *x, const float *e, size_t n, unsigned char *signs,
                                  int feedback) {
    float sum[GW_BLOCK] = {0};
    for (size_t i = 0; i < n; i += GW_BLOCK, signs += GW_BLOCK / 8) {
        unsigned char negative[GW_BLOCK];
        for (size_t l = 0; l < GW_BLOCK; l++) {
            float v = feedback ? e[i + l] + x[i + l] : x[i + l];
            uint32_t bits = gw_float_bits(v), mag = bits & 0x7fffffff;
            sum[l] += gw_float_of(mag >= GW_ONEBIT_NORMAL ? mag : 0);
            negative[l] = (unsigned char)(bits >> 31);
        }
        for (size_t b = 0; b < GW_BLOCK / 8; b++) {
            unsigned byte = 0;
            for (size_t k = 0; k < 8; k++)
                byte |= (unsigned)negative[8 * b + k] << k;
            signs[b] = (unsigned char)byte;
        }
    }
    for (size_t half = GW_BLOCK / 2; half; half /= 2)
        for (size_t l = 0; l < half; l++)
            sum[l] += sum[half + l];
    return sum[0];
}

static inline void onebit_settle(const float *x, float *e, size_t n, float scale) {
    for (size_t i = 0; i < n; i++) {
        float v = e[i] + x[i];
        uint32_t sign = gw_float_bits(v) & 0x80000000;
        e[i] = v - gw_float_of(gw_float_bits(scale) | sign);
    }
}

static inline void onebit_decode(const unsigned char *signs, size_t n, float scale, float *y,
                                 int add) {
    for (size_t i = 0; i < n; i++) {
        uint32_t sign = (uint32_t)(signs[i / 8] >> i % 8 & 1) << 31;
        float value = gw_float_of(gw_float_bits(scale) ^ sign);
        y[i] = add ? y[i] + value : value;
    }
}

#define TARGET
#include "compress/kernel/onebit_loop.h"
GW_ONEBIT_TABLE(portable);
