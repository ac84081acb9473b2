/** Timing the passes of a microbatch through what a rank holds. */
#ifndef GW_SELECT_LAYOUT_PASSES_H
#define GW_SELECT_LAYOUT_PASSES_H

#include "select/placed.h"

/** Collective over the setup's ranks, which compute at once: run[c].act and .early_s of each chunk
 *  c that this rank holds, and the seconds of an update of its parameters; typical times
 *  (gw_stats_typical). Sums over other ranks are left out, so parameters end up as anything. */
gw_err gw_layout_time_passes(gw_placed *p, const gw_place_setup *s, gw_run_cost *run,
                             double *update_s);

#endif
