#include "comm/schedule/crew.h"

#include "base/mem.h"

#include <stdatomic.h>

enum { LINE = 64 };

gw_err gw_crew_new(gw_crew **out, gw_shared *memory, int first, int n) {
    gw_crew *c = NULL;
    void *mine = NULL;
    gw_err e = gw_alloc(&c, 1, sizeof *c + (size_t)n * sizeof c->flag[0]);
    GW_TRY(gw_shared_alloc(memory, LINE, &mine)); /* collective: first, whatever happened here */
    GW_TRY(e);
    c->memory = memory;
    c->first = first;
    c->n = n;
    c->me = gw_shared_rank(memory) - first;
    for (int i = 0; i < n; i++)
        c->flag[i] = gw_crew_twin(c, mine, i);
    *out = c;
    return GW_OK;
}

void *gw_crew_twin(const gw_crew *c, const void *mine, int i) {
    return gw_shared_twin(c->memory, mine, c->first + i);
}

gw_err gw_crew_signal(void *crew) {
    gw_crew *c = crew;
    uint64_t count = atomic_load_explicit(&c->count, memory_order_relaxed) + 1;
    c->seen = 0;
    atomic_store_explicit(&c->count, count, memory_order_relaxed);
    atomic_store_explicit(c->flag[c->me], count, memory_order_release);
    return GW_OK;
}

/* A hint to the core that it is spinning. */
static void crew_relax(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static bool crew_reached(const gw_crew *c, int i) {
    return atomic_load_explicit(c->flag[i], memory_order_acquire) >=
           atomic_load_explicit(&c->count, memory_order_relaxed);
}

int gw_crew_missing(const gw_crew *c, bool lead) {
    for (int i = lead ? c->lead : 0; i < (lead ? c->lead + 1 : c->n); i++)
        if (!crew_reached(c, i))
            return gw_shared_world(c->memory, c->first + i);
    return -1;
}

gw_err gw_crew_all(void *crew, bool *done) {
    gw_crew *c = crew;
    while (c->seen < c->n && crew_reached(c, c->seen))
        c->seen++;
    *done = c->seen == c->n;
    if (!*done)
        crew_relax();
    return GW_OK;
}

gw_err gw_crew_lead(void *crew, bool *done) {
    gw_crew *c = crew;
    *done = crew_reached(c, c->lead);
    if (!*done)
        crew_relax();
    return GW_OK;
}
