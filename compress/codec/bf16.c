/* bf16: the upper half of an IEEE 754 binary32 (1 sign, 8 exponent, 7 fraction bits). D. Kalamkar
 * et al., "A Study of BFLOAT16 for Deep Learning Training", arXiv:1905.12322, 2019.
 *
 *   wire = round to nearest, ties to even, of x        16 bits an element
 *
 * Wire format: n little-endian halfwords, nothing else. The range is that of float, so no
 * loss scale is needed. Inf stays Inf, NaNs become quiet, denormals are kept.
 * `add` rounds after each addition, so a reduction over P ranks rounds P - 1 times. */
#include "compress/codec.h"
#include "compress/kernel/half.h"

static gw_err bf16_open(void **self, const gw_args *args) {
    (void)args;
    return gw_half_open(self, gw_bf16_kernels);
}

static gw_err bf16_add(void *inout, const void *in, size_t len) {
    return gw_half_add(gw_bf16_kernels, inout, in, len);
}

const gw_codec_ops gw_codec_bf16 = {
    .head = {GW_CODEC_ABI, "bf16", "the upper half of each float, rounded", NULL},
    .caps = GW_CODEC_FIXED,
    .open = bf16_open,
    .bound = gw_half_bound,
    .encode = gw_half_encode,
    .decode = gw_half_decode,
    .add = bf16_add,
    .unit_bytes = 2,
};
