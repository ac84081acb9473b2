/** What `gradwire plan` does in place of comparing codecs here: prepare, measure and report. */
#ifndef GW_CLI_PLAN_H
#define GW_CLI_PLAN_H

#include "cli/bench/bench.h"

/** --mesh: how to spread the model over the ranks. */
extern const gw_benchmark gw_plan_mesh;

/** --ranks: does compression pay on so many ranks of a network? Strategies, algorithms and codecs
 *  are played (play/play.h), in one process; with --verify real ranks measure the fastest. */
extern const gw_benchmark gw_plan_scale;

#endif
