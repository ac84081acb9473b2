/** Frames around encodings, for links and programs that may damage them: codec, length and a
 *  checksum, checked before a byte is decoded.
 *
 *  Wire format, all numbers little-endian:
 *    0  magic    4 bytes "GWFR"
 *    4  version  32-bit, 1
 *    8  tag      32-bit, CRC-32 of the codec's name and its options with their values, each text
 *                with its final 0; whole numbers in decimal, others as printf's %.17g
 *   12  crc      32-bit, CRC-32 (ISO 3309, as zlib's) of the other 28 bytes and the encoding
 *   16  n        64-bit, floats it stands for
 *   24  length   64-bit, bytes of the encoding that follows
 *  A CRC-32 detects every burst error of up to 32 bits and misses one in 2^32 others. */
#ifndef GW_COMPRESS_FRAME_H
#define GW_COMPRESS_FRAME_H

#include "base/err.h"

#include <stddef.h>
#include <stdint.h>

enum { GW_FRAME_BYTES = 32 };

/** Write the frame at `frame`; its `len` bytes already follow at frame + GW_FRAME_BYTES. */
void gw_frame_seal(void *frame, uint32_t tag, uint64_t n, uint64_t len);

/** Check that in[0..bytes) is exactly one frame of this codec and of n floats; set *len to the
 *  bytes of its encoding. Else GW_ERR_CORRUPT, with the codec's name, the expected value and the
 *  one found. */
gw_err gw_frame_check(const void *in, size_t bytes, const char *codec, uint32_t tag, uint64_t n,
                      size_t *len);

#endif
