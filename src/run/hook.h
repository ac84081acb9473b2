/** Where in its strategy this process is, for whoever asks while it does not come back. */
#ifndef GW_RUN_HOOK_H
#define GW_RUN_HOOK_H

#include "base/span.h"

#include <stddef.h>
#include <stdint.h>

/** By the one thread that calls hooks: it goes into `hook` (a string that stays) for `span`, and
 *  comes back. A relaxed store or three. */
void gw_hook_enter(const char *hook, gw_span span);
void gw_hook_leave(void);

/** By the same thread: the number of the exchange that hooks are called for from now on. */
void gw_hook_count(uint64_t exchange);

/** Any thread: the hook that the process is in at this moment, ": in finish ..", or "". */
void gw_hook_present(char *text, size_t room);

#endif
