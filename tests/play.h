/* Transfers played without their rule: what the tests hold an accepted schedule against. */
#ifndef GW_TESTS_PLAY_H
#define GW_TESTS_PLAY_H

#include "comm/schedule/transfers.h"

#include <stdint.h>
#include <string.h>

enum { PLAY_RANKS = 8, PLAY_CELLS = 512 };

/* What a block of a rank is: how often each rank's contribution is in it, a byte each, and a hash
 * of the order in which they were added, that of the operands included. */
typedef struct played {
    uint64_t counts, order;
} played;

static inline bool play_fits(const gw_transfers *t) {
    return t->ranks <= PLAY_RANKS && t->ranks * t->blocks <= PLAY_CELLS;
}

/* Does each rank end with each contribution once, added in the same order as on all others? */
static inline bool play(const gw_transfers *t) {
    played now[PLAY_CELLS], before[PLAY_CELLS] = {{0, 0}};
    const uint64_t once = UINT64_C(0x0101010101010101) >> (8 * (PLAY_RANKS - t->ranks));
    for (int i = 0; i < t->ranks * t->blocks; i++) {
        int rank = i / t->blocks;
        now[i] = (played){UINT64_C(1) << (8 * rank), (uint64_t)rank * 0x9E3779B97F4A7C15 + 1};
    }
    for (int i = 0; i < t->n; i++) {
        const gw_move *x = &t->x[i];
        if (i == 0 || x->round != x[-1].round)
            memcpy(before, now, sizeof now);
        for (int b = x->first; b < x->first + x->count; b++) {
            played *to = &now[x->to * t->blocks + b], from = before[x->from * t->blocks + b];
            to->counts = from.counts + (x->add ? to->counts : 0);
            to->order = x->add ? (to->order ^ (from.order << 17 | from.order >> 47)) * 0xD1B54A32D5
                               : from.order;
        }
    }
    for (int i = 0; i < t->ranks * t->blocks; i++)
        if (now[i].counts != once || now[i].order != now[i % t->blocks].order)
            return false;
    return true;
}

#endif
