/** `gradwire plan --ranks`: does compression pay on so many ranks of a network? What plan.c calls
 *  in place of its own parts. Strategies, algorithms and codecs are played (cli/simulate), in one
 *  process; with --verify the fastest are measured on as many real ranks. */
#ifndef GW_CLI_PLAN_SCALE_H
#define GW_CLI_PLAN_SCALE_H

#include "cli/bench/bench.h"

/** As gw_benchmark has them. */
gw_err gw_plan_scale_prepare(gw_bench_run *run);
gw_err gw_plan_scale_measure(gw_bench_run *run, bool *own);
void gw_plan_scale_report(gw_bench_run *run);
void gw_plan_scale_release(void);

#endif
