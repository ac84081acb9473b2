/* Low-rank kernels in vectors of 16 floats. */
#include "compress/kernel/simd.h"

#ifdef GW_X86
#define TARGET  GW_TARGET_AVX512
#define WIDTH   16
#define ROWS(r) ((r) <= 2 ? 4 : (r) <= 4 ? 2 : 1)
#include "compress/kernel/lowrank_loop.h"
GW_LOWRANK_TABLE(avx512);
#endif
