/** Where this process is in its strategy, and in a step of several stages: for whoever asks while a
 *  hook does not return. */
#ifndef GW_BASE_HOOK_H
#define GW_BASE_HOOK_H

#include "base/span.h"

#include <stddef.h>
#include <stdint.h>

/** Enter `hook` (a string that stays) for `span`, and leave it: on the one thread that calls hooks.
 *  One to three relaxed stores. */
void gw_hook_enter(const char *hook, gw_span span);
void gw_hook_leave(void);

/** Set the number of the exchange that hooks are called for from now on. Same thread. */
void gw_hook_count(uint64_t exchange);

/** Set what a stage does with a microbatch (a string that stays; NULL: nothing). Same thread. */
void gw_hook_act(const char *act, int stage, int chunk, int micro);

/** Write "stage 1, chunk 0: forward pass of microbatch 2", or "". Any thread. */
void gw_hook_acting(char *text, size_t room);

/** Write the hook that the process is in at this moment, ": in finish ..", or "". Any thread. */
void gw_hook_present(char *text, size_t room);

#endif
