#include "base/mem.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#if defined(__SSE2__)
#include <immintrin.h>
#endif

enum { LEAST_ROOM = 8 };

static gw_err mem_alloc(void *out, size_t count, size_t size, bool zeroed) {
    if (size != 0 && count > (SIZE_MAX - GW_ALIGN) / size)
        return gw_fail(GW_ERR_NOMEM, "cannot allocate %zu x %zu bytes", count, size);
    size_t bytes = (count * size + GW_ALIGN - 1) / GW_ALIGN * GW_ALIGN;
    if (bytes == 0)
        bytes = GW_ALIGN;
    bool large = zeroed && bytes >= GW_LARGE_PAGE; /* of the rest, most may never be written */
    void *p;
    if (posix_memalign(&p, large ? GW_LARGE_PAGE : GW_ALIGN, bytes) != 0)
        return gw_fail(GW_ERR_NOMEM, "cannot allocate %zu bytes", bytes);
#ifdef MADV_HUGEPAGE
    /* Steps walk the arenas from end to end, and sparse updates jump about in them: with 4 KiB
     * pages address translation takes a tenth of a step. Only a hint to the kernel, and before the
     * first write, which would map small pages. */
    if (large)
        madvise(p, bytes, MADV_HUGEPAGE);
#endif
    if (zeroed)
        memset(p, 0, bytes);
    memcpy(out, &p, sizeof p);
    return GW_OK;
}

gw_err gw_alloc(void *out, size_t count, size_t size) {
    return mem_alloc(out, count, size, true);
}

gw_err gw_alloc_unset(void *out, size_t count, size_t size) {
    return mem_alloc(out, count, size, false);
}

gw_err gw_grow(void *array, int *room, int need, size_t size) {
    int wide = *room ? *room : LEAST_ROOM;
    if (need <= *room)
        return GW_OK;
    while (wide < need)
        wide *= 2;
    void *old;
    memcpy(&old, array, sizeof old);
    void *fresh = realloc(old, (size_t)wide * size);
    if (!fresh)
        return gw_fail(GW_ERR_NOMEM, "cannot allocate %d x %zu bytes", wide, size);
    memcpy(array, &fresh, sizeof fresh);
    *room = wide;
    return GW_OK;
}

void gw_flush_denormals_here(void) {
#if defined(__SSE2__)
    _mm_setcsr(_mm_getcsr() | 0x8040); /* FTZ | DAZ */
#elif defined(__aarch64__)
    uint64_t fpcr;
    __asm__ volatile("mrs %0, fpcr" : "=r"(fpcr));
    __asm__ volatile("msr fpcr, %0" ::"r"(fpcr | (1u << 24)));
#endif
}

void gw_flush_denormals(void) {
#ifdef _OPENMP
#pragma omp parallel
#endif
    gw_flush_denormals_here();
}

unsigned long gw_float_state(void) {
#if defined(__SSE2__)
    return _mm_getcsr();
#elif defined(__aarch64__)
    uint64_t fpcr;
    __asm__ volatile("mrs %0, fpcr" : "=r"(fpcr));
    return fpcr;
#else
    return 0;
#endif
}

void gw_float_state_set(unsigned long state) {
#if defined(__SSE2__)
    _mm_setcsr((unsigned)state);
#elif defined(__aarch64__)
    __asm__ volatile("msr fpcr, %0" ::"r"((uint64_t)state));
#else
    (void)state;
#endif
}
