#include "run/undo.h"

#include "base/mem.h"
#include "base/probe.h"

#include <stdlib.h>
#include <string.h>

enum { KEPT = 3 };

gw_err gw_undo_open(gw_undo *u, size_t n, float *residual, float *velocity, float *estimate) {
    *u = (gw_undo){.n = n, .now = {residual, velocity, estimate}};
    for (int i = 0; i < KEPT; i++)
        if (u->now[i])
            GW_TRY(gw_alloc(&u->before[i], n, sizeof(float)));
    return GW_OK;
}

void gw_undo_close(gw_undo *u) {
    for (int i = 0; i < KEPT; i++)
        free(u->before[i]);
    *u = (gw_undo){0};
}

void gw_undo_keep(gw_undo *u, gw_span s) {
    if (!u->before[0] && !u->before[1] && !u->before[2])
        return;
    gw_phase_enter(GW_PHASE_ENCODE);
    for (int i = 0; i < KEPT; i++)
        if (u->before[i])
            memcpy(u->before[i] + s.off, u->now[i] + s.off, s.n * sizeof(float));
    gw_phase_leave();
}

void gw_undo_put(gw_undo *u) {
    for (int i = 0; i < KEPT; i++)
        if (u->before[i])
            memcpy(u->now[i], u->before[i], u->n * sizeof(float));
}
