/** The common part of codecs that select elements by magnitude and send their indices. Wire
 *  format:
 *
 *   k       little-endian 32-bit: how many
 *   gaps    for each element, ascending, the number g of elements skipped before it: floor(g / 255)
 *           bytes 255, then g mod 255
 *   values  k little-endian binary32
 *
 *  Empty for n = 0. At most 4 + 5 k + floor((n - k) / 255) bytes. */
#ifndef GW_COMPRESS_SPARSE_WIRE_H
#define GW_COMPRESS_SPARSE_WIRE_H

#include "compress/codec.h"
#include "compress/scratch.h"
#include "compress/select.h"

/** The head of such a codec's settings. */
typedef struct gw_sparse {
    const char *name; /* the codec's, for messages */
    const gw_pick_kernels *kernels;
    gw_scratch scratch;
    /** Select in x, or e += x and in e; n > 0. What *kept names lies in *block, of `scratch`. */
    gw_err (*select)(struct gw_sparse *s, gw_turn turn, const float *x, float *e, size_t n,
                     gw_kept *kept, gw_block **block);
    /** Return how many of n elements an encoding has at least and at most; monotonic in n. */
    size_t (*least)(const struct gw_sparse *s, size_t n);
    size_t (*most)(const struct gw_sparse *s, size_t n);
} gw_sparse;

/** Allocate the settings in *self: `size` bytes, zero but for the name and the kernels. */
gw_err gw_sparse_open(void **self, const char *name, size_t size);

/** Hooks of gw_codec_ops, once the rest of the settings is set. */
void gw_sparse_close(void *self);
size_t gw_sparse_bound(const void *self, size_t n);
gw_err gw_sparse_encode(const void *self, gw_turn turn, const float *x, size_t n, void *out,
                        size_t cap, size_t *len);
gw_err gw_sparse_encode_feedback(const void *self, gw_turn turn, const float *x, float *e, size_t n,
                                 void *out, size_t cap, size_t *len);
/** Writes y only if all of `in` is valid. */
gw_err gw_sparse_decode(const void *self, const void *in, size_t len, float *y, size_t n,
                        gw_into into);
gw_err gw_sparse_list(const void *self, const void *in, size_t len, size_t n, gw_elements *out);

#endif
