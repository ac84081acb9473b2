#include "base/hook.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>

static struct {
    _Atomic(const char *) hook; /* NULL: none */
    atomic_size_t off, n;
    atomic_uint_fast64_t exchange;
    _Atomic(const char *) act; /* NULL: none */
    atomic_int stage, chunk, micro;
} present;

void gw_hook_enter(const char *hook, gw_span span) {
    atomic_store_explicit(&present.off, span.off, memory_order_relaxed);
    atomic_store_explicit(&present.n, span.n, memory_order_relaxed);
    atomic_store_explicit(&present.hook, hook, memory_order_relaxed);
}

void gw_hook_leave(void) {
    atomic_store_explicit(&present.hook, NULL, memory_order_relaxed);
}

void gw_hook_count(uint64_t exchange) {
    atomic_store_explicit(&present.exchange, exchange, memory_order_relaxed);
}

void gw_hook_present(char *text, size_t room) {
    const char *hook = atomic_load_explicit(&present.hook, memory_order_relaxed);
    size_t off = atomic_load_explicit(&present.off, memory_order_relaxed);
    size_t n = atomic_load_explicit(&present.n, memory_order_relaxed);
    uint_fast64_t exchange = atomic_load_explicit(&present.exchange, memory_order_relaxed);
    text[0] = '\0';
    if (hook)
        snprintf(text, room, ": in %s of parameters [%zu, %zu), exchange %" PRIuFAST64, hook, off,
                 off + n, exchange);
}

void gw_hook_act(const char *act, int stage, int chunk, int micro) {
    atomic_store_explicit(&present.stage, stage, memory_order_relaxed);
    atomic_store_explicit(&present.chunk, chunk, memory_order_relaxed);
    atomic_store_explicit(&present.micro, micro, memory_order_relaxed);
    atomic_store_explicit(&present.act, act, memory_order_relaxed);
}

void gw_hook_acting(char *text, size_t room) {
    const char *act = atomic_load_explicit(&present.act, memory_order_relaxed);
    text[0] = '\0';
    if (act)
        snprintf(text, room, "stage %d, chunk %d: %s of microbatch %d",
                 atomic_load_explicit(&present.stage, memory_order_relaxed),
                 atomic_load_explicit(&present.chunk, memory_order_relaxed), act,
                 atomic_load_explicit(&present.micro, memory_order_relaxed));
}
