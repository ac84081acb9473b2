/* Low-rank kernels in vectors of 4 floats, which every compiler supports. */
#define TARGET
#define WIDTH   4
#define ROWS(r) ((r) <= 1 ? 2 : 1)
#include "compress/kernel/lowrank_loop.h"
GW_LOWRANK_TABLE(portable);
