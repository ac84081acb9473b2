/** Allocation, 64-byte aligned (a cache line, an AVX-512 register). Blocks of GW_LARGE_PAGE bytes
 *  or more, if zeroed, are aligned to GW_LARGE_PAGE and use large pages where there are some. */
#ifndef GW_BASE_MEM_H
#define GW_BASE_MEM_H

#include "base/err.h"

#include <stddef.h>

#define GW_ALIGN      64
#define GW_LARGE_PAGE ((size_t)1 << 21)

/** Allocate count * size zeroed bytes, 64-byte aligned, into *out (free with free()).
 *  count * size == 0 gives a valid pointer. GW_ERR_NOMEM. */
gw_err gw_alloc(void *out, size_t count, size_t size);

/** The same, but with arbitrary contents: what nobody writes takes no memory and no time. */
gw_err gw_alloc_unset(void *out, size_t count, size_t size);

/** Widen the malloc'ed array at *array, of *room elements of `size` bytes, by doubling to `need` or
 *  more. New elements are not initialised. GW_ERR_NOMEM: nothing has changed. */
gw_err gw_grow(void *array, int *room, int need, size_t size);

/** Make this thread (and each OpenMP thread it starts later) flush denormals to zero: they make
 *  codecs up to 27 times slower and carry no information here. */
void gw_flush_denormals(void);

/** The same for the calling thread alone. */
void gw_flush_denormals_here(void);

/** Return the calling thread's floating-point state (x86: MXCSR, Arm: FPCR; else 0); restore it. */
unsigned long gw_float_state(void);
void gw_float_state_set(unsigned long state);

#endif
