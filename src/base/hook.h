/** Where in its strategy, and in a step of several stages, this process is, for whoever asks while
 *  it does not come back. */
#ifndef GW_BASE_HOOK_H
#define GW_BASE_HOOK_H

#include "base/span.h"

#include <stddef.h>
#include <stdint.h>

/** By the one thread that calls hooks: it goes into `hook` (a string that stays) for `span`, and
 *  comes back. A relaxed store or three. */
void gw_hook_enter(const char *hook, gw_span span);
void gw_hook_leave(void);

/** By the same thread: the number of the exchange that hooks are called for from now on. */
void gw_hook_count(uint64_t exchange);

/** By the same thread: what a stage does with a microbatch (a string that stays; NULL: nothing). */
void gw_hook_act(const char *act, int stage, int chunk, int micro);

/** Any thread: "stage 1, chunk 0: forward pass of microbatch 2", or "". */
void gw_hook_acting(char *text, size_t room);

/** Any thread: the hook that the process is in at this moment, ": in finish ..", or "". */
void gw_hook_present(char *text, size_t room);

#endif
