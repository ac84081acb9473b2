/** Kernels of the 16-bit float codecs, fp16 and bf16. Wire values are little-endian halfwords at
 *  any alignment; conversions to 16 bits round to nearest, ties to even. */
#ifndef GW_COMPRESS_KERNEL_HALF_H
#define GW_COMPRESS_KERNEL_HALF_H

#include "compress/codec.h"
#include "compress/kernel/simd.h"

/** From n elements to as many, n a multiple of GW_BLOCK. */
typedef void gw_half_kernel(const void *in, size_t n, void *out);

/** One format on one instruction set. `add` adds halves to halves. */
typedef struct gw_half_kernels {
    gw_half_kernel *encode, *decode, *decode_add, *add;
} gw_half_kernels;

extern const gw_half_kernels gw_fp16_portable, gw_fp16_avx2, gw_fp16_avx512;
extern const gw_half_kernels gw_bf16_portable, gw_bf16_avx2, gw_bf16_avx512;

/** The kernels of a format: one entry a gw_simd level. */
typedef const gw_half_kernels *gw_half_table[GW_SIMD_LEVELS];
extern const gw_half_table gw_fp16_kernels, gw_bf16_kernels;

/** The hooks of gw_codec_ops over such a table, for any n. */
gw_err gw_half_open(void **self, const gw_half_table table);
size_t gw_half_bound(const void *self, size_t n);
gw_err gw_half_encode(const void *self, gw_turn turn, const float *x, size_t n, void *out,
                      size_t cap, size_t *len);
gw_err gw_half_decode(const void *self, const void *in, size_t len, float *y, size_t n,
                      gw_into into);
gw_err gw_half_add(const gw_half_table table, void *inout, const void *in, size_t len);

#endif
