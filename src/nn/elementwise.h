/** Shared by the elementwise kernels: clones for wider vectors, and vectorisable exp and tanh. */
#ifndef GW_NN_ELEMENTWISE_H
#define GW_NN_ELEMENTWISE_H

#include "base/clones.h"

#include <stdint.h>
#include <string.h>

/** exp(x), relative error below 2e-7, after Cephes (Moshier); saturates at exp(-87) and exp(88),
 * NaN stays NaN. Branch-free, so that loops over it vectorise. */
static inline float gw_expf(float x) {
    x = x < -87.0f ? -87.0f : x;
    x = x > 88.0f ? 88.0f : x;
    float magic = x * 1.44269504f + 0x1.8p23f; /* the sum's low bits are the rounded exponent */
    float k = magic - 0x1.8p23f;
    float r = x - k * 0.693359375f + k * 2.12194440e-4f; /* ln 2 in two parts */
    float p = 1.9875691500e-4f;
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * r * r + r + 1.0f;
    uint32_t bits;
    memcpy(&bits, &magic, sizeof bits);
    bits = (bits << 23) + 0x3f800000u;
    float scale;
    memcpy(&scale, &bits, sizeof scale);
    return p * scale;
}

/** 1 / (1 + exp(-x)). */
static inline float gw_sigmoidf(float x) {
    return 1.0f / (1.0f + gw_expf(-x));
}

/** tanh(x), relative error below 4e-7, after Cephes. */
static inline float gw_tanhf(float x) {
    float z = x * x;
    float p = -5.70498872745e-3f;
    p = p * z + 2.06390887954e-2f;
    p = p * z - 5.37397155531e-2f;
    p = p * z + 1.33314422036e-1f;
    p = p * z - 3.33332819422e-1f;
    float small = p * z * x + x; /* near 0 the other form cancels */
    float big = 1.0f - 2.0f / (gw_expf(2.0f * x) + 1.0f);
    return z < 0.390625f ? small : big;
}

#endif
