/** Fused multiply-adds in registers, as many at a time as the CPU can have under way, in the widest
 *  vectors it has: the peak that a matrix product is held against. */
#ifndef GW_ROOFLINE_FMA_H
#define GW_ROOFLINE_FMA_H

#include <stdint.h>

/** Do so many rounds; the result only keeps them from being left out. */
float gw_fma_run(uint64_t rounds);

/** Floating-point operations of a round, two a multiply-add; depends on the CPU. */
double gw_fma_flops(void);

#endif
