/* Low-rank kernels in vectors of 8 floats. */
#include "compress/kernel/simd.h"

#ifdef GW_X86
#define TARGET  GW_TARGET_AVX2
#define WIDTH   8
#define ROWS(r) ((r) <= 2 ? 2 : 1)
#include "compress/kernel/lowrank_loop.h"
GW_LOWRANK_TABLE(avx2);
#endif
