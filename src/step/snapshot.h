/** All that a step changes, kept in memory and put back to the bit, so that steps can be
 *  rehearsed. */
#ifndef GW_STEP_SNAPSHOT_H
#define GW_STEP_SNAPSHOT_H

#include "step/step.h"

/** Zeroed before the first use. */
typedef struct gw_snapshot {
    gw_io_memory memory;
} gw_snapshot;

/** Collective, between steps, with nothing pending: keep parameters, the optimizer's state and
 *  what the exchange carries, in place of what *s holds. Errors are the strategy's, or
 *  GW_ERR_NOMEM; each rank's own. */
gw_err gw_snapshot_take(gw_snapshot *s, gw_stepper *t);

/** Collective, likewise: put it back, into the stepper it was taken from or one of the same model
 *  whose exchange carries the same. */
gw_err gw_snapshot_put(gw_snapshot *s, gw_stepper *t);

/** True if both hold the same bits. */
bool gw_snapshot_same(const gw_snapshot *a, const gw_snapshot *b);

void gw_snapshot_free(gw_snapshot *s);

#endif
