/** Shared by the kernels that round at random: scales and random words. The generator is qsgd's:
 *  see kernel/qsgd.h. */
#ifndef GW_COMPRESS_KERNEL_CHANCE_H
#define GW_COMPRESS_KERNEL_CHANCE_H

#include "compress/kernel/qsgd.h"

/* Random words of a block of GW_BLOCK elements: 16 each of two kinds, r and s. In word l of r the
 * low half belongs to element l, the high half to element 16 + l; in s to elements 32 + l and 48 +
 * l. */
#define GW_CHANCE_R(h) ((h)*GW_QSGD_MUL2)
#define GW_CHANCE_S(h) (((h) << 16 | (h) >> 16) * GW_QSGD_MUL3)

#endif
