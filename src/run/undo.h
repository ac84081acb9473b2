/** Restores what a step changes on this rank before it is known whether it counts (--on-nan skip):
 * the residual of error feedback, which encoding changes, and the state of its rule. The state
 * before the step is copied layer by layer, and restored if the step is void. */
#ifndef GW_RUN_UNDO_H
#define GW_RUN_UNDO_H

#include "base/err.h"
#include "base/span.h"

typedef struct gw_undo {
    size_t n;
    float *now[3], *before[3]; /* NULL: not kept */
} gw_undo;

/** Open for arrays of n floats each; any may be NULL. */
gw_err gw_undo_open(gw_undo *u, size_t n, float *residual, float *velocity, float *estimate);
void gw_undo_close(gw_undo *u);

/** Copy the state of span `s`, whose gradient is there and not encoded yet. */
void gw_undo_keep(gw_undo *u, gw_span s);

/** Restore the state before the step, of which all spans were kept and nothing is under way. */
void gw_undo_put(gw_undo *u);

#endif
