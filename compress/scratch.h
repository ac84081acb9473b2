/** Scratch memory for one call, reused because malloc would often ask the system for it. The owner
 *  keeps one block; a call that finds it in use on another thread gets a new one. Contents do not
 *  survive a call. */
#ifndef GW_COMPRESS_SCRATCH_H
#define GW_COMPRESS_SCRATCH_H

#include "base/err.h"

#include <stdatomic.h>
#include <stddef.h>

typedef struct gw_block gw_block;

/** Zero-initialise. */
typedef struct gw_scratch {
    _Atomic(gw_block *) spare;
} gw_scratch;

/** Get at least `bytes` undefined bytes at *data, aligned to 64. Any thread. `owner` is for
 *  messages. */
gw_err gw_scratch_take(gw_scratch *s, const char *owner, size_t bytes, void *data,
                       gw_block **block);
/** Return a block; the larger of it and the kept one is kept. */
void gw_scratch_give(gw_scratch *s, gw_block *block);

/** Free the kept block; none may be in use. */
void gw_scratch_clear(gw_scratch *s);

#endif
