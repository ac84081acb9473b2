/* fp16: IEEE 754 binary16 (1 sign, 5 exponent, 10 fraction bits). P. Micikevicius et al., "Mixed
 * Precision Training", ICLR 2018.
 *
 *   wire = round to nearest, ties to even, of x        16 bits an element
 *
 * Wire format: n little-endian halfwords, nothing else. |x| >= 65520 becomes infinity, and Inf and
 * NaN stay: an overflow shows in the result and is never hidden by saturation. Below 2^-14 the
 * fraction loses bits; at or below 2^-25 the value is zero. NaNs become quiet.
 * `add` rounds after each addition, so a reduction over P ranks rounds P - 1 times. */
#include "compress/codec.h"
#include "compress/kernel/half.h"

static gw_err fp16_open(void **self, const gw_args *args) {
    (void)args;
    return gw_half_open(self, gw_fp16_kernels);
}

static gw_err fp16_add(void *inout, const void *in, size_t len) {
    return gw_half_add(gw_fp16_kernels, inout, in, len);
}

const gw_codec_ops gw_codec_fp16 = {
    .head = {GW_CODEC_ABI, "fp16", "half precision; overflow becomes Inf", NULL},
    .caps = GW_CODEC_FIXED,
    .open = fp16_open,
    .bound = gw_half_bound,
    .encode = gw_half_encode,
    .decode = gw_half_decode,
    .add = fp16_add,
    .unit_bytes = 2,
    .most = 65000, /* 65504, less what rounding may add to a sum */
};
