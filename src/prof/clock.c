#include "prof/clock.h"

#include "base/file.h"

#include <string.h>
#include <time.h>

#if defined(__x86_64__)
#include <cpuid.h>
#include <x86intrin.h>
#endif

enum { CALIBRATION_NS = 10000000, TRIES = 16 };

static bool use_tsc;
static double tick_s = 1e-9;
static bool begun;
static uint64_t begin_ticks, begin_ns;
static uint64_t (*virtual_ns)(void);

static uint64_t clock_monotonic_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

void gw_clock_virtual(uint64_t (*ns)(void)) {
    virtual_ns = ns;
}

bool gw_clock_is_virtual(void) {
    return virtual_ns;
}

uint64_t gw_clock_ticks(void) {
    if (__builtin_expect(virtual_ns != NULL, 0))
        return virtual_ns();
#if defined(__x86_64__)
    if (use_tsc)
        return __rdtsc();
#endif
    return clock_monotonic_ns();
}

void gw_clock_anchor(uint64_t *ticks, uint64_t *ns) {
    uint64_t best = UINT64_MAX;
    /* The tightest of some tries: an interrupt between the reads must not tilt the rate. */
    for (int i = 0; i < TRIES; i++) {
        uint64_t before = gw_clock_ticks(), mono = clock_monotonic_ns(), after = gw_clock_ticks();
        if (after - before < best) {
            best = after - before;
            *ticks = before + (after - before) / 2;
            *ns = mono;
        }
    }
}

void gw_clock_begin(void) {
    if (begun)
        return;
    begun = true;
#if defined(__x86_64__)
    /* CPUID 0x80000007, EDX bit 8: one rate in all power states (Intel SDM vol. 3, "Invariant
     * TSC"). Linux strikes the TSC off its list when it found the sockets' counters to disagree. */
    static const char path[] = "/sys/devices/system/clocksource/clocksource0/available_clocksource";
    char names[256];
    unsigned a, b, c, d;
    use_tsc = __get_cpuid(0x80000007, &a, &b, &c, &d) && (d & (1u << 8)) != 0 &&
              (!gw_file_first_line(path, names, sizeof names) || strstr(names, "tsc"));
#endif
    if (use_tsc)
        gw_clock_anchor(&begin_ticks, &begin_ns);
}

void gw_clock_start(void) {
    static bool started;
    if (started)
        return;
    started = true;
    gw_clock_begin();
    if (!use_tsc)
        return;
    uint64_t ticks, ns;
    while (clock_monotonic_ns() - begin_ns < CALIBRATION_NS)
        ;
    gw_clock_anchor(&ticks, &ns);
    tick_s = (double)(ns - begin_ns) * 1e-9 / (double)(ticks - begin_ticks);
}

const char *gw_clock_name(void) {
    return virtual_ns ? "virtual" : use_tsc ? "tsc" : "monotonic";
}

double gw_clock_seconds(uint64_t ticks) {
    return (double)ticks * (virtual_ns ? 1e-9 : tick_s);
}
