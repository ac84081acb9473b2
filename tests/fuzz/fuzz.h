/** One input against one codec: what the fuzzer (libFuzzer) and the replay of its corpus share.
 *
 *  An input's first byte: bits 0 to 2 what is done, 3 and 4 the gw_into, 5 to 7 the upper bits of
 *  n; its second byte: the lower bits of n, the count of floats. The rest is, by what is done:
 *    0     the wire
 *    1     the wire, repeated up to bound(n)
 *    2     the wire of a framed codec; if its first byte is odd, the rest, in a frame that is right
 *    3     the floats, repeated: to be encoded and decoded
 *    4..7  damage to an encoding: 3 bytes each, where (16-bit) and what is flipped there; a last
 *          byte that is left over cuts as many bytes off */
#ifndef GW_TESTS_FUZZ_H
#define GW_TESTS_FUZZ_H

#include <stddef.h>
#include <stdint.h>

/** Open the codec that inputs are for, at each level of instructions that there is: the inputs take
 *  turns. NULL, or one that cannot be opened, ends the program. */
void gw_fuzz_open(const char *spec);
void gw_fuzz_close(void);

/** Aborts if a promise of the seam is broken; what reads or writes outside of its buffers is the
 *  sanitizer's to find. The name is libFuzzer's. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#endif
