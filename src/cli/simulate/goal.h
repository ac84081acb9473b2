/** What simulated ranks do, as GOAL text, which LogGOPSim reads (T. Hoefler, T. Schneider, A.
 *  Lumsdaine, "LogGOPSim: simulating large-scale applications in the LogGOPS model", LSAP 2010).
 *
 *  It is this run's own order: each message and computation of a rank waits for the last
 *  computation before it, and for all that the rank had seen complete until then (`calc 0` joins
 *  these). Each message of the run has a tag of its own. */
#ifndef GW_CLI_SIMULATE_GOAL_H
#define GW_CLI_SIMULATE_GOAL_H

#include "comm/fabric/sim.h"

#include <stdio.h>

typedef struct gw_goal gw_goal;

/** Of so many ranks. */
gw_err gw_goal_open(gw_goal **out, int ranks);
void gw_goal_close(gw_goal *g);

/** What is to watch the world. */
gw_sim_watch gw_goal_watch(gw_goal *g);

/** Write what was seen to `to`. GW_ERR_NOMEM: it did not fit into memory. */
gw_err gw_goal_write(const gw_goal *g, FILE *to);

#endif
