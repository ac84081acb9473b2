/** Room to work in for the length of a call, which malloc would often ask the system for. The owner
 *  keeps the block of the last call; who finds it taken, by a call on another thread, gets a new
 *  one. It holds nothing from call to call. */
#ifndef GW_COMPRESS_SCRATCH_H
#define GW_COMPRESS_SCRATCH_H

#include "base/err.h"

#include <stdatomic.h>
#include <stddef.h>

typedef struct gw_block gw_block;

/** Zero it to begin with. */
typedef struct gw_scratch {
    _Atomic(gw_block *) spare;
} gw_scratch;

/** At least `bytes` bytes at *data, aligned to 64, undefined. Any thread. `owner` is for messages.
 */
gw_err gw_scratch_take(gw_scratch *s, const char *owner, size_t bytes, void *data,
                       gw_block **block);
/** Of this and the spare one the larger is kept. */
void gw_scratch_give(gw_scratch *s, gw_block *block);

/** Free what is kept; nothing may be taken. */
void gw_scratch_clear(gw_scratch *s);

#endif
