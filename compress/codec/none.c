/* none: the floats themselves. 32 bits per element; wire format: n IEEE 754 binary32 values in
 * host order. */
#include "compress/codec.h"

#include "base/clones.h"

#include <string.h>

/* Received floats may lie at any address. */
typedef float float_u __attribute__((aligned(1), may_alias));

GW_CLONES static void none_add_unaligned(float_u *y, const float_u *x, size_t n) {
    for (size_t i = 0; i < n; i++)
        y[i] += x[i];
}

static size_t none_bound(const void *self, size_t n) {
    (void)self;
    return n * sizeof(float);
}

static gw_err none_encode(const void *self, gw_turn turn, const float *x, size_t n, void *out,
                          size_t cap, size_t *len) {
    (void)self, (void)turn, (void)cap;
    *len = n * sizeof(float);
    memcpy(out, x, *len);
    return GW_OK;
}

static gw_err none_decode(const void *self, const void *in, size_t len, float *y, size_t n,
                          gw_into into) {
    (void)self;
    if (into == GW_INTO_SET)
        memcpy(y, in, len);
    else
        none_add_unaligned(y, in, n);
    return GW_OK;
}

static gw_err none_add(void *inout, const void *in, size_t len) {
    none_add_unaligned(inout, in, len / sizeof(float));
    return GW_OK;
}

const gw_codec_ops gw_codec_none = {
    .head = {GW_CODEC_ABI, "none", "the floats themselves", NULL},
    .caps = GW_CODEC_IDENTITY | GW_CODEC_LOSSLESS | GW_CODEC_UNBIASED | GW_CODEC_FIXED |
            GW_CODEC_LINEAR,
    .bound = none_bound,
    .encode = none_encode,
    .decode = none_decode,
    .add = none_add,
    .unit_bytes = sizeof(float),
    .sum = GW_SUM_FLOAT,
};
