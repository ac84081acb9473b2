/** Allocation: 64-byte aligned (a cache line, an AVX-512 register) and zeroed. From GW_LARGE_PAGE
 *  bytes on it is aligned to that, and on large pages where the system gives them. */
#ifndef GW_BASE_MEM_H
#define GW_BASE_MEM_H

#include "base/err.h"

#include <stddef.h>

#define GW_ALIGN      64
#define GW_LARGE_PAGE ((size_t)1 << 21)

/** Allocate count * size zeroed bytes, 64-byte aligned, into *out (free with free()).
 *  count * size == 0 gives a valid pointer. GW_ERR_NOMEM when it does not fit. */
gw_err gw_alloc(void *out, size_t count, size_t size);

/** Have this thread (and each OpenMP thread it starts after) flush denormals to zero:
 *  they are up to 27 times slower in codecs and carry no information here. */
void gw_flush_denormals(void);

/** The same for the calling thread alone. */
void gw_flush_denormals_here(void);

#endif
