#include "counters/sanity.h"

#include "base/mem.h"
#include "base/rng.h"
#include "prof/clock.h"

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

enum {
    LOADS = 1 << 17,
    LINE = 64,
    LEAST_BYTES = 32 << 20,
    MOST_BYTES = 128 << 20,
    MOST_A_NANOSECOND = 64 /* 8 slots a cycle at 8 GHz: no core counts more */
};

static struct {
    char *bytes; /* cache lines; each starts with the address of the next in one cycle */
    size_t lines;
} memory;

const char *gw_sanity_name(gw_sanity s) {
    static const char *const names[GW_SANITIES] = {"any",    "cycles", "instructions", "stalls",
                                                   "misses", "stores", "window"};
    return names[s];
}

/* All lines in one single cycle of random order, which neither a prefetcher nor a short loop can
 * spoil. */
static gw_err sanity_prepare(void) {
    if (memory.bytes)
        return GW_OK;
    long last = sysconf(_SC_LEVEL3_CACHE_SIZE);
    size_t bytes = last > 0 ? 2 * (size_t)last : LEAST_BYTES;
    bytes = bytes < LEAST_BYTES ? LEAST_BYTES : bytes > MOST_BYTES ? MOST_BYTES : bytes;
    size_t n = bytes / LINE;
    uint32_t *order = NULL;
    GW_TRY(gw_alloc(&order, n, sizeof *order));
    gw_err e = gw_alloc(&memory.bytes, n, LINE);
    for (size_t i = 0; i < n; i++)
        order[i] = (uint32_t)i;
    gw_rng_shuffle(1, order, (uint32_t)n);
    for (size_t i = 0; e == GW_OK && i < n; i++)
        *(void **)(memory.bytes + (size_t)order[i] * LINE) =
            memory.bytes + (size_t)order[(i + 1) % n] * LINE;
    memory.lines = n;
    free(order);
    return e;
}

void gw_sanity_end(void) {
    free(memory.bytes);
    memory.bytes = NULL;
}

/* Each step depends on the one before, so the chain takes at least a cycle a step. */
static void sanity_chain(void) {
    uint64_t x = 1;
    for (int i = 0; i < GW_SANITY_STEPS; i++) {
        x *= 0x9e3779b97f4a7c15u;
        __asm__ volatile("" : "+r"(x)); /* keep the loop a loop */
    }
}

static void sanity_chase(void) {
    void **p = (void **)memory.bytes;
    for (int i = 0; i < LOADS; i += 8) /* few other instructions: load queues fill first */
        p = (void **)*(void **)*(void **)*(void **)*(void **)*(void **)*(void **)*p;
    __asm__ volatile("" : : "r"(p));
}

/* Instructions between the loads fill the retire window before the load queue. */
static void sanity_chase_apart(void) {
    void **p = (void **)memory.bytes;
    for (int i = 0; i < LOADS / 4; i++) {
        p = (void **)*p;
        __asm__ volatile(
            "nop\nnop\nnop\nnop\nnop\nnop\nnop\nnop\nnop\nnop\nnop\nnop\nnop\nnop\nnop\nnop"
            : "+r"(p));
    }
}

/* Check one event of a running set with its kernel. */
static gw_err sanity_check_one(const gw_counter_source *source, void *set, int i, const char *event,
                               gw_sanity s) {
    long long before[GW_SANITY_EVENTS], after[GW_SANITY_EVENTS];
    double least = 1;          /* the lowest plausible count */
    if (s >= GW_SANITY_STALLS) /* it needs memory beyond the caches; outside the count */
        GW_TRY(sanity_prepare());
    uint64_t from = gw_clock_ticks();
    GW_TRY(source->read(set, before));
    switch (s) {
    case GW_SANITY_CYCLES:
    case GW_SANITY_INSTRUCTIONS:
        sanity_chain();
        least = GW_SANITY_STEPS;
        break;
    case GW_SANITY_STALLS:
        sanity_chase();
        least = LOADS;
        break;
    case GW_SANITY_MISSES: sanity_chase(); break;
    case GW_SANITY_STORES: /* to the second half of each line, which holds no pointer */
        for (size_t k = 0; k < memory.lines; k++)
            *(volatile uint64_t *)(memory.bytes + k * LINE + LINE / 2) = k;
        break;
    case GW_SANITY_WINDOW: sanity_chase_apart(); break;
    default: least = 0;
    }
    GW_TRY(source->read(set, after));
    double ns = gw_clock_since(from) * 1e9, most = INFINITY;
    if (s == GW_SANITY_CYCLES)
        most = 1.0 * GW_SANITY_STEPS * GW_SANITY_MOST;
    if (s != GW_SANITY_ANY)
        most = fmin(most, ns * MOST_A_NANOSECOND);
    if (before[i] < 0 || after[i] < before[i])
        return gw_fail(GW_ERR_UNSUPPORTED, "%s is accepted, but reads %lld and then %lld: no count",
                       event, before[i], after[i]);
    double counted = (double)(after[i] - before[i]);
    if (counted < least || counted > most)
        return gw_fail(GW_ERR_UNSUPPORTED,
                       "%s is accepted, but counted %.0f for a kernel that makes %.0f at least and "
                       "%.0f at most (check '%s')",
                       event, counted, least, most, gw_sanity_name(s));
    return GW_OK;
}

gw_err gw_sanity_check(const gw_counter_source *source, const char *const *events,
                       const gw_sanity *sanity, int n) {
    void *set = NULL;
    GW_TRY(source->open(&set, events, n));
    gw_err e = source->start(set);
    if (e == GW_OK) {
        for (int i = 0; e == GW_OK && i < n; i++)
            e = sanity_check_one(source, set, i, events[i], sanity[i]);
        gw_err late = source->stop(set);
        e = e == GW_OK ? late : e;
    }
    source->close(set);
    return e;
}
