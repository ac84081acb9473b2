/* Work of a known length, and what the ledger made of it. */
#ifndef GW_TESTS_TIMED_H
#define GW_TESTS_TIMED_H

#include "prof/clock.h"
#include "prof/ledger.h"

static inline void spin(double seconds) {
    uint64_t t0 = gw_clock_ticks();
    while (gw_clock_seconds(gw_clock_ticks() - t0) < seconds)
        ;
}

static inline void spin_in(gw_phase phase, double seconds) {
    gw_phase_enter(phase);
    spin(seconds);
    gw_phase_leave();
}

/* Seconds of all phases together: the batch's wall time. */
static inline double phase_sum(const gw_batch_cost *c) {
    double total = 0;
    for (int p = 0; p < GW_PHASES; p++)
        total += c->phase_s[p];
    return total;
}

#endif
