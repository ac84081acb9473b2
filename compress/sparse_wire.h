/** Wire format of selected elements, for the codecs that send indices:
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
#include "compress/select.h"

/** Upper bound on the bytes of any k of n elements; monotonic in k and in n. */
size_t gw_sparse_bound(size_t n, size_t k);

/** Encode the selected elements of a span of n > 0; returns the bytes. */
size_t gw_sparse_encode(const gw_kept *kept, void *out);

/** decode() of gw_codec_ops for encodings of `least` to `most` elements. `name` is the codec's, for
 *  messages. Writes y only if all of `in` is valid. */
gw_err gw_sparse_decode(const char *name, const void *in, size_t len, float *y, size_t n,
                        size_t least, size_t most, gw_into into);

/** list() of gw_codec_ops, likewise. */
gw_err gw_sparse_list(const char *name, const void *in, size_t len, size_t n, size_t least,
                      size_t most, gw_elements *out);

#endif
